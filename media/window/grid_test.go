package window_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/window"
)

// runGrid returns the samples at 30 pictures a second, how many are key frames, and how many access units a decoder
// needs for them.
func runGrid(fps float64, frames int, isKey func(n int) bool) (samples []int, onKey, needed int) {
	var g window.Grid
	held := 0
	for n := range frames {
		f := media.EncodedFrame{PTS: time.Duration(n) * time.Second / 30, KeyFrame: isKey(n)}
		if f.KeyFrame {
			held = 0
		}
		held++
		if g.Take(f, fps) {
			samples = append(samples, n)
			needed, held = needed+held, 0
			if f.KeyFrame {
				onKey++
			}
		}
	}
	return samples, onKey, needed
}

func TestGrid(t *testing.T) {
	t.Parallel()
	never := func(n int) bool { return n == 0 }
	every := func(gap int) func(int) bool { return func(n int) bool { return n%gap == 0 } }
	tests := []struct {
		name   string
		fps    float64
		keys   func(n int) bool
		rate   float64 // samples a second
		onKey  int     // of the 60 s, at least
		needed float64 // share of the access units, at most
	}{
		{"one key frame", 2, never, 2, 1, 1},
		{"a key frame each second", 2, every(30), 2, 59, 0.56},
		{"a key frame somewhat later", 2, every(32), 1.88, 52, 0.54},
		{"a key frame somewhat earlier", 2, every(28), 2.14, 62, 0.6},
		{"unsteady key frames", 2, func(n int) bool { return n%64 == 0 || n%64 == 31 }, 1.88, 54, 0.53},
		{"key frames at 5 samples a second", 5, every(31), 4.84, 55, 0.85},
		{"a key frame every 4 s", 2, every(122), 2, 10, 0.92},
		{"all key frames", 2, every(1), 2, 120, 0.1},
		{"many key frames", 5, every(4), 5, 0, 1},
		{"more samples than pictures", 60, every(30), 30, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const seconds = 60
			samples, onKey, needed := runGrid(tt.fps, seconds*30, tt.keys)
			require.InDelta(t, tt.rate, float64(len(samples))/seconds, 0.05)
			require.GreaterOrEqual(t, onKey, tt.onKey)
			require.LessOrEqual(t, float64(needed)/(seconds*30), tt.needed)
			step := 30 / tt.fps
			for i := 1; i < len(samples); i++ {
				gap := float64(samples[i] - samples[i-1])
				require.InDelta(t, step, gap, step/4+1, "samples %d and %d", samples[i-1], samples[i])
			}
		})
	}
}

// Missing key frames delay one sample by at most a quarter of the interval.
func TestGridWithoutItsKeyFrame(t *testing.T) {
	t.Parallel()
	samples, _, _ := runGrid(2, 150, func(n int) bool { return n == 0 || n == 31 || n == 62 })
	require.Equal(t, []int{0, 15, 30, 45, 62, 77, 96, 107, 122, 137}, samples)
}

// A gap restarts the grid, and rate 0 selects no sample.
func TestGridGap(t *testing.T) {
	t.Parallel()
	var g window.Grid
	at := func(pts time.Duration) media.EncodedFrame { return media.EncodedFrame{PTS: pts} }
	require.False(t, g.Take(at(0), 0))
	require.True(t, g.Take(at(0), 2))
	require.False(t, g.Take(at(400*time.Millisecond), 2))
	require.True(t, g.Take(at(time.Minute), 2))
	require.False(t, g.Take(at(time.Minute+499*time.Millisecond), 2))
	require.True(t, g.Take(at(time.Minute+500*time.Millisecond), 2))
}
