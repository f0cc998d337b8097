package worlds_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds"
	"touchline/worlds/match"
)

// level of a piece of the match's sound, as root mean square.
func level(w *worlds.World, from, length time.Duration) float64 {
	pcm := make([]int16, int(length*worlds.SoundRate/time.Second))
	w.Sound(int64(from*worlds.SoundRate/time.Second), pcm)
	sum := 0.0
	for _, v := range pcm {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(pcm)))
}

func TestSoundIsTheSameHoweverItIsAsked(t *testing.T) {
	a, err := worlds.New(worlds.Options{Seed: 4})
	require.NoError(t, err)
	b, err := worlds.New(worlds.Options{Seed: 4})
	require.NoError(t, err)
	whole := make([]int16, 40*worlds.SoundRate)
	a.Sound(0, whole)
	for _, from := range []int{30 * worlds.SoundRate, 12345, 1001 * 960} { // also backwards
		piece := make([]int16, 960)
		b.Sound(int64(from), piece)
		require.Equal(t, whole[from:from+960], piece)
	}
	other, err := worlds.New(worlds.Options{Seed: 5})
	require.NoError(t, err)
	piece := make([]int16, 960)
	other.Sound(0, piece)
	require.NotEqual(t, whole[:960], piece)
}

// The whistle begins with its picture; the crowd cheers after a goal.
func TestSoundTellsWhatHappens(t *testing.T) {
	w, err := worlds.New(worlds.Options{Seed: 4})
	require.NoError(t, err)
	goals, whistles := 0, 0
	for _, e := range w.Events(time.Second, 5*time.Minute) {
		switch at := e.At(); e.Match.Kind {
		case match.Goal:
			goals++
			require.Greater(t, level(w, at+time.Second, time.Second), 2.5*level(w, at-time.Second, 900*time.Millisecond), "goal at %v", at)
		case match.FreeKick, match.KickOff, match.HalfTime, match.FullTime:
			whistles++
			before := level(w, at-50*time.Millisecond, 50*time.Millisecond)
			require.Greater(t, level(w, at+20*time.Millisecond, 50*time.Millisecond), 1.5*before, "whistle at %v", at)
		default:
		}
	}
	require.Positive(t, goals)
	require.Positive(t, whistles)
}

func BenchmarkSound(b *testing.B) {
	w, err := worlds.New(worlds.Options{Seed: 4})
	require.NoError(b, err)
	pcm := make([]int16, 960)
	from := int64(0)
	for b.Loop() {
		w.Sound(from, pcm)
		from += 960
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(20*time.Millisecond)*100, "%core")
}
