package worlds_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds"
	"touchline/worlds/match"
)

func world(tb testing.TB, o worlds.Options) *worlds.World {
	tb.Helper()
	w, err := worlds.New(o)
	require.NoError(tb, err)
	return w
}

func TestSameSeedSamePicture(t *testing.T) {
	a, b := world(t, worlds.Options{Seed: 4}), world(t, worlds.Options{Seed: 4})
	// b is asked in another order.
	late, early := b.Frame(2000), b.Frame(100)
	require.Equal(t, a.Frame(100), early)
	require.Equal(t, a.Frame(2000), late)
	require.Equal(t, a.Events(0, 5*time.Minute), b.Events(0, 5*time.Minute))
	other := world(t, worlds.Options{Seed: 5})
	require.NotEqual(t, early, other.Frame(100))
	require.NotEqual(t, a.Events(0, 5*time.Minute), other.Events(0, 5*time.Minute))
}

func TestSizeDoesNotChangeTheMatch(t *testing.T) {
	a, b := world(t, worlds.Options{Seed: 4}), world(t, worlds.Options{Seed: 4, Width: 1280, Height: 720, FPS: 25})
	require.Equal(t, a.Events(0, 2*time.Minute), b.Events(0, 2*time.Minute))
	require.Equal(t, a.Truth(9*time.Second).Match, b.Truth(9*time.Second).Match)
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := worlds.New(worlds.Options{Width: 641, Height: 20, FPS: 1000})
	require.ErrorContains(t, err, "width: must be even and between 160 and 7680, is 641")
	require.ErrorContains(t, err, "height: must be even and between 90 and 4320, is 20")
	require.ErrorContains(t, err, "fps: must be between 1 and 240, is 1000")
	_, err = worlds.New(worlds.Options{World: "moon"})
	require.ErrorContains(t, err, `world: must be one of match, yard, is "moon"`)

	w := world(t, worlds.Options{})
	require.ErrorContains(t, w.Render(0, make([]byte, 3)), "expected a buffer of 345600 bytes for 640x360, got 3")
	pic := make([]byte, w.I420Size())
	require.NoError(t, w.Render(42, pic))
	require.True(t, bytes.Equal(w.Frame(42), pic))
}

// Pictures of every shape are painted all over; a tall one of the match shows the night above the stand.
func TestEveryShapeIsPainted(t *testing.T) {
	for _, size := range [][2]int{{160, 90}, {160, 1440}, {2560, 90}, {162, 92}, {360, 640}} {
		for _, name := range worlds.Worlds() {
			w := world(t, worlds.Options{World: name, Width: size[0], Height: size[1]})
			for n := uint32(0); n < 9000; n += 900 {
				require.Positive(t, slices.Min(w.Frame(n)), "%s of %v, frame %d", name, size, n)
			}
		}
	}
	mean := func(pix []byte) int {
		sum := 0
		for _, v := range pix {
			sum += int(v)
		}
		return sum / len(pix)
	}
	pic := world(t, worlds.Options{Width: 160, Height: 1440}).Frame(0)
	require.Less(t, mean(pic[:160]), 40, "the night")
	require.Greater(t, mean(pic[720*160:721*160]), 80, "the grass")
}

// Over half an hour every kind of event comes, in order, and the whole picture
// never changes twice at a time.
func TestEventsComeOneByOne(t *testing.T) {
	sudden := []match.Kind{match.Goal, match.Cut, match.Dim, match.Brighten, match.Tint, match.HalfTime, match.FullTime}
	for seed := range uint64(20) {
		w := world(t, worlds.Options{Seed: seed})
		events := w.Events(0, 30*time.Minute)
		count := map[match.Kind]int{}
		last, lastSudden := events[0], -time.Hour
		for _, e := range events {
			require.Equal(t, string(e.Match.Kind), e.Kind())
			count[e.Match.Kind]++
			require.NotEmpty(t, e.Text())
			require.GreaterOrEqual(t, e.At(), last.At())
			if slices.Contains(sudden, e.Match.Kind) {
				require.Greater(t, e.At()-lastSudden, 1500*time.Millisecond, "seed %d: %q, then %q", seed, last.Text(), e.Text())
				lastSudden = e.At()
			}
			last = e
		}
		for _, k := range match.Kinds() {
			require.Positive(t, count[k], "seed %d has no %s", seed, k)
		}
		// A part of the list is a part of the whole.
		require.Equal(t, events[:3], w.Events(0, events[2].At()+1))
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
	w := world(t, worlds.Options{Seed: 6, Width: 320, Height: 180})
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
	for _, event := range w.Events(2*time.Second, 5*time.Minute) {
		e := event.Match
		at := e.At - e.At%frame + frame
		before, after := pic(at-2*frame), pic(at+2*frame)
		share, _ := differ(before, after)
		later, brighter := differ(pic(at+time.Second), before)
		record := w.Truth(at + time.Second)
		now := record.Match
		switch e.Kind {
		case match.Cut:
			require.Greater(t, share, 0.1, "%s at %v", e.Text, e.At)
			require.Equal(t, *e.Camera, w.Truth(at).Match.Camera)
			require.NotEqual(t, *e.Camera, w.Truth(at-2*frame).Match.Camera)
		case match.Goal:
			require.Greater(t, share, 0.7, "%s at %v", e.Text, e.At)
			require.True(t, now.Banner)
			require.Positive(t, w.Truth(at).Match.Flash)
			require.Equal(t, 1, now.Score[*e.Team]-w.Truth(at - 2*frame).Match.Score[*e.Team])
		case match.Turn, match.StillEnd:
			require.Equal(t, e.Direction, now.Flow, "%s at %v", e.Text, e.At)
			require.Greater(t, now.Speed, 0.01)
		case match.StillStart:
			require.True(t, now.Still)
			require.Zero(t, now.Speed)
			require.Equal(t, pic(at+time.Second), pic(at+1500*time.Millisecond))
		case match.Dim:
			require.Less(t, record.Light, 0.7)
			require.Less(t, brighter, -15.0)
		case match.Brighten:
			require.Equal(t, 1.0, record.Light)
			require.Greater(t, brighter, 15.0)
		case match.Tint:
			require.Less(t, later, 0.3, "%s at %v", e.Text, e.At)
		default: // players and ball, which the tests of the match look at
		}
	}
}

func TestStillWorldNeverMoves(t *testing.T) {
	w := world(t, worlds.Options{Seed: 3, Width: 320, Height: 180, Still: true, Counter: true})
	first := outside(w.Frame(0), 320, 180)
	for n := uint32(1); n < 5000; n += 499 {
		require.Equal(t, first, outside(w.Frame(n), 320, 180))
		require.True(t, w.Truth(w.PTS(n)).Match.Still)
	}
	require.NotEqual(t, w.Frame(0), w.Frame(60), "clock and counter go on")
	require.Empty(t, w.Events(0, time.Hour))
}

// A record says the same after it was written and read, with the events since the record before.
func TestRecordsAreJSON(t *testing.T) {
	for _, name := range worlds.Worlds() {
		t.Run(name, func(t *testing.T) {
			w := world(t, worlds.Options{World: name, Seed: 6})
			events := 0
			last := uint32(0)
			for n := uint32(0); n < 3*60*30; n += 6 {
				want := w.Record(n, last)
				last = n
				line, err := json.Marshal(want)
				require.NoError(t, err)
				require.NotContains(t, string(line), "\n")
				require.Contains(t, string(line), `"world":"`+name+`"`)
				var got worlds.Truth
				require.NoError(t, json.Unmarshal(line, &got))
				want.At = want.At.Truncate(time.Millisecond)
				require.Equal(t, want, got)
				require.Equal(t, n, got.Frame)
				events += len(got.Events)
			}
			require.Len(t, w.Events(0, w.PTS(last)+1), events)
		})
	}
}

// A record that no world has written is refused.
func TestBadRecords(t *testing.T) {
	for line, want := range map[string]string{
		`{"t":"now"}`:                 "read a truth record: ",
		`{"match":{"camera":"moon"}}`: `read shot "moon": no such shot`,
		`{"events":[7]}`:              "read an event: ",
		`{"events":[{"t":1,"kind":"goal","team":"red"}]}`:    "read an event: ",
		`{"events":[{"t":1,"kind":"dog","id":"a spaniel"}]}`: "read an event: ",
	} {
		var record worlds.Truth
		require.ErrorContains(t, json.Unmarshal([]byte(line), &record), want, line)
	}
}

// The yard draws and sounds through a World as the match does.
func TestYardIsAWorld(t *testing.T) {
	w := world(t, worlds.Options{World: worlds.Yard, Seed: 4, Width: 320, Height: 180, Counter: true})
	require.Equal(t, worlds.Yard, w.Name())
	n, ok := worlds.ReadCounterI420(w.Frame(4711), 320, 180)
	require.True(t, ok)
	require.Equal(t, uint32(4711), n)
	record := w.Truth(9 * time.Second)
	require.NotNil(t, record.Yard)
	require.NotNil(t, record.Night)
	require.Nil(t, record.Match)
	pcm := make([]int16, 960)
	w.Sound(48000, pcm)
	require.NotEqual(t, make([]int16, 960), pcm)
	for _, e := range w.Events(0, 5*time.Minute) {
		require.NotEmpty(t, e.Kind())
		require.NotEmpty(t, e.Text())
	}
}
