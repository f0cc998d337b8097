package camera

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source"
	"touchline/media/source/whip"
)

// patience bounds each wait; a passing test waits for events only.
const patience = 2 * time.Minute

// stays simulates a participant's stay in a room, until the test ends it.
type stays struct {
	began chan stay
}

// stay is one of them.
type stay struct {
	ctx  context.Context //nolint:containedctx // for the assertions of the test
	feed *Feed
	end  chan error
}

func (s *stays) run(f *Feed, ctx context.Context) error { //nolint:revive // as (*Feed).Run
	x := stay{ctx: ctx, feed: f, end: make(chan error, 1)}
	s.began <- x
	return <-x.end
}

func (s *stays) next(t *testing.T) stay {
	t.Helper()
	select {
	case x := <-s.began:
		return x
	case <-time.After(patience):
		t.Fatal("no participant joins")
		return stay{}
	}
}

func feedOptions() Options {
	return Options{
		URL: "ws://127.0.0.1:1", Keys: conn.Keys{APIKey: "key", APISecret: "a secret of a server that is not there"}, Room: "room", LoopbackOnly: true,
		Codec: "true", // any program: it is never started
	}
}

// within waits for f.
func within[T any](t *testing.T, what string, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(patience):
		t.Fatal(what)
		panic("not reached")
	}
}

func runManager(t *testing.T) (m *Manager, s *stays, stop func()) {
	t.Helper()
	m, err := NewManager(ManagerOptions{Feed: feedOptions(), Allow: source.AllowEverything()})
	require.NoError(t, err)
	s = &stays{began: make(chan stay, 8)}
	m.run = s.run
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	require.Eventually(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.ctx != nil }, patience, time.Millisecond)
	return m, s, func() {
		cancel()
		require.NoError(t, within(t, "Run goes on", func() error { return <-ended }))
	}
}

// A source whose participant was removed from the room comes back when it is changed.
func TestChangeOfAnEndedSource(t *testing.T) {
	t.Parallel()
	m, s, stop := runManager(t)
	x, err := m.Add(source.Request{URL: "rtsp://192.0.2.1/1"}, "test")
	require.NoError(t, err)
	first := s.next(t)
	first.end <- conn.ErrRemoved
	state := func() source.Info { return m.Sources()[0] }
	require.Eventually(t, func() bool { return state().State == "failed" }, patience, time.Millisecond)
	require.Contains(t, state().Reason, "had to leave the room")

	address := "rtsp://192.0.2.1/2"
	y, err := m.Change(x.ID, source.Change{URL: &address}, "test")
	require.NoError(t, err)
	second := s.next(t)
	require.Equal(t, x.Identity, second.feed.opts.Identity)
	require.Equal(t, x.Identity, y.Identity)
	require.NotEqual(t, "failed", state().State)
	require.Equal(t, address, state().Address)

	removed := make(chan error, 1)
	go func() { removed <- m.Remove(t.Context(), x.ID, "test") }()
	<-second.ctx.Done()
	second.end <- nil
	require.NoError(t, within(t, "not removed", func() error { return <-removed }))
	require.Empty(t, m.Sources())
	stop()
}

// puller is a source of the test.
type puller func(ctx context.Context) error

func (p puller) Pull(ctx context.Context, _ source.Sink) error { return p(ctx) }

// A source that does not end when it should is replaced and removed anyway.
func TestSourceThatHangs(t *testing.T) {
	t.Parallel()
	m, s, stop := runManager(t)
	opened, release := make(chan struct{}), make(chan struct{})
	hang := puller(func(context.Context) error {
		close(opened)
		<-release
		return nil
	})
	x, err := m.enter(played{hang, source.Address{}}, source.Request{URL: "rtsp://192.0.2.1/1"}, "", "")
	require.NoError(t, err)
	stay := s.next(t)
	within(t, "not opened", func() struct{} { <-opened; return struct{}{} })
	next := make(chan struct{})
	it, err := m.find(x.ID)
	require.NoError(t, err)
	again := puller(func(ctx context.Context) error {
		close(next)
		<-ctx.Done()
		return nil
	})
	require.NoError(t, m.replay(it, source.Request{URL: "rtsp://192.0.2.1/2"}, played{again, source.Address{}}))
	within(t, "not replaced", func() struct{} { <-next; return struct{}{} })
	require.NoError(t, within(t, "not removed", func() error { return m.Remove(context.WithoutCancel(t.Context()), x.ID, "test") }))
	require.Empty(t, m.Sources())
	close(release)
	stay.end <- nil
	stop()
}

// Run ends with the error of a source of the command line that can never work, not of one that was added later.
func TestFirstSourceThatFails(t *testing.T) {
	t.Parallel()
	m, err := NewManager(ManagerOptions{Feed: feedOptions(), Allow: source.AllowEverything()})
	require.NoError(t, err)
	m.run = func(_ *Feed, ctx context.Context) error {
		<-ctx.Done()
		return nil
	}
	wrong := errors.New("a folder")
	fails := puller(func(context.Context) error { return source.Permanent(wrong) })
	_, err = m.enter(played{fails, source.Address{}}, source.Request{URL: "/x"}, "", "")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.WithoutCancel(t.Context())) }()
	require.Eventually(t, func() bool { return m.Sources()[0].State == "failed" }, patience, time.Millisecond)
	require.Empty(t, ended)
	_, err = m.Open(fails, source.Address{}, "", "camera")
	require.NoError(t, err)
	require.ErrorIs(t, within(t, "Run goes on", func() error { return <-ended }), wrong)
}

// endingContext ends during a call of Err, which still returns nil.
type endingContext struct {
	context.Context //nolint:containedctx // it is one

	asked func()
}

func (c endingContext) Err() error {
	err := c.Context.Err()
	c.asked()
	return err
}

// A source that is added at the moment when Run ends either is refused or has left the room when Run returns.
func TestAddWhileRunEnds(t *testing.T) {
	t.Parallel()
	m, err := NewManager(ManagerOptions{Feed: feedOptions(), Allow: source.AllowEverything()})
	require.NoError(t, err)
	m.run = func(_ *Feed, ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(10 * time.Millisecond) // as long as a leave request
		return nil
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	returned := make(chan struct{})
	var armed atomic.Bool
	ctx := endingContext{Context: inner, asked: func() {
		if armed.Swap(false) {
			cancel()
			select {
			case <-returned: // without waiting for the source
			case <-time.After(50 * time.Millisecond):
			}
		}
	}}
	go func() {
		defer close(returned)
		_ = m.Run(ctx)
	}()
	require.Eventually(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.ctx != nil }, patience, time.Millisecond)
	armed.Store(true)
	_, err = m.Add(source.Request{URL: "rtsp://192.0.2.1/1"}, "test")
	within(t, "Run goes on", func() struct{} { return <-returned })
	if err == nil {
		select {
		case <-m.items[0].done:
		default:
			t.Error("the source outlives Run")
		}
	}
}

func runSenders(t *testing.T) (s *Senders, r *stays, stop func()) {
	t.Helper()
	s = NewSenders(feedOptions())
	r = &stays{began: make(chan stay, 8)}
	s.run = r.run
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.ctx != nil }, patience, time.Millisecond)
	return s, r, func() {
		cancel()
		require.NoError(t, within(t, "Run goes on", func() error { return <-ended }))
	}
}

// show sends a picture.
func show(p whip.Place) {
	p.Sink.Frame(media.EncodedFrame{Codec: media.VP8, KeyFrame: true, Epoch: 1, Width: 320, Height: 180, Data: make([]byte, 10)})
}

func session() *whip.Session {
	return &whip.Session{Session: &signaling.Session{Room: "room"}, Sender: whip.Sender{Key: "key", Identity: "obs"}}
}

// A sender that comes back while its participant is leaving gets another stay in the room, under the same identity.
func TestSenderReturnsAsItsParticipantLeaves(t *testing.T) {
	t.Parallel()
	s, r, stop := runSenders(t)
	place, err := s.Open(session())
	require.NoError(t, err)
	show(place)
	first := r.next(t)
	s.mu.Lock()
	s.linger = time.Nanosecond
	s.mu.Unlock()
	place.Close("gone")
	<-first.ctx.Done() // it is leaving, and not out yet
	s.mu.Lock()
	s.linger = time.Hour
	s.mu.Unlock()
	opened := make(chan error, 1)
	go func() {
		_, err := s.Open(session())
		opened <- err
	}()
	select {
	case err := <-opened:
		require.NoError(t, err)
		t.Error("it gets the participant that is leaving")
	case <-time.After(20 * time.Millisecond):
	}
	first.end <- nil
	second := r.next(t)
	require.Equal(t, "obs", second.feed.opts.Identity)
	require.NoError(t, within(t, "not opened", func() error { return <-opened }))
	require.NoError(t, second.ctx.Err())
	second.end <- nil
	stop()
}

// A sender that returns before its participant was to leave finds it in the room.
func TestSenderFindsItsParticipant(t *testing.T) {
	t.Parallel()
	s, r, stop := runSenders(t)
	place, err := s.Open(session())
	require.NoError(t, err)
	first := r.next(t)
	other, err := s.Open(session())
	require.NoError(t, err)
	second := r.next(t)
	require.Equal(t, "obs-2", second.feed.opts.Identity, "one key may let in many")
	show(place)
	show(other)
	place.Close("gone")
	again, err := s.Open(session())
	require.NoError(t, err)
	require.NoError(t, first.ctx.Err())
	require.Empty(t, r.began)
	again.Close("gone")
	other.Close("gone")
	first.end <- nil
	second.end <- errors.New("the server is gone")
	stop()
}

// A holder has at most as many participants as places for senders, whatever identities its senders have. All senders that return find theirs.
func TestParticipantsOfOneHolder(t *testing.T) {
	t.Parallel()
	s, _, stop := runSenders(t)
	s.linger = time.Hour
	s.run = func(_ *Feed, ctx context.Context) error {
		<-ctx.Done()
		return nil
	}
	open := func(holder string, n int) whip.Place {
		x := session()
		x.Sender = whip.Sender{Holder: holder, Identity: fmt.Sprint(holder, n)}
		return within(t, "not opened", func() whip.Place {
			place, err := s.Open(x)
			require.NoError(t, err)
			return place
		})
	}
	participants := func() int { return int(s.participants()) }
	other := open("another link", 0)
	show(other)
	other.Close("gone")
	for i := range 400 {
		open("one link", i).Close("the sender ended it")
		require.LessOrEqual(t, participants(), 17)
	}
	require.Eventually(t, func() bool { return participants() == 1 }, patience, time.Millisecond, "nobody saw them")
	for i := range 400 {
		place := open("one link", i)
		show(place)
		place.Close("the sender ended it")
		require.Equal(t, min(i+1, 16)+1, participants())
	}
	find := func(n int) *sender {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.active[activeKey("room", fmt.Sprint("one link", n))]
	}
	for i := 384; i < 400; i++ {
		p := find(i)
		require.NotNil(t, p, "the newest")
		open("one link", i)
		require.Same(t, p, find(i))
	}
	stop()
}
