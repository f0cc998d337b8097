package room

import (
	"context"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"

	"touchline/agent/room/conn"
)

const (
	// expiryEvery is the interval of the search for participants whose rights have ended, removeTime bounds the removal of one.
	expiryEvery = 2 * time.Second
	removeTime  = 5 * time.Second
)

// removeExpired removes participants whose rights have ended, until ctx ends. A bot with a ready token may remove nobody; they keep
// no rights there either.
func (s *Supervisor) removeExpired(ctx context.Context) {
	if s.opts.Control == nil || s.opts.Keys.APISecret == "" {
		return
	}
	tick := time.NewTicker(expiryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		room := s.CurrentRoom()
		if room == nil {
			continue
		}
		for _, p := range room.GetRemoteParticipants() {
			if s.opts.Control.Expired(p, time.Now()) {
				s.remove(ctx, p)
			}
		}
	}
}

func (s *Supervisor) remove(ctx context.Context, p *lksdk.RemoteParticipant) {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	if err := conn.Remove(ctx, s.opts.URL, s.opts.Keys, s.RoomName(), p.Identity()); err != nil {
		s.opts.Log.Warn().Err(err).Str("participant", p.Identity()).Msg("participant not removed")
		return
	}
	s.opts.Log.Info().Str("participant", p.Identity()).Msg("participant removed: its link has expired")
}
