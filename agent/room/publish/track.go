package publish

import (
	"sync"
	"sync/atomic"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"

	"touchline/agent/room/conn"
)

// bindGrace is how long a published track may take until it accepts packets.
const bindGrace = 5 * time.Second

// OutStats has the counters of a published track since the start.
type OutStats struct {
	Packets uint64
	Frames  uint64 // of the delayed picture
	Dropped uint64 // packets of the voice or frames of the picture while the track was not published
	Errors  uint64 // failed writes
}

// outCounters are the counters of OutStats.
type outCounters struct {
	packets, frames, dropped, errors atomic.Uint64
}

// Stats returns the counters.
func (c *outCounters) Stats() OutStats {
	return OutStats{Packets: c.packets.Load(), Frames: c.frames.Load(), Dropped: c.dropped.Load(), Errors: c.errors.Load()}
}

// localTrack is a published track of the present connection; inner is nil between connections.
type localTrack struct {
	outCounters
	warnings conn.WarnLimiter
	// encryption of what is written; nil for none.
	encryption *conn.Encryption

	mu          sync.RWMutex
	inner       *lksdk.LocalTrack
	room        *lksdk.Room
	publishedAt time.Time
}

// set stores a published track.
func (t *localTrack) set(inner *lksdk.LocalTrack, room *lksdk.Room) {
	t.mu.Lock()
	t.inner, t.room, t.publishedAt = inner, room, time.Now()
	t.mu.Unlock()
}

// Drop removes the track of an ended connection.
func (t *localTrack) Drop() { t.set(nil, nil) }

// Republished records that the library has republished the track after a reconnect.
func (t *localTrack) Republished() {
	t.mu.Lock()
	t.publishedAt = time.Now()
	t.mu.Unlock()
}

// published returns the track, its room and the time of publishing; a nil track without one.
func (t *localTrack) published() (track *lksdk.LocalTrack, room *lksdk.Room, at time.Time) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.inner, t.room, t.publishedAt
}

// bound returns the track if it accepts packets, otherwise nil.
func (t *localTrack) bound() *lksdk.LocalTrack {
	if track, _, _ := t.published(); track != nil && track.IsBound() {
		return track
	}
	return nil
}

// Lost reports whether a published track disappeared or never accepted packets.
func (t *localTrack) Lost(now time.Time) bool {
	track, _, at := t.published()
	return track != nil && now.Sub(at) >= bindGrace && (!track.IsBound() || t.SID() == "")
}

// SID returns the track's present id at the server; "" while it is not published. It changes with every reconnect.
func (t *localTrack) SID() string {
	track, room, _ := t.published()
	if p := publicationOf(room, track); p != nil {
		return p.SID()
	}
	return ""
}

// publicationOf returns the publication of a track, which the library may have republished under a new id.
func publicationOf(room *lksdk.Room, track *lksdk.LocalTrack) *lksdk.LocalTrackPublication {
	if room == nil || track == nil {
		return nil
	}
	for _, p := range room.LocalParticipant.TrackPublications() {
		if lp, ok := p.(*lksdk.LocalTrackPublication); ok && lp.TrackLocal() == webrtc.TrackLocal(track) {
			return lp
		}
	}
	return nil
}
