package source_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
)

// watched plays pictures at 25 a second whose key frames are gop apart, with a
// request each second; answer is the time from a request to its key frame, 0 for
// never.
func watched(tr *source.Tracker, began time.Time, from, to, gop, answer time.Duration, asks bool) (slow []time.Duration) {
	const step = 40 * time.Millisecond
	lastKey, due := from-gop, time.Duration(-1)
	for at := from; at < to; at += step {
		if asks && at%time.Second == 0 {
			tr.KeyFrameAsked(began.Add(at))
			if answer > 0 && due < 0 {
				due = at + answer
			}
		}
		key := at-lastKey >= gop || due >= 0 && at >= due
		if key {
			lastKey, due = at, -1
		}
		tr.Frame(media.EncodedFrame{Codec: media.H264, KeyFrame: key, PTS: at, Data: make([]byte, 5000)}, began.Add(at))
		if tr.Status().Slow {
			slow = append(slow, at)
		}
	}
	return slow
}

func TestSlowKeyFramesAreFound(t *testing.T) {
	tests := []struct {
		name        string
		gop, answer time.Duration
		asks, slow  bool
	}{
		{"each second", time.Second, 0, true, false},
		{"two seconds", 2 * time.Second, 0, true, false},
		{"four seconds", 4 * time.Second, 0, true, true},
		{"ten seconds", 10 * time.Second, 0, true, true},
		{"ten seconds without requests", 10 * time.Second, 0, false, false},
		{"a sender that answers", time.Hour, 200 * time.Millisecond, true, false},
		{"a sender that answers late", time.Hour, 800 * time.Millisecond, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Unix(1000, 0)
			var reports []source.Status
			tr := source.NewTracker(began, func(s source.Status) { reports = append(reports, s) })
			slow := watched(tr, began, 0, 15*time.Second, tt.gop, tt.answer, tt.asks)
			require.Equal(t, tt.slow, tr.Status().Slow)
			if !tt.slow {
				require.Empty(t, slow)
				return
			}
			require.LessOrEqual(t, slow[0], 5*time.Second, "two requests, and two seconds after the first")
			require.True(t, reports[len(reports)-1].Slow, "reported")
			require.InDelta(t, 25, tr.Status().FPS, 1)
			require.InDelta(t, 25*5000*8, tr.Status().BitRate, 50_000)

			watched(tr, began, 15*time.Second, 20*time.Second, time.Second, 0, true)
			require.False(t, tr.Status().Slow, "the camera was set right")
		})
	}
}

// A slow machine reads a file late: its key frames are as far apart as in the file.
func TestSlowMachineIsNoSlowCamera(t *testing.T) {
	began := time.Unix(1000, 0)
	tr := source.NewTracker(began, nil)
	const step = 100 * time.Millisecond
	for at := time.Duration(0); at < 30*time.Second; at += step {
		now := began.Add(3 * at)
		tr.KeyFrameAsked(now)
		tr.Frame(media.EncodedFrame{Codec: media.H264, KeyFrame: at%time.Second == 0, PTS: at, Data: make([]byte, 5000)}, now)
		require.False(t, tr.Status().Slow, at)
	}
}

func TestRatesAreZeroWhileNothingComes(t *testing.T) {
	began := time.Unix(1000, 0)
	tr := source.NewTracker(began, nil)
	watched(tr, began, 0, 3*time.Second, time.Second, 0, false)
	require.NotZero(t, tr.Status().FPS)
	_, err := tr.Late(5*time.Second, 0, began.Add(9*time.Second))
	require.ErrorIs(t, err, source.ErrStalled)
	require.Zero(t, tr.Status().FPS)
	require.Zero(t, tr.Status().BitRate)
}

// Lost packets may have been a key frame: only times without loss count for the camera.
func TestLossIsNotHeldAgainstTheCamera(t *testing.T) {
	each := func(every, from time.Duration) func(at time.Duration) bool {
		return func(at time.Duration) bool { return at >= from && (at-from)%every == 0 }
	}
	tests := []struct {
		name        string
		gop         time.Duration
		lost        func(at time.Duration) bool // the picture of that time
		slow, lossy bool
		keyEvery    time.Duration
	}{
		{"each second, two of three lost", time.Second, func(at time.Duration) bool {
			return at%time.Second == 0 && at/time.Second%3 != 0
		}, false, true, 0},
		{"two seconds, every other lost", 2 * time.Second, each(4*time.Second, 2*time.Second), false, true, 0},
		{"two seconds, one lost", 2 * time.Second, each(time.Hour, 6*time.Second), false, false, 2 * time.Second},
		{"ten seconds, with a gap after each", 10 * time.Second, each(10*time.Second, time.Second), true, true, 0},
		{"ten seconds, with a gap each second", 10 * time.Second, each(time.Second, 40*time.Millisecond), false, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			began := time.Unix(1000, 0)
			var reports []source.Status
			tr := source.NewTracker(began, func(s source.Status) { reports = append(reports, s) })
			const step, length = 40 * time.Millisecond, 40 * time.Second
			missing, gap := false, false
			for at := time.Duration(0); at < length; at += step {
				now := began.Add(at)
				if at%time.Second == 0 {
					tr.KeyFrameAsked(now)
				}
				key := at%tt.gop == 0
				if tt.lost(at) {
					missing, gap = true, true
					continue
				}
				if gap { // it shows by what comes behind it
					tr.Missing(2, now)
					gap = false
				}
				if missing = missing && !key; missing {
					continue
				}
				tr.Frame(media.EncodedFrame{Codec: media.H264, KeyFrame: key, PTS: at, Data: make([]byte, 5000)}, now)
			}
			s := tr.Status()
			require.Equal(t, [2]bool{tt.slow, tt.lossy}, [2]bool{s.Slow, s.Lossy})
			require.Equal(t, tt.keyEvery, s.KeyEvery)
			require.NotZero(t, s.Missing)
			if tt.lossy {
				require.True(t, reports[len(reports)-1].Lossy, "reported")
				watched(tr, began, length, length+31*time.Second, time.Second, 0, true)
				require.Equal(t, [2]bool{}, [2]bool{tr.Status().Slow, tr.Status().Lossy}, "the way is good again")
			}
		})
	}
}
