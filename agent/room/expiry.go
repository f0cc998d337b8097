package room

import (
	"context"
	"time"

	"touchline/agent/room/conn"
	"touchline/agent/room/control"
)

const (
	// expiryEvery is the interval of the search for participants whose rights have ended, and of the exchange of revoked links with the
	// other commentators of the room. removeTime bounds a removal.
	expiryEvery = time.Second
	removeTime  = 5 * time.Second
	// removeWarnEvery is the interval of warnings about refused removals.
	removeWarnEvery = time.Minute
)

// endRights exchanges revoked links with the other commentators of the room and removes participants whose rights have ended, until ctx
// ends. A bot with a ready token may remove nobody; they keep no rights there either.
func (s *Supervisor) endRights(ctx context.Context) {
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
		links, now := s.opts.Keys.Links, time.Now()
		control.LearnRevoked(links, s.RoomName(), room, now)
		s.state.revoke(links.Shared(s.RoomName(), now))
		for _, p := range room.GetRemoteParticipants() {
			if why := s.opts.Control.Ended(p, now); why != nil && !s.remove(ctx, p.Identity(), why) {
				break
			}
		}
	}
}

// remove removes a participant. It returns false if the server does not answer in time.
func (s *Supervisor) remove(ctx context.Context, identity string, why error) (answers bool) {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	log := s.opts.Log.With().Str("participant", identity).Logger()
	if err := conn.Remove(ctx, s.opts.URL, s.opts.Keys, s.RoomName(), identity); err != nil {
		s.removals.Warn(log, s.unremoved.Add(1), err, "participant not removed")
		return ctx.Err() == nil
	}
	s.removed.Add(1)
	log.Info().AnErr("reason", why).Msg("participant removed")
	return true
}
