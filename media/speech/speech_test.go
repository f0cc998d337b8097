package speech_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/internal/clocktest"
	"touchline/media"
	"touchline/media/speech"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// packet is a packet that was sent.
type packet struct {
	payload   []byte
	timestamp uint32
	marker    bool
	at        time.Time
}

// wire records packets.
type wire struct {
	mu      sync.Mutex
	packets []packet
	before  func() // runs before each packet is taken, outside the lock
}

func (w *wire) WriteOpus(payload []byte, timestamp uint32, marker bool) (time.Time, error) {
	if w.before != nil {
		w.before()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.packets = append(w.packets, packet{payload: payload, timestamp: timestamp, marker: marker, at: now})
	return now, nil
}

func (w *wire) all() []packet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]packet(nil), w.packets...)
}

// cheap is an encoder for tests of the schedule: sound becomes 40 bytes, silence 1.
type cheap struct{}

func (cheap) Encode(pcm []int16, _ []byte) (int, error) {
	for _, s := range pcm {
		if s != 0 {
			return 40, nil
		}
	}
	return 1, nil
}

func (cheap) SetDTX(bool) error { return nil }

// track runs a Writer inside a bubble until the test ends.
func track(t *testing.T, enc speech.Encoder, out speech.PacketWriter) *speech.Writer {
	t.Helper()
	o := speech.Options{Out: out, Log: zerolog.Nop()}
	var w *speech.Writer
	var err error
	if enc == nil {
		w, err = speech.New(o)
	} else {
		w, err = speech.NewWithEncoder(o, enc)
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	synctest.Wait()
	return w
}

// heard records an utterance's events.
type heard struct {
	onset, end         time.Time
	cut                bool
	startedAt, endedAt time.Time
	started, stopped   int
	slipped            []time.Duration
}

func (h *heard) events() speech.Events {
	return speech.Events{
		Started: func(at time.Time) { h.onset, h.startedAt = at, time.Now(); h.started++ },
		Slipped: func(lost time.Duration) { h.slipped = append(h.slipped, lost) },
		Ended:   func(at time.Time, cut bool) { h.end, h.cut, h.endedAt = at, cut, time.Now(); h.stopped++ },
	}
}

// tone is a sine at a fifth of full scale, with silence around it.
func tone(rate int, before, length, after time.Duration) media.PCM {
	n := func(d time.Duration) int { return int(d.Seconds() * float64(rate)) }
	s := make([]int16, n(before)+n(length)+n(after))
	for i := range n(length) {
		s[n(before)+i] = int16(6500 * math.Cos(2*math.Pi*440*float64(i)/float64(rate)))
	}
	return media.PCM{Rate: rate, Samples: s}
}

func TestStartIsSampleAccurate(t *testing.T) {
	for _, rate := range []int{16000, 22050, 24000, 44100, 48000} {
		synctest.Test(t, func(t *testing.T) {
			out := &wire{}
			w := track(t, nil, out)
			time.Sleep(1234 * time.Millisecond)
			begin := time.Now()
			var h heard
			u := w.NewUtterance(h.events())
			_, err := u.Write(tone(rate, 300*time.Millisecond, time.Second, 400*time.Millisecond))
			require.NoError(t, err)
			require.InDelta(t, 1.0, u.End().Seconds(), 0.021)
			require.InDelta(t, 0.3, u.LeadTrimmed().Seconds(), 0.005)
			at := begin.Add(77*time.Millisecond + 333*time.Microsecond)
			u.Start(at)
			time.Sleep(2 * time.Second)
			synctest.Wait()

			require.Equal(t, 1, h.started)
			require.Equal(t, 1, h.stopped)
			require.False(t, h.cut)
			require.InDelta(t, 0, h.onset.Sub(at).Seconds(), 0.0001)
			require.InDelta(t, 1.0, h.end.Sub(h.onset).Seconds(), 0.021)
			require.False(t, h.startedAt.After(h.onset), "Started is called before the onset is heard")

			// A listener plays each packet at once.
			sound, from := listen(t, out.all())
			on := from.Add(samples(onset(sound)))
			require.InDelta(t, 0, on.Sub(h.onset).Seconds(), 0.006)
			last := from.Add(samples(last(sound, 328)))
			require.InDelta(t, 0, last.Sub(h.end).Seconds(), 0.03)
			require.InDelta(t, 6500/math.Sqrt2, rms(sound[onset(sound)+4800:][:9600]), 400)
		})
	}
}

func samples(n int) time.Duration { return time.Duration(n) * time.Second / 48000 }

func rms(s []int16) float64 {
	sum := 0.0
	for _, v := range s {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(s)))
}

func first(s []int16, level int16) int {
	for i, v := range s {
		if v >= level || v <= -level {
			return i
		}
	}
	return -1
}

func last(s []int16, level int16) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] >= level || s[i] <= -level {
			return i
		}
	}
	return -1
}

// listen decodes packets into continuous sound from the time of the first one; gaps are concealed.
func listen(t *testing.T, packets []packet) (sound []int16, from time.Time) {
	t.Helper()
	require.NotEmpty(t, packets)
	dec, err := opus.NewDecoder(48000, 1)
	require.NoError(t, err)
	next := packets[0].timestamp
	frame := make([]int16, 960)
	for _, p := range packets {
		for ; int32(p.timestamp-next) > 0; next += 960 {
			require.NoError(t, dec.DecodePLC(frame))
			sound = append(sound, frame...)
		}
		n, err := dec.Decode(p.payload, frame)
		require.NoError(t, err)
		require.Equal(t, 960, n)
		sound = append(sound, frame...)
		next += 960
	}
	return sound, packets[0].at
}

// TestVoiceAndTheWallClock: a step of the wall clock moves no frame, and frames are due by the wall clock as it is.
func TestVoiceAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		var by atomic.Int64
		clock := func() time.Time { return clocktest.Step(time.Now(), time.Duration(by.Load())) }
		w, err := speech.NewWithEncoder(speech.Options{Out: &wire{}, Now: clock, Log: zerolog.Nop()}, cheap{})
		require.NoError(t, err)
		frames, leave := w.Frames()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		first := <-frames
		by.Store(int64(step))
		<-frames // may have been made before
		last := <-frames
		require.Zero(t, last.Due.Sub(first.Due)%(20*time.Millisecond), step)
		require.WithinDuration(t, first.Due, last.Due, time.Minute, step)
		require.WithinDuration(t, clock().Round(0), last.Due.Round(0), time.Minute, step)
		cancel()
		require.NoError(t, <-done)
		leave()
	}
}
