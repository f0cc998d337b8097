package sound_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/media/sound"
)

const frame = sound.Rate / 50

// start is the start time of all tests.
func start() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

// rig pushes a signal 20 ms at a time and reads the output.
type rig struct {
	line   *sound.Line
	signal func(n int64) int16
	delay  func(n int64) time.Duration // of the picture, by frame
	speech func(n int64) bool
	ntp    time.Duration // the sound's way by sender reports; 0 for none
	sight  time.Duration // the picture's
	heard  []int16
	offset []time.Duration
}

// at returns the time of frame n.
func at(n int64) time.Time { return start().Add(time.Duration(n) * 20 * time.Millisecond) }

func (r *rig) run(frames int64) {
	for n := range frames {
		pcm := make([]int16, frame)
		for i := range pcm {
			pcm[i] = r.signal(n*frame + int64(i))
		}
		p := sound.Piece{Stream: 1, Media: n*frame + 7777, Arrival: at(n), PCM: pcm}
		if r.ntp != 0 {
			p.NTP = p.Arrival.Add(-r.ntp)
		}
		r.line.Push(p)
		var ntp time.Time
		if r.sight != 0 {
			ntp = at(n).Add(-r.sight)
		}
		r.line.Picture(at(n), ntp, at(n).Add(r.delay(n)))
		out := make([]int16, frame)
		r.line.Read(at(n), out, r.speech != nil && r.speech(n))
		r.heard = append(r.heard, out...)
		r.offset = append(r.offset, r.line.Stats().Offset)
	}
}

func fixed(d time.Duration) func(int64) time.Duration { return func(int64) time.Duration { return d } }

// clicks is a click of one sample each second.
func clicks(n int64) int16 {
	if n%sound.Rate == 12345 {
		return 20000
	}
	return 0
}

// sines are eleven periods of 440 Hz.
var sines = func() (s [1200]int16) {
	for i := range s {
		s[i] = int16(8000 * math.Sin(2*math.Pi*440*float64(i)/sound.Rate))
	}
	return s
}()

func sine(n int64) int16 { return sines[n%int64(len(sines))] }

func rms(pcm []int16) float64 {
	sum := 0.0
	for _, v := range pcm {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(pcm)))
}

// TestDelay finds each sample exactly D after its arrival.
func TestDelay(t *testing.T) {
	for _, d := range []time.Duration{60 * time.Millisecond, time.Second, 4321 * time.Millisecond, 30 * time.Second} {
		r := &rig{line: sound.NewLine(30*time.Second, 12), signal: clicks, delay: fixed(d)}
		r.run(50 * 40)
		late := int64(d) * 48 / 1e6
		for n := int64(12345); n+late < int64(len(r.heard)); n += sound.Rate {
			require.EqualValues(t, 20000, r.heard[n+late], "D %v, click at %d", d, n)
		}
		require.Zero(t, r.line.Stats().Jumps)
	}
}

// TestLips finds the sound at the picture with its capture time, for any transits.
func TestLips(t *testing.T) {
	r := &rig{
		line: sound.NewLine(30*time.Second, 12), signal: clicks, delay: fixed(time.Second),
		ntp: 40 * time.Millisecond, sight: 120 * time.Millisecond,
	}
	r.run(300)
	require.EqualValues(t, 20000, r.heard[12345+sound.Rate+80*48])
	require.True(t, r.line.Stats().Reports)

	// Unrelated clocks are ignored.
	r = &rig{
		line: sound.NewLine(30*time.Second, 12), signal: clicks, delay: fixed(time.Second),
		ntp: 40 * time.Millisecond, sight: 3 * time.Hour,
	}
	r.run(300)
	require.EqualValues(t, 20000, r.heard[12345+sound.Rate])
	require.False(t, r.line.Stats().Reports)
}

// slide is a picture delay that goes from 2 s to 3.5 s in 15 s and back.
func slide(n int64) time.Duration {
	x := time.Duration(n) * 20 * time.Millisecond
	switch {
	case x < 10*time.Second:
		return 2 * time.Second
	case x < 25*time.Second:
		return 2*time.Second + (x-10*time.Second)/10
	case x < 40*time.Second:
		return 3500 * time.Millisecond
	case x < 55*time.Second:
		return 3500*time.Millisecond - (x-40*time.Second)/10
	}
	return 2 * time.Second
}

// TestFollowInSilence has half a second of a tone and half a second of silence: every
// tone is complete, and the sound stays near the picture.
func TestFollowInSilence(t *testing.T) {
	tone := func(n int64) int16 {
		if n%sound.Rate < sound.Rate/2 {
			return sine(n)
		}
		return 0
	}
	r := &rig{line: sound.NewLine(30*time.Second, 12), signal: tone, delay: slide}
	r.run(50 * 70)
	s := r.line.Stats()
	require.Zero(t, s.Jumps)
	require.NotZero(t, s.Moves)
	worst := time.Duration(0)
	for _, o := range r.offset {
		worst = max(worst, o.Abs())
	}
	require.Less(t, worst, 60*time.Millisecond, "a tone of 500 ms, in which D moves by 50")
	require.LessOrEqual(t, s.Offset.Abs(), 5*time.Millisecond)
	// The tones: runs of sound of half a second.
	runs, length, gap := []int{}, 0, 0
	for _, v := range r.heard {
		if v != 0 {
			if length > 0 {
				length += gap
			}
			length++
			gap = 0
		} else if gap++; gap > 200 && length > 0 {
			runs, length = append(runs, length), 0
		}
	}
	require.Greater(t, len(runs), 60)
	for _, n := range runs[:len(runs)-1] {
		require.InDelta(t, sound.Rate/2, n, 100)
	}
}

// TestFollowWithoutSilence has an endless tone: the sound differs from the picture by
// half a second at most, and jumps without a click.
func TestFollowWithoutSilence(t *testing.T) {
	r := &rig{line: sound.NewLine(30*time.Second, 12), signal: sine, delay: slide}
	r.run(50 * 80)
	s := r.line.Stats()
	require.Zero(t, s.Moves)
	require.NotZero(t, s.Jumps)
	for n, o := range r.offset {
		require.LessOrEqual(t, o.Abs(), 502*time.Millisecond, "frame %d", n)
	}
	require.LessOrEqual(t, s.Offset.Abs(), 20*time.Millisecond, "ten seconds after D stood still")
	steepest := 0
	for i := 3 * sound.Rate; i < len(r.heard); i++ {
		steepest = max(steepest, int(math.Abs(float64(r.heard[i])-float64(r.heard[i-1]))))
	}
	require.Less(t, steepest, 700, "the tone's own steepest step is 461")
}

// TestDrift has a camera clock that is 200 ppm fast for ten minutes.
func TestDrift(t *testing.T) {
	l := sound.NewLine(30*time.Second, 12)
	out := make([]int16, frame)
	worst := time.Duration(0)
	for n := range int64(50 * 600) {
		arrival := start().Add(time.Duration(float64(n) * 20e6 * (1 - 200e-6)))
		pcm := make([]int16, frame)
		if n%100 < 50 {
			for i := range pcm {
				pcm[i] = sine(n*frame + int64(i))
			}
		}
		l.Push(sound.Piece{Stream: 1, Media: n * frame, Arrival: arrival, PCM: pcm})
		l.Picture(arrival, time.Time{}, arrival.Add(time.Second))
		l.Read(arrival, out, false)
		worst = max(worst, l.Stats().Offset.Abs())
	}
	require.Less(t, worst, 10*time.Millisecond)
	require.Zero(t, l.Stats().Jumps)
}

// TestDuck measures how far and how fast the sound is lowered.
func TestDuck(t *testing.T) {
	r := &rig{
		line: sound.NewLine(30*time.Second, 12), signal: sine, delay: fixed(time.Second),
		speech: func(n int64) bool { return n >= 200 && n < 300 },
	}
	r.run(500)
	db := func(n int64) float64 {
		return 20 * math.Log10(rms(r.heard[n*frame:(n+1)*frame])/rms(r.heard[150*frame:200*frame]))
	}
	require.InDelta(t, 0, db(199), 0.1)
	require.InDelta(t, -12, db(203), 0.2, "50 ms after speech began")
	require.InDelta(t, -12, db(299), 0.2)
	require.Less(t, db(305), -4.0, "100 ms after it ended")
	require.InDelta(t, 0, db(316), 0.2, "300 ms after it ended")
}

// TestSourceChange: the first camera's sound continues until the delayed picture is the second's.
func TestSourceChange(t *testing.T) {
	l := sound.NewLine(30*time.Second, 12)
	out := make([]int16, frame)
	for n := range int64(300) {
		pcm := make([]int16, frame)
		for i := range pcm {
			pcm[i] = 1000
			if n >= 100 {
				pcm[i] = 2000
			}
		}
		p := sound.Piece{Stream: 1, Media: n * frame, Arrival: at(n), PCM: pcm}
		if n >= 100 {
			p.Stream, p.Media = 2, 1<<40+(n-100)*frame
		}
		l.Push(p)
		l.Picture(at(n), time.Time{}, at(n).Add(2*time.Second))
		l.Read(at(n), out, false)
		switch {
		case n > 100 && n < 200:
			require.EqualValues(t, 1000, out[0], "frame %d", n)
		case n > 201:
			require.EqualValues(t, 2000, out[0], "frame %d", n)
		}
	}
}

// TestAnything pushes random input: the sound never stays far from the picture.
func TestAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]int16, sound.Rate)
	for i := range noise {
		noise[i] = int16(random.IntN(1 << 16))
	}
	for range 10 {
		l := sound.NewLine(30*time.Second, 12)
		out := make([]int16, frame)
		d := time.Duration(random.Int64N(int64(10 * time.Second)))
		for n := range int64(1000) {
			if random.IntN(10) > 0 {
				from := random.IntN(len(noise) - 2*480)
				pcm := noise[from:][:random.IntN(3)*480]
				jump := int64(0)
				if random.IntN(50) == 0 {
					jump = random.Int64N(1<<40) - 1<<39
				}
				l.Push(sound.Piece{
					Stream: uint32(random.IntN(200) / 199), Media: n*frame + jump,
					Arrival: at(n).Add(time.Duration(random.Int64N(int64(time.Second)))), PCM: pcm,
				})
			}
			if random.IntN(100) == 0 {
				d = time.Duration(random.Int64N(int64(30 * time.Second)))
			}
			l.Picture(at(n), time.Time{}, at(n).Add(d))
			l.Read(at(n), out, random.IntN(2) == 0)
			require.LessOrEqual(t, l.Stats().Offset.Abs(), 510*time.Millisecond)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	l := sound.NewLine(30*time.Second, 12)
	pcm, out := make([]int16, frame), make([]int16, frame)
	for i := range pcm {
		pcm[i] = sine(int64(i))
	}
	n := int64(0)
	for b.Loop() {
		l.Push(sound.Piece{Stream: 1, Media: n * frame, Arrival: at(n), PCM: pcm})
		l.Picture(at(n), time.Time{}, at(n).Add(2*time.Second))
		l.Read(at(n), out, n%100 < 50)
		n++
	}
}

// TestLipsAndTheWallClock: sound stays with its picture over a step of the wall clock, also of less than the largest correction.
func TestLipsAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range append([]time.Duration{time.Second, -time.Second}, clocktest.Steps...) {
		l := sound.NewLine(30*time.Second, 12)
		began := time.Now()
		after := func(d, by time.Duration) time.Time { return clocktest.Step(began.Add(d), by) }
		captured := start()
		l.Push(sound.Piece{Stream: 1, Arrival: after(0, 0), NTP: captured, PCM: make([]int16, frame)})
		l.Picture(after(80*time.Millisecond, step), captured, after(time.Second, step))
		require.True(t, l.Stats().Reports, step)
		l.Read(after(time.Second, step), make([]int16, frame), false)
		require.Equal(t, time.Second, l.Stats().Delay, step)
	}
}
