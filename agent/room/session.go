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
	in       atomic.Bool // joined
	over     atomic.Bool // callbacks are ignored

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

// state reports whether the library is reconnecting, since when, and how many reconnects succeeded.
func (ses *session) state() (reconnecting bool, since time.Time, times int) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.reconnecting, ses.reconnectingSince, ses.reconnects
}

// quiet reports whether errors of the library are expected: it is joining, reconnecting or leaving.
func (ses *session) quiet() bool {
	reconnecting, _, _ := ses.state()
	return reconnecting || !ses.in.Load() || ses.over.Load()
}

// publish publishes track. It returns early when the session ends or the
// connection is lost: the library would wait 10 s for an answer that may be lost.
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
		// The library waits for the answer alone. This one ends its goroutine.
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

// goodbye waits for the delivery of the last data, sends a leave request and waits for the server to act
// on it, each time up to goodbyeTime. The library sends one as well, but closes its connection at once: with
// unread data that is a TCP reset, which may discard the request, and then the
// server keeps the participant for 20 s.
func (ses *session) goodbye() {
	reconnecting, _, _ := ses.state()
	select {
	case <-ses.gone:
		return
	default:
	}
	engine := engineOf(ses.room)
	if reconnecting || engine == nil {
		return // not connected
	}
	if dc := engine.GetDataChannel(livekit.DataPacket_RELIABLE); dc != nil {
		sent := wake.New()
		dc.OnBufferedAmountLow(sent.Set) // the threshold is 0
		if dc.BufferedAmount() > 0 {
			select {
			case <-sent:
			case <-ses.gone:
			case <-time.After(goodbyeTime):
			}
		}
	}
	if engine.SendLeaveWithReason(livekit.DisconnectReason_CLIENT_INITIATED) != nil {
		return // not connected
	}
	select {
	case <-ses.gone:
	case <-time.After(goodbyeTime):
	}
}

// goneError is the reason why the server or the library ended a session.
type goneError struct{ reason livekit.DisconnectReason }

func (e *goneError) Error() string {
	return "disconnected: " + strings.ToLower(strings.ReplaceAll(e.reason.String(), "_", " "))
}
