package room

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/interceptor"
	"github.com/rs/zerolog"

	"touchline/internal/redact"
	"touchline/internal/rescue"
)

const (
	joinTimeout = 5 * time.Second
	// reconnectGrace is how long the client library may try to mend a connection by itself.
	reconnectGrace = 3 * time.Second
	// mendingTold is how long it may try before the room counts as away.
	mendingTold = 500 * time.Millisecond
	// echoTime is how long after giving up on a connection that was mending itself its ghost may still join
	// under our identity and throw us out.
	echoTime = 12 * time.Second
	// checkEvery is the rhythm of everything that is looked at rather than told.
	checkEvery = 100 * time.Millisecond
	// goodbyeTime bounds the wait for the server's answer to our goodbye.
	goodbyeTime = 300 * time.Millisecond
	// closedRoomWait is the pause before joining a room again that was closed or deleted.
	closedRoomWait = 5 * time.Second
	// joiningAttribute is there only during a join that is kept on loopback.
	joiningAttribute = "touchline.joining"
)

var (
	// ErrReplaced ends a run: somebody joined with the same identity.
	ErrReplaced = errors.New("another participant joined with our identity; give this bot one of its own")
	// ErrRemoved ends a run: the bot was put out of the room.
	ErrRemoved = errors.New("removed from the room by an administrator or by the server")
	// ErrRefused ends a run: the server did not accept the first token.
	ErrRefused = errors.New("the LiveKit server refused the access token; check key, secret, room and the clock")

	errStuck   = errors.New("the connection did not mend itself in time")
	errBroke   = errors.New("the connection broke meanwhile")
	errMending = errors.New("the connection broke, and is being mended")
)

// guest is what a keeper keeps in a room. Only the keeper's goroutine calls it.
type guest interface {
	// callbacks are told by the library from its own goroutines, for this visit.
	callbacks(v *visit) *lksdk.RoomCallback
	// created is called before the join, to register handlers.
	created(v *visit)
	// joined is called once in the room. An error ends the visit.
	joined(v *visit) error
	// mended is called when the library reconnected by itself. An error ends the visit.
	mended(v *visit) error
	// check is called often while connected. An error ends the visit.
	check(v *visit, now time.Time) error
	// left is called when the visit is over, joined or not.
	left(v *visit)
}

// keeper joins a room and keeps a guest in it, however often the connection breaks.
type keeper struct {
	log        zerolog.Logger
	url        string
	token      func() (string, error)
	attributes func() map[string]string
	guest      guest
	// enter takes the place of join where it is not nil, for tests.
	enter func(ctx context.Context, v *visit, token string) error
	// first and most bound the wait between two attempts; 0 for the defaults.
	first, most time.Duration
	// loopback keeps media sockets on 127.0.0.1.
	loopback bool
	// reports corrects our sender reports; nil leaves them as they are.
	reports *captureReports
	// onOutage is told the reason of each ended visit or failed join, and of a connection that takes long to
	// mend itself; nil for nobody.
	onOutage func(err error)
	// onCrash is told of a panic that ends the run, while still in the room; nil for nobody.
	onCrash func(err error)
	// crashed holds a panic of a callback.
	crashed chan error

	room   atomic.Pointer[lksdk.Room]
	visits atomic.Int64
	last   atomic.Bool // the present visit is the last one
}

// run returns nil when ctx ended, else the reason why coming back makes no sense.
func (k *keeper) run(ctx context.Context) error {
	var (
		wait      = backoff{first: k.first, most: k.most}
		abandoned time.Time // when a connection that was mending itself was given up
		everIn    bool
	)
	for {
		began := time.Now()
		in, err := k.live(ctx)
		if _, crash := rescue.Of(err); crash {
			return err
		}
		if err == nil || ctx.Err() != nil || k.last.Load() {
			return nil //nolint:nilerr // whatever went wrong while it was ending does not matter
		}
		everIn = everIn || in
		if in && time.Since(began) > goodAfter {
			wait.reset()
		}
		if errors.Is(err, errStuck) || errors.Is(err, errBroke) {
			abandoned = time.Now()
		}
		delay := wait.next(time.Now())
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
		k.log.Warn().Err(err).Int64("retry_in_ms", delay.Milliseconds()).Msg("reconnecting to the room")
		if k.onOutage != nil {
			k.onOutage(err)
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case err := <-k.crashed:
			timer.Stop()
			return err
		case <-timer.C:
		}
		if k.last.Load() {
			return nil
		}
	}
}

// fail ends the run with a panic of something that does not run in the keeper's
// goroutine. Every callback that the library calls defers rescue.Guard(k.fail).
func (k *keeper) fail(err error) {
	select {
	case k.crashed <- err:
	default:
	}
}

// guarded is f as a callback.
func (k *keeper) guarded(f func()) func() {
	return func() {
		defer rescue.Guard(k.fail)
		f()
	}
}

// live makes one visit. in tells whether the join succeeded.
func (k *keeper) live(ctx context.Context) (in bool, err error) {
	token, err := k.token()
	if err != nil {
		return false, err
	}
	v := newVisit(ctx.Done())
	cb := k.guest.callbacks(v)
	cb.OnDisconnected = func() { v.goneOnce.Do(func() { close(v.gone) }) }
	cb.OnReconnecting = func() { v.setMending(true) }
	cb.OnReconnected = func() { v.setMending(false) }
	if k.loopback {
		// A change of our own attributes is the one thing that is told during a join, after the peer connections
		// were made and before they open a socket. So each join, also one the library makes by itself, sets one
		// that is taken away afterwards.
		told := cb.OnAttributesChanged
		cb.OnAttributesChanged = func(changed map[string]string, p lksdk.Participant) {
			defer rescue.Guard(k.fail)
			v.confineRoom(v.room)
			told(changed, p)
		}
	}
	v.room = lksdk.NewRoom(cb)
	k.guest.created(v)
	defer func() {
		v.over.Store(true)
		k.room.CompareAndSwap(v.room, nil)
		k.guest.left(v)
	}()

	enter := k.enter
	if enter == nil {
		enter = k.join
	}
	if err := enter(ctx, v, token); err != nil {
		return false, err
	}
	v.in.Store(true)
	// Whatever ended the visit, the library must let go of its sockets.
	defer v.room.Disconnect()
	defer v.goodbye()
	if k.loopback && !v.isConfined() {
		return false, errUnconfined
	}
	if k.loopback {
		v.room.LocalParticipant.SetAttributes(map[string]string{joiningAttribute: ""})
	}
	k.room.Store(v.room)
	k.visits.Add(1)
	err = rescue.Call(func() error { return k.stay(ctx, v) })
	if _, crash := rescue.Of(err); crash && k.onCrash != nil {
		k.onCrash(err)
	}
	return true, err
}

// stay returns nil when ctx ends, else why the visit is over.
func (k *keeper) stay(ctx context.Context, v *visit) error {
	if err := k.guest.joined(v); err != nil {
		return err
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	mended, told := 0, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-k.crashed:
			return err
		case <-v.gone:
			return &goneError{v.room.DisconnectReason()}
		case <-v.wake:
		case <-tick.C:
		}
		mending, since, times := v.state()
		if mending {
			if time.Since(since) > reconnectGrace {
				return errStuck
			}
			if time.Since(since) > mendingTold && !told && k.onOutage != nil {
				told = true
				k.onOutage(errMending)
			}
			continue
		}
		if times != mended {
			mended, told = times, false
			if k.loopback {
				if !v.isConfined() {
					return errUnconfined // made new ones without telling us
				}
				v.room.LocalParticipant.SetAttributes(map[string]string{joiningAttribute: ""})
			}
			if err := k.guest.mended(v); err != nil {
				return err
			}
		}
		if err := k.guest.check(v, time.Now()); err != nil {
			return err
		}
	}
}

// join enters the room. The library waits for its media connection without
// looking at the context, so a join that is given up ends by itself, in
// joinTimeout at most, and leaves the room then.
func (k *keeper) join(ctx context.Context, v *visit, token string) error {
	opts := []lksdk.ConnectOption{
		lksdk.WithAutoSubscribe(false),
		lksdk.WithConnectTimeout(joinTimeout),
		lksdk.WithLogger(libraryLogger(k.log, v.quiet)),
	}
	if k.reports != nil {
		opts = append(opts, lksdk.WithInterceptors([]interceptor.Factory{k.reports}), lksdk.WithIncludeDefaultInterceptors(true))
	}
	if k.attributes != nil {
		opts = append(opts, lksdk.WithExtraAttributes(k.attributes()))
	}
	if k.loopback {
		opts = append(opts, lksdk.WithExtraAttributes(map[string]string{joiningAttribute: "1"}))
		// A relay cannot help on one machine, and asking one opens a socket on every interface.
		opts = append(opts, lksdk.WithDisableTURN())
	}
	done := make(chan error, 1)
	go func() {
		jctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		err := rescue.Call(func() error { return v.room.JoinWithContextAndToken(jctx, k.url, token, opts...) })
		if err != nil || ctx.Err() != nil {
			if err == nil {
				v.goodbye()
			}
			v.room.Disconnect()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return joinError(k.url, err)
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
