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
	"touchline/internal/wake"
)

// session is the life of one lksdk.Room.
type session struct {
	room  *lksdk.Room
	wake  wake.Signal
	gone  chan struct{}
	ended <-chan struct{} // the run is to end

	goneOnce sync.Once
	in       atomic.Bool // it has joined
	over     atomic.Bool // no callback counts any more

	mu                sync.Mutex
	reconnecting      bool
	reconnectingSince time.Time
	reconnects        int
	confined          [2]*webrtc.PeerConnection
}

func newSession(ended <-chan struct{}) *session {
	return &session{wake: wake.New(), gone: make(chan struct{}), ended: ended}
}

func (ses *session) setReconnecting(reconnecting bool) {
	ses.mu.Lock()
	if reconnecting && !ses.reconnecting {
		ses.reconnectingSince = time.Now()
	}
	if !reconnecting {
		ses.reconnects++
	}
	ses.reconnecting = reconnecting
	ses.mu.Unlock()
	ses.wake.Set()
}

// state tells whether the library is reconnecting, since when, and how often it said that it succeeded.
func (ses *session) state() (reconnecting bool, since time.Time, times int) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.reconnecting, ses.reconnectingSince, ses.reconnects
}

// quiet reports whether the library's errors are expected: it joins, reconnects or leaves.
func (ses *session) quiet() bool {
	reconnecting, _, _ := ses.state()
	return reconnecting || !ses.in.Load() || ses.over.Load()
}

// publish publishes track, and returns early when the session is over or the
// connection breaks: the answer may be lost then, and the library would wait
// for it for 10 s.
func (ses *session) publish(track *lksdk.LocalTrack, o *lksdk.TrackPublicationOptions) error {
	done := make(chan error, 1)
	go func() {
		done <- rescue.Call(func() error {
			_, err := ses.room.LocalParticipant.PublishTrack(track, o)
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
		case <-ses.gone:
			err = &goneError{ses.room.DisconnectReason()}
		case <-ses.ended:
			err = context.Canceled
		case <-tick.C:
			if reconnecting, _, _ := ses.state(); !reconnecting {
				continue
			}
			err = errBroke
		}
		// The library does not look at anything but the answer. So here is one, and the goroutine ends.
		if engine := engineOf(ses.room); engine != nil {
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
func (ses *session) goodbye() {
	reconnecting, _, _ := ses.state()
	select {
	case <-ses.gone:
		return
	default:
	}
	engine := engineOf(ses.room)
	if reconnecting || engine == nil || engine.SendLeaveWithReason(livekit.DisconnectReason_CLIENT_INITIATED) != nil {
		return // there is nobody to tell
	}
	timer := time.NewTimer(goodbyeTime)
	defer timer.Stop()
	select {
	case <-ses.gone: // it has taken us off
	case <-timer.C:
	}
}

// goneError says why the server or the library ended a session.
type goneError struct{ reason livekit.DisconnectReason }

func (e *goneError) Error() string {
	return "disconnected: " + strings.ToLower(strings.ReplaceAll(e.reason.String(), "_", " "))
}
