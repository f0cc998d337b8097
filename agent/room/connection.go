package room

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/interceptor"
	"github.com/rs/zerolog"

	"touchline/internal/backoff"
	"touchline/internal/redact"
	"touchline/internal/rescue"
)

const (
	joinTimeout = 5 * time.Second
	// resendable is the number of packets of a track that are kept for receivers that miss some, of 1.5 kB each: about as many
	// as the LiveKit server keeps, and half of the library's default.
	resendable = 512
	// reconnectGrace is how long the client library may try to reconnect by itself.
	reconnectGrace = 3 * time.Second
	// noticeAfter is how long it may try before the room counts as away.
	noticeAfter = 500 * time.Millisecond
	// echoTime is how long an abandoned reconnect of the library may still join with our identity and replace us.
	echoTime = 12 * time.Second
	// checkEvery is the polling interval of everything that has no callback.
	checkEvery = 100 * time.Millisecond
	// goodbyeTime bounds the wait for the server's answer to a leave request.
	goodbyeTime = 300 * time.Millisecond
	// closedRoomWait is the pause before joining a closed or deleted room again.
	closedRoomWait = 5 * time.Second
	// joiningAttribute is set only during a join on loopback.
	joiningAttribute = "touchline.joining"
	// firstWait and maxWait bound the wait between two attempts to join, unless the settings do.
	firstWait = 100 * time.Millisecond
	maxWait   = 15 * time.Second
)

var (
	// ErrReplaced ends a run: another participant joined with the same identity.
	ErrReplaced = errors.New("another participant joined with the same identity; give this bot an identity of its own")
	// ErrRemoved ends a run: the participant was removed from the room.
	ErrRemoved = errors.New("removed from the room by an administrator or by the server")
	// ErrRefused ends a run: the server refused the token of the first join.
	ErrRefused = errors.New("the LiveKit server refused the access token; check the API key, the secret, the room and this machine's clock")

	errStuck        = errors.New("the reconnect timed out")
	errBroke        = errors.New("the connection was lost while publishing")
	errReconnecting = errors.New("the connection was lost; reconnecting")
)

// callbacks are the hooks of a connection. Only its goroutine calls them.
type callbacks interface {
	// roomCallback returns the callbacks of the library, which calls them from its own goroutines.
	roomCallback(ses *session) *lksdk.RoomCallback
	// created is called before the join, to register handlers.
	created(ses *session)
	// joined is called after the join. An error ends the session.
	joined(ses *session) error
	// reconnected is called when the library reconnected by itself. An error ends the session.
	reconnected(ses *session) error
	// check is called every checkEvery while connected. An error ends the session.
	check(ses *session, now time.Time) error
	// left is called when the session is over, joined or not.
	left(ses *session)
}

// connection keeps a participant in a room: it joins, and joins again after each loss.
type connection struct {
	log        zerolog.Logger
	url        string
	token      func() (string, error)
	attributes func() map[string]string
	callbacks  callbacks
	// enter replaces join in tests.
	enter func(ctx context.Context, ses *session, token string) error
	// first and most bound the wait between two attempts; 0 for the defaults.
	first, most time.Duration
	// loopback keeps media sockets on 127.0.0.1.
	loopback bool
	// reports corrects our sender reports; nil leaves them as they are.
	reports *captureReports
	// onOutage receives the reason of each ended session, failed join and long reconnect. May be nil.
	onOutage func(err error)
	// onCrash receives a panic that ends the run, before the participant leaves the room. May be nil.
	onCrash func(err error)
	// crashed holds a panic of a callback.
	crashed chan error

	room  atomic.Pointer[lksdk.Room]
	joins atomic.Int64
	last  atomic.Bool // the present session is the last one
}

// run returns nil when ctx ends, else the reason why a retry cannot help.
func (c *connection) run(ctx context.Context) error {
	wait := backoff.Server(cmp.Or(c.first, firstWait), cmp.Or(c.most, maxWait))
	var abandoned time.Time // when a reconnect of the library was abandoned
	everIn := false
	for {
		began := time.Now()
		in, err := c.live(ctx)
		if _, crash := rescue.Of(err); crash {
			return err
		}
		if err == nil || ctx.Err() != nil || c.last.Load() {
			return nil //nolint:nilerr // errors of the shutdown do not matter
		}
		var stood time.Duration
		if in {
			everIn, stood = true, time.Since(began)
		}
		if errors.Is(err, errStuck) || errors.Is(err, errBroke) {
			abandoned = time.Now()
		}
		delay := wait.Lost(stood, time.Now(), rand.Float64())
		if errors.Is(err, ErrRefused) && !everIn {
			return err
		}
		if gone, ok := errors.AsType[*goneError](err); ok {
			switch r := gone.reason; {
			case r == livekit.DisconnectReason_DUPLICATE_IDENTITY && time.Since(abandoned) > echoTime:
				return ErrReplaced
			case r == livekit.DisconnectReason_PARTICIPANT_REMOVED:
				return ErrRemoved
			case r == livekit.DisconnectReason_ROOM_CLOSED, r == livekit.DisconnectReason_ROOM_DELETED:
				delay = max(delay, closedRoomWait)
			}
		}
		c.log.Warn().Err(err).Int64("retry_in_ms", delay.Milliseconds()).Msg("reconnecting to the room")
		if c.onOutage != nil {
			c.onOutage(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.crashed:
			return err
		case <-time.After(delay):
		}
		if c.last.Load() {
			return nil
		}
	}
}

// fail ends the run with a panic from another goroutine. Every callback of the
// library defers rescue.Guard(c.fail).
func (c *connection) fail(err error) {
	select {
	case c.crashed <- err:
	default:
	}
}

// guarded returns f with its panics reported to fail.
func (c *connection) guarded(f func()) func() {
	return func() {
		defer rescue.Guard(c.fail)
		f()
	}
}

// live runs one session. in reports whether the join succeeded.
func (c *connection) live(ctx context.Context) (in bool, err error) {
	token, err := c.token()
	if err != nil {
		return false, err
	}
	ses := newSession(ctx.Done())
	cb := c.callbacks.roomCallback(ses)
	cb.OnDisconnected = func() { ses.goneOnce.Do(func() { close(ses.gone) }) }
	cb.OnReconnecting = func() { ses.setReconnecting(true) }
	cb.OnReconnected = func() { ses.setReconnecting(false) }
	if c.loopback {
		// A change of our own attributes is the only callback during a join, after the peer connections are made and
		// before they open a socket. So each join, also the library's own, sets one that is removed afterwards.
		next := cb.OnAttributesChanged
		cb.OnAttributesChanged = func(changed map[string]string, p lksdk.Participant) {
			defer rescue.Guard(c.fail)
			ses.confineRoom(ses.room)
			next(changed, p)
		}
	}
	ses.room = lksdk.NewRoom(cb)
	c.callbacks.created(ses)
	defer func() {
		ses.over.Store(true)
		c.room.CompareAndSwap(ses.room, nil)
		c.callbacks.left(ses)
	}()

	enter := c.enter
	if enter == nil {
		enter = c.join
	}
	if err := enter(ctx, ses, token); err != nil {
		return false, err
	}
	ses.in.Store(true)
	// The library keeps its sockets open until Disconnect.
	defer ses.room.Disconnect()
	defer ses.goodbye()
	if c.loopback && !ses.isConfined() {
		return false, errUnconfined
	}
	if c.loopback {
		ses.room.LocalParticipant.SetAttributes(map[string]string{joiningAttribute: ""})
	}
	c.room.Store(ses.room)
	c.joins.Add(1)
	err = rescue.Call(func() error { return c.stay(ctx, ses) })
	if _, crash := rescue.Of(err); crash && c.onCrash != nil {
		c.onCrash(err)
	}
	return true, err
}

// stay returns nil when ctx ends, else the reason for the end of the session.
func (c *connection) stay(ctx context.Context, ses *session) error {
	if err := c.callbacks.joined(ses); err != nil {
		return err
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	reconnected, notified := 0, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.crashed:
			return err
		case <-ses.gone:
			return &goneError{ses.room.DisconnectReason()}
		case <-ses.wake:
		case <-tick.C:
		}
		reconnecting, since, times := ses.state()
		if reconnecting {
			if time.Since(since) > reconnectGrace {
				return errStuck
			}
			if time.Since(since) > noticeAfter && !notified && c.onOutage != nil {
				notified = true
				c.onOutage(errReconnecting)
			}
			continue
		}
		if times != reconnected {
			reconnected, notified = times, false
			if c.loopback {
				if !ses.isConfined() {
					return errUnconfined // made new ones without a callback
				}
				ses.room.LocalParticipant.SetAttributes(map[string]string{joiningAttribute: ""})
			}
			if err := c.callbacks.reconnected(ses); err != nil {
				return err
			}
		}
		if err := c.callbacks.check(ses, time.Now()); err != nil {
			return err
		}
	}
}

// join enters the room. The library ignores the context while it waits for the
// media connection, so an abandoned join ends within joinTimeout and leaves the
// room then.
func (c *connection) join(ctx context.Context, ses *session, token string) error {
	opts := []lksdk.ConnectOption{
		lksdk.WithAutoSubscribe(false),
		lksdk.WithConnectTimeout(joinTimeout),
		lksdk.WithRetransmitBufferSize(resendable),
		lksdk.WithLogger(libraryLogger(c.log, ses.quiet)),
	}
	if c.reports != nil {
		opts = append(opts, lksdk.WithInterceptors([]interceptor.Factory{c.reports}), lksdk.WithIncludeDefaultInterceptors(true))
	}
	if c.attributes != nil {
		opts = append(opts, lksdk.WithExtraAttributes(c.attributes()))
	}
	if c.loopback {
		opts = append(opts, lksdk.WithExtraAttributes(map[string]string{joiningAttribute: "1"}))
		// TURN is useless on one machine and opens a socket on every interface.
		opts = append(opts, lksdk.WithDisableTURN())
	}
	done := make(chan error, 1)
	go func() {
		jctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		err := rescue.Call(func() error { return ses.room.JoinWithContextAndToken(jctx, c.url, token, opts...) })
		if err != nil || ctx.Err() != nil {
			if err == nil {
				ses.goodbye()
			}
			ses.room.Disconnect()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return joinError(c.url, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unauthorized begins the client library's error for a server that answered with status 401. The library has no
// error type for it; an error that names an address never begins like this.
const unauthorized = "unauthorized: "

// joinError adds the server's address to the error of a join, and ErrRefused if the server refused the token.
func joinError(url string, err error) error {
	refused := strings.HasPrefix(err.Error(), unauthorized)
	err = fmt.Errorf("join the room at %s: %w", url, redact.Error(err))
	if refused {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
