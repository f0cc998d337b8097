package watch

import (
	"github.com/livekit/protocol/livekit"

	"touchline/media"
)

// Candidate is a track for Choose, in a test's words.
type Candidate struct {
	Identity, SID string
	Agent, Muted  bool
	Screen        bool
	Encrypted     bool
}

// Choose returns the SID of the track that would be watched; the order is that of first sight.
func Choose(all []Candidate, watch media.WatchConfig, present string) string {
	list := make([]candidate, len(all))
	for i, c := range all {
		locked := ""
		if c.Encrypted {
			locked = "no key"
		}
		list[i] = candidate{
			identity: c.Identity, agent: c.Agent, muted: c.Muted, locked: locked, sid: c.SID, order: uint64(i),
			source: livekit.TrackSource_CAMERA,
		}
		if c.Screen {
			list[i].source = livekit.TrackSource_SCREEN_SHARE
		}
	}
	picked, _ := choose(list, watch, present)
	return picked.sid
}
