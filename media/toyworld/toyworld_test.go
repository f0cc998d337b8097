package toyworld_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/toyworld"
)

func world(tb testing.TB, o toyworld.Options) *toyworld.World {
	tb.Helper()
	w, err := toyworld.New(o)
	require.NoError(tb, err)
	return w
}

func TestSameSeedSamePicture(t *testing.T) {
	a, b := world(t, toyworld.Options{Seed: 4}), world(t, toyworld.Options{Seed: 4})
	// b is asked in another order.
	late, early := b.Frame(2000), b.Frame(100)
	require.Equal(t, a.Frame(100), early)
	require.Equal(t, a.Frame(2000), late)
	require.Equal(t, a.Events(0, 5*time.Minute), b.Events(0, 5*time.Minute))
	other := world(t, toyworld.Options{Seed: 5})
	require.NotEqual(t, early, other.Frame(100))
	require.NotEqual(t, a.Events(0, 5*time.Minute), other.Events(0, 5*time.Minute))
}

func TestSizeDoesNotChangeTheMatch(t *testing.T) {
	a, b := world(t, toyworld.Options{Seed: 4}), world(t, toyworld.Options{Seed: 4, Width: 1280, Height: 720, FPS: 25})
	require.Equal(t, a.Events(0, 2*time.Minute), b.Events(0, 2*time.Minute))
	require.Equal(t, a.Truth(9*time.Second), b.Truth(9*time.Second))
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := toyworld.New(toyworld.Options{Width: 641, Height: 20, FPS: 1000})
	require.ErrorContains(t, err, "width: must be even and between 160 and 7680, is 641")
	require.ErrorContains(t, err, "height: must be even and between 90 and 4320, is 20")
	require.ErrorContains(t, err, "fps: must be between 1 and 240, is 1000")

	w := world(t, toyworld.Options{})
	require.ErrorContains(t, w.Render(0, make([]byte, 3)), "expected a buffer of 345600 bytes for 640x360, got 3")
}

// Over ten minutes every kind of event comes, in order and never two at a
// time, apart from the kick-off, which is still from its cut on.
func TestEventsComeOneByOne(t *testing.T) {
	for seed := range uint64(10) {
		w := world(t, toyworld.Options{Seed: seed})
		events := w.Events(0, 10*time.Minute)
		count := map[toyworld.Kind]int{}
		for i, e := range events {
			count[e.Kind]++
			require.NotEmpty(t, e.Text)
			if i == 0 {
				continue
			}
			gap := e.At - events[i-1].At
			require.GreaterOrEqual(t, gap, time.Duration(0))
			if e.Kind != toyworld.StillStart {
				require.Greater(t, gap, 1500*time.Millisecond, "seed %d: %q, then %q", seed, events[i-1].Text, e.Text)
			}
		}
		for k := toyworld.Goal; k <= toyworld.Tint; k++ {
			require.Positive(t, count[k], "seed %d has no %s", seed, k)
		}
		// A part of the list is a part of the whole.
		require.Equal(t, events[:3], w.Events(0, events[2].At+1))
	}
}

// outside blanks out what moves in a still picture too: clock and counter.
func outside(pic []byte, width, height int) []byte {
	out := append([]byte(nil), pic[:width*height]...)
	for y := range height {
		for x := range width {
			if y > height*80/100 && x > width*70/100 || y < height*16/100 && x < width*40/100 {
				out[y*width+x] = 0
			}
		}
	}
	return out
}

func TestTruthAgreesWithThePicture(t *testing.T) {
	w := world(t, toyworld.Options{Seed: 6, Width: 320, Height: 180})
	pic := func(at time.Duration) []byte { return outside(w.Frame(uint32(at*30/time.Second)), 320, 180) }
	differ := func(a, b []byte) (share, mean float64) {
		n, sum := 0, 0
		for i := range a {
			d := int(a[i]) - int(b[i])
			sum += d
			if d > 24 || d < -24 {
				n++
			}
		}
		return float64(n) / float64(len(a)), float64(sum) / float64(len(a))
	}
	const frame = time.Second / 30
	for _, e := range w.Events(2*time.Second, 5*time.Minute) {
		at := e.At - e.At%frame + frame
		before, after := pic(at-2*frame), pic(at+2*frame)
		share, _ := differ(before, after)
		later, brighter := differ(pic(at+time.Second), before)
		now := w.Truth(at + time.Second)
		switch e.Kind {
		case toyworld.Cut:
			require.Greater(t, share, 0.1, "%s at %v", e.Text, e.At)
			require.Equal(t, e.Shot, w.Truth(at).Shot)
			require.NotEqual(t, e.Shot, w.Truth(at-2*frame).Shot)
		case toyworld.Goal:
			require.Greater(t, share, 0.7, "%s at %v", e.Text, e.At)
			require.True(t, now.Banner)
			require.Positive(t, w.Truth(at).Flash)
			require.Equal(t, 1, now.Score[e.Team]-w.Truth(at - 2*frame).Score[e.Team])
		case toyworld.Turn, toyworld.StillEnd:
			require.Equal(t, e.Direction, now.Flow, "%s at %v", e.Text, e.At)
			require.Greater(t, now.Speed, 0.01)
		case toyworld.StillStart:
			require.True(t, now.Still)
			require.Zero(t, now.Speed)
			require.Equal(t, pic(at+time.Second), pic(at+1500*time.Millisecond))
		case toyworld.Dim:
			require.Less(t, now.Light, 0.7)
			require.Less(t, brighter, -15.0)
		case toyworld.Brighten:
			require.Equal(t, 1.0, now.Light)
			require.Greater(t, brighter, 15.0)
		case toyworld.Tint:
			require.Less(t, later, 0.3, "%s at %v", e.Text, e.At)
		}
	}
}

func TestStillWorldNeverMoves(t *testing.T) {
	w := world(t, toyworld.Options{Seed: 3, Width: 320, Height: 180, Still: true})
	first := outside(w.Frame(0), 320, 180)
	for n := uint32(1); n < 5000; n += 499 {
		require.Equal(t, first, outside(w.Frame(n), 320, 180))
		require.True(t, w.Truth(w.PTS(n)).Still)
	}
	require.NotEqual(t, w.Frame(0), w.Frame(60), "clock and counter go on")
	require.Empty(t, w.Events(0, time.Hour))
}
