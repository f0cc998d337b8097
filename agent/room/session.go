package room

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"

	"touchline/internal/rescue"
)

// visit is the life of one lksdk.Room.
type visit struct {
	room  *lksdk.Room
	wake  chan struct{}
	gone  chan struct{}
	ended <-chan struct{} // the run is to end

	goneOnce sync.Once
	in       atomic.Bool // it has joined
	over     atomic.Bool // no callback counts any more

	mu        sync.Mutex
	mending   bool
	mendingAt time.Time
	mendings  int
	confined  [2]*webrtc.PeerConnection
}

func newVisit(ended <-chan struct{}) *visit {
	return &visit{wake: make(chan struct{}, 1), gone: make(chan struct{}), ended: ended}
}

// poke has the keeper look at once.
func (v *visit) poke() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *visit) setMending(mending bool) {
	v.mu.Lock()
	if mending && !v.mending {
		v.mendingAt = time.Now()
	}
	if !mending {
		v.mendings++
	}
	v.mending = mending
	v.mu.Unlock()
	v.poke()
}

// state tells whether the library is reconnecting, since when, and how often it said that it succeeded.
func (v *visit) state() (mending bool, since time.Time, times int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mending, v.mendingAt, v.mendings
}

// quiet reports whether the library's errors are expected: it joins, reconnects or leaves.
func (v *visit) quiet() bool {
	mending, _, _ := v.state()
	return mending || !v.in.Load() || v.over.Load()
}

// publish publishes track, and returns early when the visit is over or the
// connection breaks: the answer may be lost then, and the library would wait
// for it for 10 s.
func (v *visit) publish(track *lksdk.LocalTrack, o *lksdk.TrackPublicationOptions) error {
	done := make(chan error, 1)
	go func() {
		done <- rescue.Call(func() error {
			_, err := v.room.LocalParticipant.PublishTrack(track, o)
			return err
		})
	}()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case err := <-done:
			return err
		case <-v.gone:
			err = &goneError{v.room.DisconnectReason()}
		case <-v.ended:
			err = context.Canceled
		case <-tick.C:
			if mending, _, _ := v.state(); !mending {
				continue
			}
			err = errBroke
		}
		// The library does not look at anything but the answer. So here is one, and the goroutine ends.
		if engine := engineOf(v.room); engine != nil {
			engine.OnLocalTrackPublished(&livekit.TrackPublishedResponse{Cid: track.ID(), Track: &livekit.TrackInfo{}})
			select {
			case <-done: //nolint:errcheck // the answer was ours
			case <-tick.C:
			}
		}
		return err
	}
}

// goodbye leaves the room and waits for a moment until the server has heard it.
// The library says it too, but closes its connection right behind: what the
// server has sent meanwhile and nobody has read makes that a reset, by which a
// goodbye that was not read yet is lost, and the participant stays for 20 s.
func (v *visit) goodbye() {
	mending, _, _ := v.state()
	select {
	case <-v.gone:
		return
	default:
	}
	engine := engineOf(v.room)
	if mending || engine == nil || engine.SendLeaveWithReason(livekit.DisconnectReason_CLIENT_INITIATED) != nil {
		return // there is nobody to tell
	}
	timer := time.NewTimer(goodbyeTime)
	defer timer.Stop()
	select {
	case <-v.gone: // it has taken us off
	case <-timer.C:
	}
}

// goneError says why the server or the library ended a visit.
type goneError struct{ reason livekit.DisconnectReason }

func (e *goneError) Error() string {
	return "disconnected: " + strings.ToLower(strings.ReplaceAll(e.reason.String(), "_", " "))
}
