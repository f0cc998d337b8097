package conn

import (
	"context"
	"errors"
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

// Session is the lifetime of one lksdk.Room.
type Session struct {
	Room *lksdk.Room
	Wake wake.Signal // makes the connection check at once

	encryption *Encryption // nil for none

	gone  chan struct{}
	ended <-chan struct{} // closed to end the run

	goneOnce sync.Once
	in       atomic.Bool // joined
	over     atomic.Bool // callbacks are ignored

	checking  sync.Mutex // guards the three below
	checked   time.Time  // last check
	questions int        // left to ask whether replaced is true
	replaced  bool

	mu                sync.Mutex
	reconnecting      bool
	reconnectingSince time.Time
	reconnects        int
	confined          [2]*webrtc.PeerConnection
	codecs            []string        // MIME types that the room lets participants publish, in lower case; none if unknown
	denied            map[string]bool // by track: its publisher does not let the bot subscribe
}

// NewSession returns a session of a run that ends with ended.
func NewSession(ended <-chan struct{}) *Session {
	return &Session{Wake: wake.New(), gone: make(chan struct{}), ended: ended, denied: map[string]bool{}, checked: time.Now()}
}

// End records that the server or the library ended the session.
func (ses *Session) End() { ses.goneOnce.Do(func() { close(ses.gone) }) }

// Over reports whether the callbacks of the library are to be ignored.
func (ses *Session) Over() bool { return ses.over.Load() }

// SetReconnecting records whether the library is reconnecting.
func (ses *Session) SetReconnecting(reconnecting bool) {
	ses.mu.Lock()
	if reconnecting && !ses.reconnecting {
		ses.reconnectingSince = time.Now()
	}
	if !reconnecting {
		ses.reconnects++
	}
	ses.reconnecting = reconnecting
	ses.mu.Unlock()
	ses.Wake.Set()
}

// state reports whether the library is reconnecting, since when, and how many reconnects succeeded.
func (ses *Session) state() (reconnecting bool, since time.Time, times int) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.reconnecting, ses.reconnectingSince, ses.reconnects
}

// quiet reports whether errors of the library are expected: it is joining, reconnecting or leaving.
func (ses *Session) quiet() bool {
	reconnecting, _, _ := ses.state()
	return reconnecting || !ses.in.Load() || ses.over.Load()
}

// Publish publishes track. It returns early when the session ends or the connection is lost, because the library would wait 10 s for
// an answer that may be lost. It declares the room's encryption, which is up to the writer of the track.
func (ses *Session) Publish(track *lksdk.LocalTrack, o *lksdk.TrackPublicationOptions) error {
	if ses.encryption != nil {
		o.Encryption = livekit.Encryption_GCM
	}
	done := make(chan error, 1)
	go func() {
		done <- rescue.Call(func() error {
			_, err := ses.Room.LocalParticipant.PublishTrack(track, o)
			return err
		})
	}()
	tick := time.NewTicker(CheckEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case err := <-done:
			return err
		case <-ses.gone:
			err = &goneError{ses.Room.DisconnectReason()}
		case <-ses.ended:
			err = context.Canceled
		case <-tick.C:
			if reconnecting, _, _ := ses.state(); !reconnecting {
				continue
			}
			err = errBroke
		}
		// The library waits for nothing but the answer. A made-up answer ends its goroutine.
		if engine := EngineOf(ses.Room); engine != nil {
			engine.OnLocalTrackPublished(&livekit.TrackPublishedResponse{Cid: track.ID(), Track: &livekit.TrackInfo{}})
			select {
			case <-done: //nolint:errcheck // the answer was made up
			case <-tick.C:
			}
		}
		return err
	}
}

// Ended reports whether an error of Publish means that the connection or the run has ended.
func Ended(err error) bool {
	_, gone := errors.AsType[*goneError](err)
	return gone || errors.Is(err, errBroke) || errors.Is(err, context.Canceled)
}

// goodbye waits for the delivery of the last data, sends a leave request and waits for its effect, each time up to goodbyeTime. The
// library sends a leave request too, but closes its connection at once: with unread data that is a TCP reset, which may discard the
// request, and then the server keeps the participant for 20 s.
func (ses *Session) goodbye() {
	reconnecting, _, _ := ses.state()
	select {
	case <-ses.gone:
		return
	default:
	}
	engine := EngineOf(ses.Room)
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
