package delay_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/delay"
)

func start() time.Time { return time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC) }

// frame is frame i of a source with a key frame every second.
func frame(i, fps int) media.EncodedFrame {
	pts := time.Duration(i) * time.Second / time.Duration(fps)
	return media.EncodedFrame{
		Codec: media.VP8, KeyFrame: i%fps == 0, PTS: pts, Arrival: start().Add(pts), Received: start().Add(pts),
		Data: make([]byte, 1000),
	}
}

// drain takes all due frames and records them as written.
func drain(l *delay.Line, now time.Time) []delay.OutFrame {
	var out []delay.OutFrame
	for {
		f, ok, _ := l.Next(now)
		if !ok {
			return out
		}
		l.Wrote(f, now)
		out = append(out, f)
	}
}

// simulate runs frames through a line in steps of a millisecond. at is called
// before each step with the media time.
func simulate(l *delay.Line, fps int, length time.Duration, at func(t time.Duration)) []delay.OutFrame {
	var out []delay.OutFrame
	next := 0
	for t := time.Duration(0); t < length; t += time.Millisecond {
		if at != nil {
			at(t)
		}
		now := start().Add(t)
		for f := frame(next, fps); !f.Arrival.After(now); f = frame(next, fps) {
			l.Push(f, now)
			next++
		}
		out = append(out, drain(l, now)...)
	}
	return out
}

func TestSlides(t *testing.T) {
	t.Parallel()
	for _, fps := range []int{10, 30, 60} {
		l := delay.New(delay.Options{Initial: 2 * time.Second})
		seen5, seen2 := false, false
		out := simulate(l, fps, 100*time.Second, func(at time.Duration) {
			switch at.Milliseconds() {
			case 10_000:
				l.SetTarget(5 * time.Second)
			case 60_000:
				seen5 = l.Delay() == 5*time.Second
				l.SetTarget(2 * time.Second)
			case 99_000:
				seen2 = l.Delay() == 2*time.Second
			}
		})
		require.True(t, seen5 && seen2, "the target is reached and held")
		require.Equal(t, start().Add(2*time.Second), out[0].Due)
		gap := time.Second / time.Duration(fps)
		for i := 1; i < len(out); i++ {
			step := out[i].Due.Sub(out[i-1].Due)
			require.Less(t, step, 100*time.Millisecond*30/time.Duration(min(fps, 30)))
			require.LessOrEqual(t, step, gap*11/10+time.Microsecond)
			require.GreaterOrEqual(t, step, gap*9/10-time.Microsecond)
		}
		require.Len(t, out, int(98*time.Second/gap), "no frame is lost")
		require.Zero(t, l.Stats().Late)
	}
}

func TestStartsAtAKeyFrame(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{})
	for i := 5; i < 40; i++ {
		l.Push(frame(i, 30), frame(i, 30).Arrival)
	}
	out := drain(l, start().Add(time.Minute))
	require.Len(t, out, 10)
	require.True(t, out[0].KeyFrame)
	require.Equal(t, uint64(25), l.Stats().Waiting)
}

func TestTargetBeforeTheFirstFrameCounts(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{Initial: time.Second, MaxAge: 4 * time.Second})
	l.SetTarget(3 * time.Second)
	l.Push(frame(0, 30), start())
	require.Equal(t, 3*time.Second, l.Delay())
	_, ok, wait := l.Next(start())
	require.False(t, ok)
	require.Equal(t, 3*time.Second, wait)
	l.SetTarget(time.Hour)
	require.Equal(t, 4*time.Second, l.Target(), "D is bounded by MaxAge")
}

func TestBounds(t *testing.T) {
	t.Parallel()
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		l := delay.New(delay.Options{Initial: 10 * time.Second, MaxBytes: 100_000})
		for i := range 130 {
			l.Push(frame(i, 30), frame(i, 30).Arrival)
			require.LessOrEqual(t, l.Stats().Bytes, 100_000)
		}
		s := l.Stats()
		require.Equal(t, uint64(30), s.OverBytes, "one group of pictures")
		out := drain(l, start().Add(time.Minute))
		require.Len(t, out, 100)
		require.True(t, out[0].KeyFrame)
		require.Zero(t, l.Stats().Bytes)
	})
	t.Run("bytes for less than D", func(t *testing.T) {
		t.Parallel()
		// Ten seconds are set and five fit: pictures are shown.
		l := delay.New(delay.Options{Initial: 10 * time.Second, MaxBytes: 150_000})
		out := simulate(l, 30, 60*time.Second, nil)
		require.Greater(t, len(out), 50*30)
		require.LessOrEqual(t, l.Stats().OverBytes, uint64(60))
		require.Less(t, l.Delay(), 5*time.Second)
		require.Greater(t, l.Delay(), 3*time.Second)
		require.Equal(t, 10*time.Second, l.Target())
		for i := 1; i < len(out); i++ {
			require.Less(t, out[i].Due.Sub(out[i-1].Due), 100*time.Millisecond)
		}
	})
	t.Run("age", func(t *testing.T) {
		t.Parallel()
		l := delay.New(delay.Options{Initial: 2 * time.Second, MaxAge: 3 * time.Second})
		for i := range 300 {
			l.Push(frame(i, 30), frame(i, 30).Arrival)
			require.LessOrEqual(t, l.Stats().Frames, 4*30+1)
		}
		require.Equal(t, uint64(180), l.Stats().OverAge)
		require.True(t, drain(l, start().Add(time.Minute))[0].KeyFrame)
	})
	t.Run("one frame over all", func(t *testing.T) {
		t.Parallel()
		l := delay.New(delay.Options{MaxBytes: 10})
		l.Push(frame(0, 30), start())
		l.Push(frame(1, 30), start())
		require.Zero(t, l.Stats().Frames)
		require.Equal(t, uint64(1), l.Stats().Waiting)
	})
}

func TestNewCodecStartsAtAKeyFrame(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{})
	l.Push(frame(0, 30), start())
	for i := 25; i < 40; i++ {
		f := frame(i, 30)
		f.Codec = media.H264
		l.Push(f, f.Arrival)
	}
	out := drain(l, start().Add(time.Minute))
	require.Len(t, out, 11)
	require.True(t, out[1].KeyFrame)
}

func TestGapsPass(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{Initial: time.Second})
	for _, i := range []int{0, 1, 2, 90, 91} {
		l.Push(frame(i, 30), frame(i, 30).Arrival)
	}
	out := drain(l, start().Add(time.Minute))
	require.Len(t, out, 5)
	require.Equal(t, frame(90, 30).Arrival.Add(time.Second), out[3].Due)
}

func TestNewEpochStartsAtTheTarget(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{Initial: 5 * time.Second})
	for i := range 60 {
		l.Push(frame(i, 30), frame(i, 30).Arrival)
	}
	require.Len(t, drain(l, start().Add(5*time.Second)), 1)
	l.SetTarget(2 * time.Second)
	for i := range 90 {
		f := frame(i, 30)
		f.Epoch = 1
		f.Arrival = f.Arrival.Add(2 * time.Second)
		l.Push(f, f.Arrival)
	}
	out := drain(l, start().Add(time.Minute))
	require.Len(t, out, 59+90)
	for i := 1; i < len(out); i++ {
		step := out[i].Due.Sub(out[i-1].Due)
		require.GreaterOrEqual(t, step, time.Duration(0))
		if i != 59 { // the seam
			require.Greater(t, step, 29*time.Millisecond, "no burst at %d", i)
		}
	}

	// With the old epoch shown, the new one takes the target at once.
	l = delay.New(delay.Options{Initial: 5 * time.Second})
	l.Push(frame(0, 30), start())
	drain(l, start().Add(5*time.Second))
	l.SetTarget(2 * time.Second)
	f := frame(0, 30)
	f.Epoch, f.Arrival = 1, start().Add(20*time.Second)
	l.Push(f, f.Arrival)
	_, _, wait := l.Next(f.Arrival)
	require.Equal(t, 2*time.Second, wait)
}

func TestPredictionComesTrue(t *testing.T) {
	t.Parallel()
	// With a constant target the prediction holds, for frames in the line and for
	// later ones.
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := delay.New(delay.Options{Initial: time.Duration(r.IntN(4000)) * time.Millisecond})
		change := time.Duration(2000+r.IntN(3000)) * time.Millisecond
		target := time.Duration(r.IntN(5000)) * time.Millisecond
		predicted := map[time.Duration]time.Time{}
		out := simulate(l, 30, 20*time.Second, func(at time.Duration) {
			if at == change {
				l.SetTarget(target)
			}
			if at == change+10*time.Millisecond {
				for i := range 240 {
					pts := frame(i, 30).PTS
					if due, ok := l.Due(0, pts, start().Add(at)); ok {
						predicted[pts] = due
					}
				}
			}
		})
		require.Len(t, predicted, 240)
		for _, f := range out[:240] {
			want := predicted[f.PTS]
			really, ok := l.Shown(0, f.PTS)
			require.True(t, ok)
			require.InDelta(t, float64(really.Sub(start())), float64(want.Sub(start())), float64(3*time.Millisecond), "seed %d PTS %v", seed, f.PTS)
		}
	}
}

func TestDueEdges(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{Initial: time.Second})
	_, ok := l.Due(0, time.Second, start())
	require.False(t, ok, "an empty line knows nothing")

	for i := range 60 {
		l.Push(frame(i, 30), frame(i, 30).Arrival)
	}
	between, ok := l.Due(0, frame(7, 30).PTS+time.Millisecond, start())
	require.True(t, ok)
	require.Equal(t, frame(7, 30).Arrival.Add(time.Second), between, "the frame just before")
	now := start().Add(10 * time.Second)
	at, ok := l.Due(0, frame(7, 30).PTS, now)
	require.True(t, ok)
	require.Equal(t, now, at, "overdue frames are shown now")
	at, ok = l.Due(0, 10*time.Second, start())
	require.True(t, ok)
	require.Equal(t, start().Add(11*time.Second), at, "a frame to come, at its PTS distance from the newest")
	_, ok = l.Due(3, 0, start())
	require.False(t, ok, "another epoch")

	drain(l, start().Add(1500*time.Millisecond)) // 16 frames
	at, ok = l.Due(0, frame(15, 30).PTS+time.Millisecond, now)
	require.True(t, ok)
	require.Equal(t, start().Add(1500*time.Millisecond), at, "already on the screen")
}

func TestShown(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{})
	for i := range 30 {
		f := frame(i, 30)
		_, ok := l.Shown(0, f.PTS)
		require.False(t, ok, "not yet")
		l.Push(f, f.Arrival)
		drain(l, f.Arrival.Add(time.Millisecond))
		at, ok := l.Shown(0, f.PTS)
		require.True(t, ok)
		require.Equal(t, f.Arrival.Add(time.Millisecond), at)
	}
	at, ok := l.Shown(0, frame(10, 30).PTS+5*time.Millisecond)
	require.True(t, ok)
	require.Equal(t, frame(10, 30).Arrival.Add(time.Millisecond), at)
	_, ok = l.Shown(0, time.Minute)
	require.False(t, ok, "a newer frame may still come at or before it")
	f := frame(0, 30)
	f.Epoch, f.Arrival = 9, start().Add(time.Hour)
	l.Push(f, f.Arrival)
	drain(l, f.Arrival)
	at, ok = l.Shown(0, time.Minute)
	require.True(t, ok, "the epoch is over")
	require.Equal(t, frame(29, 30).Arrival.Add(time.Millisecond), at)
}

func TestShownForgets(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{})
	for i := range 40000 {
		l.Wrote(delay.OutFrame{EncodedFrame: media.EncodedFrame{PTS: time.Duration(i) * time.Millisecond}}, start().Add(time.Duration(i)*time.Millisecond))
	}
	at, ok := l.Shown(0, 39000*time.Millisecond)
	require.True(t, ok)
	require.Equal(t, start().Add(39000*time.Millisecond), at)
}

func TestLateFramesGoOutInOrder(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{Initial: 100 * time.Millisecond})
	for i := range 10 {
		l.Push(frame(i, 30), start())
	}
	require.Len(t, drain(l, start().Add(110*time.Millisecond)), 1)
	require.Zero(t, l.Stats().Late, "10 ms late is as good as in time")
	require.Len(t, drain(l, start().Add(300*time.Millisecond)), 6)
	// Frames 1 to 5 were due 33 ms or more ago, frame 6 is due now.
	require.Equal(t, uint64(5), l.Stats().Late)
}

// screen records what Run writes.
type screen struct {
	mu    sync.Mutex
	at    []time.Time
	due   []time.Time
	delay time.Duration // how long a write takes
	err   error
}

func (s *screen) WriteFrame(f delay.OutFrame) (time.Time, error) {
	if s.delay > 0 {
		<-time.After(s.delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	s.due = append(s.due, f.Due)
	return time.Now(), s.err
}

// live stamps frame i with the bubble's clock.
func live(i int, begin time.Time) media.EncodedFrame {
	f := frame(i, 30)
	f.Arrival = begin.Add(f.PTS)
	return f
}

func TestRunWritesWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := delay.New(delay.Options{Initial: time.Second})
		var s screen
		done := make(chan error)
		go func() { done <- l.Run(ctx, &s) }()
		synctest.Wait()
		require.ErrorIs(t, l.Run(ctx, &s), delay.ErrRunning)

		begin := time.Now()
		for i := range 300 {
			<-time.After(time.Until(live(i, begin).Arrival))
			l.Push(live(i, begin), time.Now())
			if i == 100 {
				l.SetTarget(1500 * time.Millisecond)
			}
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		require.Len(t, s.at, 300)
		for i := range s.at {
			require.Equal(t, s.due[i], s.at[i], "frame %d", i)
		}
		require.Equal(t, 1500*time.Millisecond, l.Delay())
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestRunAlertToChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := delay.New(delay.Options{Initial: 20 * time.Second})
		var s screen
		done := make(chan error)
		go func() { done <- l.Run(ctx, &s) }()
		begin := time.Now()
		l.Push(live(0, begin), begin)
		synctest.Wait()
		l.SetTarget(time.Second) // nothing shown yet: takes effect at once
		<-time.After(1001 * time.Millisecond)
		synctest.Wait()
		require.Len(t, s.at, 1)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestRunSurvivesItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := delay.New(delay.Options{})
		s := screen{err: errors.New("cable cut")}
		for i := range 3 {
			l.Push(live(i, time.Now()), time.Now())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Run(ctx, &s), context.DeadlineExceeded)
		require.Len(t, s.at, 3)
		require.Equal(t, uint64(3), l.Stats().Failed)
		// The line can be run again.
		l.Push(live(3, time.Now()), time.Now())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Run(ctx, &s), context.DeadlineExceeded)
		require.Len(t, s.at, 4)
	})
}

// nowhere is an output that is not connected.
type nowhere struct{}

func (nowhere) WriteFrame(delay.OutFrame) (time.Time, error) { return time.Time{}, nil }

func TestUnsentFramesAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := delay.New(delay.Options{Initial: time.Second})
		begin := time.Now()
		l.Push(live(0, begin), begin)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.ErrorIs(t, l.Run(ctx, nowhere{}), context.DeadlineExceeded)
		_, ok := l.Shown(0, 0)
		require.False(t, ok)
		due, ok := l.Due(0, 0, time.Now())
		require.True(t, ok, "when it would have been is known")
		require.Equal(t, begin.Add(time.Second), due)
		require.Equal(t, uint64(1), l.Stats().Unsent)
	})
}

// TestRunIsPunctual checks that each frame is written when it is due.
func TestRunIsPunctual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := delay.New(delay.Options{Initial: 200 * time.Millisecond})
		var s screen
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Run(ctx, &s) })
		begin := time.Now()
		for i := range 60 {
			<-time.After(time.Until(live(i, begin).Arrival))
			l.Push(live(i, begin), time.Now())
		}
		<-time.After(400 * time.Millisecond)
		cancel()
		wg.Wait()
		require.Len(t, s.at, 60)
		require.Equal(t, s.due, s.at)
	})
}

func BenchmarkLine(b *testing.B) {
	l := delay.New(delay.Options{Initial: 2 * time.Second})
	f := frame(0, 30)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		f.PTS = time.Duration(i) * time.Second / 30
		f.Arrival = start().Add(f.PTS)
		f.KeyFrame = i%30 == 0
		i++
		l.Push(f, f.Arrival)
		for {
			o, ok, _ := l.Next(f.Arrival)
			if !ok {
				break
			}
			l.Wrote(o, f.Arrival)
		}
	}
}

func BenchmarkDue(b *testing.B) {
	l := delay.New(delay.Options{Initial: 5 * time.Second})
	for i := range 150 {
		l.Push(frame(i, 30), frame(i, 30).Arrival)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Due(0, 6*time.Second, start())
	}
}

// TestNewEpochOvertakes: frames of an older epoch that are due later than the new
// one's first picture are dropped, so that a clock that ran ahead does not block the
// next camera.
func TestNewEpochOvertakes(t *testing.T) {
	t.Parallel()
	l := delay.New(delay.Options{Initial: 4 * time.Second, MaxAge: 10 * time.Minute, MaxBytes: 1 << 30})
	for i := range 1800 { // a minute in which its clock ran five times too fast
		f := frame(5*i, 30)
		f.KeyFrame = i%30 == 0
		l.Push(f, start().Add(time.Duration(i)*time.Second/30))
	}
	begin := start().Add(time.Minute)
	for i := range 150 {
		f := frame(i, 30)
		f.Epoch, f.Arrival, f.Received = 1, begin.Add(f.PTS), begin.Add(f.PTS)
		l.Push(f, f.Arrival)
	}
	var first time.Time
	shown := 0
	for _, f := range drain(l, begin.Add(10*time.Second)) {
		if f.Epoch == 0 {
			shown++
			require.False(t, f.Arrival.After(begin))
		} else if first.IsZero() {
			first = f.Due
		}
	}
	require.Equal(t, begin.Add(4*time.Second), first)
	require.Equal(t, 361, shown)
	require.Equal(t, uint64(1439), l.Stats().Overtaken)
}
