package room

import (
	"cmp"
	"slices"

	"github.com/livekit/protocol/livekit"

	"touchline/media"
)

// candidate is a video track that could be watched.
type candidate struct {
	identity string
	name     string
	agent    bool // its participant is of kind AGENT
	source   livekit.TrackSource
	sid      string
	muted    bool
	order    uint64 // of first sight
}

// choose picks the track to watch: never an agent's, what the settings name,
// camera before screen, and of equals the one seen first. The present one
// stays while it still qualifies. ok is false when there is none.
func choose(all []candidate, watch media.WatchConfig, present string) (candidate, bool) {
	fit := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		switch {
		case c.agent:
			return true
		case watch.Identity != "" && c.identity != watch.Identity:
			return true
		case watch.Source == "camera":
			return c.source != livekit.TrackSource_CAMERA
		case watch.Source == "screen_share":
			return c.source != livekit.TrackSource_SCREEN_SHARE
		}
		return false
	})
	if len(fit) == 0 {
		return candidate{}, false
	}
	if i := slices.IndexFunc(fit, func(c candidate) bool { return c.sid == present }); i >= 0 {
		return fit[i], true
	}
	return slices.MinFunc(fit, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(sourceRank(a.source), sourceRank(b.source)),
			cmp.Compare(boolRank(a.muted), boolRank(b.muted)),
			cmp.Compare(a.order, b.order),
			cmp.Compare(a.sid, b.sid),
		)
	}), true
}

func sourceRank(s livekit.TrackSource) int {
	order := []livekit.TrackSource{livekit.TrackSource_CAMERA, livekit.TrackSource_SCREEN_SHARE}
	return slices.Index(append(order, s), s)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}
