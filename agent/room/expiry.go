package room

import (
	"context"
	"time"

	"touchline/agent/room/conn"
)

const (
	// expiryEvery is the interval of the search for participants whose rights have ended, removeTime bounds the removal of one.
	expiryEvery = 2 * time.Second
	removeTime  = 5 * time.Second
	// removeWarnEvery is the interval of warnings about refused removals.
	removeWarnEvery = time.Minute
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
			if s.opts.Control.Expired(p, time.Now()) && !s.remove(ctx, p.Identity()) {
				break
			}
		}
	}
}

// remove removes a participant. It returns false if the server does not answer in time.
func (s *Supervisor) remove(ctx context.Context, identity string) (answers bool) {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	log := s.opts.Log.With().Str("participant", identity).Logger()
	if err := conn.Remove(ctx, s.opts.URL, s.opts.Keys, s.RoomName(), identity); err != nil {
		s.unremoved++
		s.removals.Warn(log, s.unremoved, err, "participant not removed")
		return ctx.Err() == nil
	}
	log.Info().Msg("participant removed: its link has expired")
	return true
}
