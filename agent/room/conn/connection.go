package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
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
	// resendable is the number of packets of a track, of 1.5 kB each, that are stored for retransmission: about as many as the
	// LiveKit server stores, and half of the library's default.
	resendable = 512
	// reconnectGrace is how long the client library may try to reconnect by itself.
	reconnectGrace = 3 * time.Second
	// noticeAfter is how long it may try before OnOutage is called.
	noticeAfter = 500 * time.Millisecond
	// stoodStill is the time between two checks from which this process stood still. A join may add joinTimeout for the signal
	// connection and for the media connection.
	stoodStill = 5 * time.Second
	// maxQuestions bounds the questions after that whether the place is taken; questionPause is between two.
	maxQuestions  = 10
	questionPause = 500 * time.Millisecond
	// echoTime is how long an abandoned join may still take place and replace us, because it has our identity.
	echoTime = 12 * time.Second
	// CheckEvery is the polling interval of everything that has no callback.
	CheckEvery = 100 * time.Millisecond
	// goodbyeTime bounds the wait for the server's answer to a leave request.
	goodbyeTime = 300 * time.Millisecond
	// closedRoomWait is the pause before joining a closed or deleted room again.
	closedRoomWait = 5 * time.Second
	// joiningAttribute is set only during a join on loopback.
	joiningAttribute = "touchline.joining"
	// firstWait and maxWait are the defaults of Options.First and Options.Most.
	firstWait = 100 * time.Millisecond
	maxWait   = 15 * time.Second
)

var (
	// ErrReplaced ends a run: another participant joined with the same identity.
	ErrReplaced = errors.New("another participant joined with the same identity; give this bot an identity of its own")
	// ErrRemoved ends a run: the participant was removed from the room.
	ErrRemoved = errors.New("removed from the room by an administrator or by the server")
	// ErrRefused ends a run: the server refused the token of the first join, or a ready token that has expired.
	ErrRefused = errors.New("the LiveKit server refused the access token; check the API key, the secret, the room and this machine's clock")

	errStuck        = errors.New("the reconnect timed out")
	errBroke        = errors.New("the connection was lost while publishing")
	errReconnecting = errors.New("the connection was lost; reconnecting")
)

// Callbacks are the hooks of a Connection. Only its goroutine calls them.
type Callbacks interface {
	// RoomCallback returns the callbacks of the library, which calls them from its own goroutines.
	RoomCallback(ses *Session) *lksdk.RoomCallback
	// Created is called before the join, to register handlers.
	Created(ses *Session)
	// Joined is called after the join. An error ends the session.
	Joined(ses *Session) error
	// Reconnected is called when the library reconnected by itself. An error ends the session.
	Reconnected(ses *Session) error
	// Check is called every CheckEvery while connected. An error ends the session.
	Check(ses *Session, now time.Time) error
	// Left is called when the session is over, joined or not.
	Left(ses *Session)
}

// Options of a Connection.
type Options struct {
	Log zerolog.Logger
	// URL of the server, and the source of the tokens to join with.
	URL   string
	Token func() (string, error)
	// Expires is the end of a ready token; zero for tokens that are made for each join.
	Expires time.Time
	// Attributes returns the attributes to join with. May be nil.
	Attributes func() map[string]string
	Callbacks  Callbacks
	// Enter replaces the join in tests.
	Enter func(ctx context.Context, ses *Session, token string) error
	// Replaced reports whether another participant has taken the place of the one with a SID. It is called after this process stood
	// still. May be nil.
	Replaced func(ctx context.Context, sid string) (bool, error)
	// First and Most bound the wait between two attempts; 0 for the defaults.
	First, Most time.Duration
	// Loopback keeps media sockets on 127.0.0.1.
	Loopback bool
	// Encryption of the room; nil for none.
	Encryption *Encryption
	// Reports corrects the sender reports of published tracks; nil leaves them unchanged.
	Reports interceptor.Factory
	// OnOutage receives the reason of each ended session, failed join and long reconnect. May be nil.
	OnOutage func(err error)
	// OnCrash receives a panic that ends the run, before the participant leaves the room. May be nil.
	OnCrash func(err error)
}

// Connection keeps a participant in a room. It joins, and joins again after each loss of the connection.
type Connection struct {
	Options

	crashed chan error              // holds a panic of a callback
	session atomic.Pointer[Session] // the present one, joined
	joins   atomic.Int64
	last    atomic.Bool // the present session is the last one
}

// New returns a Connection; the caller starts Run.
func New(o Options) *Connection { return &Connection{Options: o, crashed: make(chan error, 1)} }

// Room returns the present room, nil between two sessions. Do not keep it.
func (c *Connection) Room() *lksdk.Room {
	if ses := c.session.Load(); ses != nil {
		return ses.Room
	}
	return nil
}

// Wake makes the present session check at once.
func (c *Connection) Wake() {
	if ses := c.session.Load(); ses != nil {
		ses.Wake.Set()
	}
}

// Enables is Session.Enables of the present session; true without one.
func (c *Connection) Enables(mime string) bool {
	ses := c.session.Load()
	return ses == nil || ses.Enables(mime)
}

// Joins returns the number of joins since the start.
func (c *Connection) Joins() int64 { return c.joins.Load() }

// StayOut disables reconnecting: Run returns when the present session ends.
func (c *Connection) StayOut() { c.last.Store(true) }

// Run stays in the room. It returns nil when ctx ends, or the reason why a retry cannot help.
func (c *Connection) Run(ctx context.Context) error {
	wait := backoff.Server(cmp.Or(c.First, firstWait), cmp.Or(c.Most, maxWait))
	var abandoned time.Time // when a join or a reconnect of the library was abandoned
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
		echo := time.Since(abandoned) <= echoTime // our own abandoned join may have taken the place
		if !in || errors.Is(err, errStuck) || errors.Is(err, errBroke) {
			abandoned = time.Now()
		}
		delay := wait.Lost(stood, time.Now(), rand.Float64())
		expired := !c.Expires.IsZero() && time.Now().After(c.Expires)
		switch {
		case errors.Is(err, ErrRefused) && expired:
			return fmt.Errorf("the access token expired at %s; start again with a new one: %w", c.Expires.UTC().Format(time.RFC3339), err)
		case errors.Is(err, ErrRefused) && !everIn, errors.Is(err, ErrReplaced) && !echo:
			return err
		}
		if gone, ok := errors.AsType[*goneError](err); ok {
			switch r := gone.reason; {
			case r == livekit.DisconnectReason_DUPLICATE_IDENTITY && !echo:
				return ErrReplaced
			case r == livekit.DisconnectReason_PARTICIPANT_REMOVED:
				return ErrRemoved
			case r == livekit.DisconnectReason_ROOM_CLOSED, r == livekit.DisconnectReason_ROOM_DELETED:
				delay = max(delay, closedRoomWait)
			}
		}
		c.Log.Warn().Err(err).Int64("retry_in_ms", delay.Milliseconds()).Msg("reconnecting to the room")
		if c.OnOutage != nil {
			c.OnOutage(err)
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

// Fail ends the run with a panic from another goroutine. Every callback of the
// library defers rescue.Guard(c.Fail).
func (c *Connection) Fail(err error) {
	select {
	case c.crashed <- err:
	default:
	}
}

// Guarded returns f with its panics reported to Fail.
func (c *Connection) Guarded(f func()) func() {
	return func() {
		defer rescue.Guard(c.Fail)
		f()
	}
}

// live runs one session. in reports whether the join succeeded.
func (c *Connection) live(ctx context.Context) (in bool, err error) {
	token, err := c.Token()
	if err != nil {
		return false, err
	}
	ses := NewSession(ctx.Done())
	ses.encryption = c.Encryption
	cb := c.Callbacks.RoomCallback(ses)
	cb.OnDisconnected = ses.End
	cb.OnReconnecting = func() { c.reconnecting(ctx, ses) }
	cb.OnReconnected = func() { ses.SetReconnecting(false) }
	if c.Loopback {
		// A change of the participant's own attributes is the only callback during a join, after the peer connections are
		// made and before they open a socket. So each join, including the library's own, sets an attribute and removes it
		// afterwards.
		next := cb.OnAttributesChanged
		cb.OnAttributesChanged = func(changed map[string]string, p lksdk.Participant) {
			defer rescue.Guard(c.Fail)
			ses.confineRoom(ses.Room)
			next(changed, p)
		}
	}
	ses.Room = lksdk.NewRoom(cb)
	ses.tapSignals(ses.Room, c.Fail)
	c.Callbacks.Created(ses)
	left := sync.OnceFunc(func() {
		ses.over.Store(true)
		c.session.CompareAndSwap(ses, nil)
		c.Callbacks.Left(ses)
	})
	defer left()

	enter := c.Enter
	if enter == nil {
		enter = c.join
	}
	if err := enter(ctx, ses, token); err != nil {
		return false, c.orReplaced(ctx, ses, err)
	}
	c.replaced(ctx, ses) // while the time of a join is none in which this process stood still
	ses.in.Store(true)
	// The library keeps its sockets open until Disconnect.
	defer ses.Room.Disconnect()
	defer ses.goodbye()
	defer left() // before the server reports that the participant left
	if c.Loopback && !ses.isConfined() {
		return false, errUnconfined
	}
	if c.Loopback {
		ses.Room.LocalParticipant.SetAttributes(map[string]string{joiningAttribute: ""})
	}
	c.session.Store(ses)
	c.joins.Add(1)
	err = rescue.Call(func() error { return c.stay(ctx, ses) })
	if _, crash := rescue.Of(err); crash && c.OnCrash != nil {
		c.OnCrash(err)
	}
	return true, c.orReplaced(ctx, ses, err)
}

// orReplaced returns the reason for the end of a session, or ErrReplaced, with which there is no other one.
func (c *Connection) orReplaced(ctx context.Context, ses *Session, err error) error {
	if _, crash := rescue.Of(err); err != nil && !crash && c.mustLeave(ctx, ses) {
		return ErrReplaced
	}
	return err
}

// replaced reports whether another participant has taken our place while this process stood still. sure is false if the server did not
// answer and the next call will ask again.
func (c *Connection) replaced(ctx context.Context, ses *Session) (replaced, sure bool) {
	ses.checking.Lock()
	defer ses.checking.Unlock()
	sid, most := ses.Room.LocalParticipant.SID(), stoodStill
	if !ses.in.Load() {
		most += 2 * joinTimeout
	}
	if time.Since(ses.checked) > most && c.Replaced != nil && (sid != "" || ses.in.Load()) {
		ses.questions = maxQuestions
	}
	if ses.questions > 0 {
		replaced, err := c.Replaced(ctx, sid)
		ses.questions--
		if err == nil {
			ses.replaced, ses.questions = replaced, 0
		} else {
			c.Log.Debug().Err(err).Msg("not known whether another agent has this place")
		}
	}
	ses.checked = time.Now()
	return ses.replaced, ses.questions == 0
}

// mustLeave is replaced before another join, which would push a successor out: it waits for the answer.
func (c *Connection) mustLeave(ctx context.Context, ses *Session) bool {
	for {
		if replaced, sure := c.replaced(ctx, ses); sure {
			return replaced
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(questionPause):
		}
	}
}

// reconnecting is called by the goroutine of the library that is about to reconnect.
func (c *Connection) reconnecting(ctx context.Context, ses *Session) {
	if c.mustLeave(ctx, ses) {
		runtime.Goexit() // it would join with our identity
	}
	ses.SetReconnecting(true)
}

// stay returns nil when ctx ends, else the reason for the end of the session.
func (c *Connection) stay(ctx context.Context, ses *Session) error {
	if err := c.Callbacks.Joined(ses); err != nil {
		return err
	}
	tick := time.NewTicker(CheckEvery)
	defer tick.Stop()
	reconnected, notified := 0, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.crashed:
			return err
		case <-ses.gone:
			return &goneError{ses.Room.DisconnectReason()}
		case <-ses.Wake:
		case <-tick.C:
		}
		reconnecting, since, times := ses.state()
		if reconnecting {
			if time.Since(since) > reconnectGrace {
				return errStuck
			}
			if time.Since(since) > noticeAfter && !notified && c.OnOutage != nil {
				notified = true
				c.OnOutage(errReconnecting)
			}
			continue
		}
		// Not while reconnecting, when the server may know a new SID before the library does.
		if replaced, _ := c.replaced(ctx, ses); replaced {
			return ErrReplaced
		}
		if times != reconnected {
			reconnected, notified = times, false
			if c.Loopback {
				if !ses.isConfined() {
					return errUnconfined // the library made new connections without a callback
				}
				ses.Room.LocalParticipant.SetAttributes(map[string]string{joiningAttribute: ""})
			}
			if err := c.Callbacks.Reconnected(ses); err != nil {
				return err
			}
		}
		if err := c.Callbacks.Check(ses, time.Now()); err != nil {
			return err
		}
	}
}

// join enters the room. The library ignores the context while it waits for the media connection, so an abandoned join ends within
// joinTimeout, and then leaves the room.
func (c *Connection) join(ctx context.Context, ses *Session, token string) error {
	opts := []lksdk.ConnectOption{
		lksdk.WithAutoSubscribe(false),
		lksdk.WithConnectTimeout(joinTimeout),
		lksdk.WithRetransmitBufferSize(resendable),
		lksdk.WithLogger(libraryLogger(c.Log, ses.quiet)),
	}
	if c.Encryption != nil {
		opts = append(opts, lksdk.WithDataEncryption(&lksdk.EncryptionOptions{KeyProvider: c.Encryption.key}))
	}
	if c.Reports != nil {
		opts = append(opts, lksdk.WithInterceptors([]interceptor.Factory{c.Reports}), lksdk.WithIncludeDefaultInterceptors(true))
	}
	if c.Attributes != nil {
		opts = append(opts, lksdk.WithExtraAttributes(c.Attributes()))
	}
	if c.Loopback {
		opts = append(opts, lksdk.WithExtraAttributes(map[string]string{joiningAttribute: "1"}))
		// TURN is useless on one machine and opens a socket on every interface.
		opts = append(opts, lksdk.WithDisableTURN())
	}
	done := make(chan error, 1)
	go func() {
		jctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		err := rescue.Call(func() error { return ses.Room.JoinWithContextAndToken(jctx, c.URL, token, opts...) })
		if err != nil || ctx.Err() != nil {
			if err == nil {
				ses.goodbye()
			}
			ses.Room.Disconnect()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return joinError(c.URL, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unauthorized is the prefix of the client library's error for status 401, for which it has no error type. An error about an address
// never has this prefix.
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
