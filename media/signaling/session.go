package signaling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/internal/limit"
	"touchline/internal/rescue"
)

// SessionOptions make a Session.
type SessionOptions struct {
	Request

	Offer *Offer
	// Media and Interceptors of the connection; see Offer.Engines.
	Media        *webrtc.MediaEngine
	Interceptors *interceptor.Registry
	// Prepare is called with the new session before the negotiation.
	Prepare func(*Session) error
	// Enter is called after the negotiation; an error refuses the session. May be nil.
	Enter func() error
	// Run is called when the connection is established, and returns when the session is over.
	Run func()
	// Left is called at the end, after the connection is closed and all functions of Session.Go have returned. May be nil.
	Left func(reason string)
}

// Session is the WebRTC session of one client.
type Session struct {
	Room string
	// PC is the connection, which the session negotiates and closes.
	PC *webrtc.PeerConnection
	// Packets counts the RTP packets that the session's user sent or received.
	Packets atomic.Uint64
	Log     zerolog.Logger

	id     string
	server *Server
	opts   SessionOptions
	peer   *peer
	seat   *limit.Seat

	over      context.Context //nolint:containedctx // the session's own life
	cancel    context.CancelCauseFunc
	connected chan struct{}
	done      chan struct{}

	mu     sync.Mutex
	closed bool
	parts  sync.WaitGroup
}

// newSession answers an offer. The session does not run yet. A panic is an error, so that its place is given back.
func (s *Server) newSession(ctx context.Context, port *port, o SessionOptions) (*Session, error) {
	x := &Session{
		Room: o.Room, Log: s.opts.Log.With().Str("room", o.Room).Logger(), id: newID(), server: s, opts: o,
		connected: make(chan struct{}), done: make(chan struct{}),
	}
	x.over, x.cancel = context.WithCancelCause(context.Background())
	err := rescue.Call(func() error { return x.answer(ctx, port) })
	if err == nil {
		return x, nil
	}
	x.cancel(err)
	if x.PC != nil {
		g, _ := rescue.WithContext(x.over)
		g.Fail(err)
		g.Go(x.PC.GracefulClose)
		_ = g.Wait() // a short time only after a panic, which may have left the connection locked
	}
	if _, ok := rescue.Of(err); ok {
		x.Log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg(s.protocol + " session crashed at its start")
		err = errCrashed
	}
	return nil, err
}

// answer makes the connection and negotiates.
func (x *Session) answer(ctx context.Context, port *port) (err error) {
	o := x.opts
	if x.PC, err = port.connection(o.Media, o.Interceptors); err != nil {
		return err
	}
	if err := o.Prepare(x); err != nil {
		return err
	}
	connected := sync.OnceFunc(func() { close(x.connected) })
	x.PC.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			connected()
		case webrtc.PeerConnectionStateFailed:
			x.Cancel("the connection was lost")
		case webrtc.PeerConnectionStateClosed:
			x.Cancel("the other side closed the connection")
		default:
		}
	})
	local := o.From.IsLoopback()
	if x.peer, err = newPeer(ctx, x.PC, o.Offer, local, reach(port.opts, ownAddresses(), local)); err != nil {
		return err
	}
	if o.Enter != nil {
		return o.Enter()
	}
	return nil
}

// Over returns a channel that is closed when the session has to end.
func (x *Session) Over() <-chan struct{} { return x.over.Done() }

// Cancel ends the session, without waiting for it.
func (x *Session) Cancel(reason string) { x.cancel(errors.New(reason)) }

// End ends the session and returns when it is over.
func (x *Session) End(reason string) {
	x.Cancel(reason)
	<-x.done
}

// Crashed ends the session after a panic in its code.
func (x *Session) Crashed(err error) {
	x.Log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg(x.server.protocol + " session crashed")
	x.Cancel("internal error")
}

// Go runs f in a goroutine of the session, which waits for it. f returns when the
// session is over or its connection is closed. A panic ends the session.
func (x *Session) Go(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.parts.Go(func() {
		defer rescue.Guard(x.Crashed)
		f()
	})
}

// run is the session's life after the answer was made.
func (x *Session) run() {
	defer close(x.done)
	defer x.server.forget(x)
	defer rescue.Guard(x.Crashed)
	defer x.leave()
	limit := time.NewTimer(x.server.opts.ConnectTime)
	defer limit.Stop()
	select {
	case <-x.connected:
		x.opts.Run()
	case <-limit.C:
		x.Cancel(fmt.Sprintf("no connection within %v; is UDP port %d open?", x.server.opts.ConnectTime, x.server.UDPPort()))
	case <-x.Over():
	}
	<-x.Over()
}

// leave releases everything when the session is over or run panicked.
func (x *Session) leave() {
	x.Cancel("internal error") // has no effect unless run panicked
	reason := context.Cause(x.over).Error()
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	if err := x.peer.close(); err != nil {
		x.Log.Debug().Err(err).Msg("closing a " + x.server.protocol + " session failed")
	}
	x.parts.Wait()
	if x.opts.Left != nil {
		x.opts.Left(reason)
	}
	x.Log.Info().Str("reason", reason).Uint64("packets", x.Packets.Load()).Msg(x.server.protocol + " session over")
}
