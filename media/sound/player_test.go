package sound_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media"
	"touchline/media/sound"
	"touchline/media/speech"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink records the packets of a track.
type sink struct {
	mu         sync.Mutex
	payloads   [][]byte
	timestamps []uint32
}

func (s *sink) WriteOpus(payload []byte, timestamp uint32, _ bool) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloads, s.timestamps = append(s.payloads, payload), append(s.timestamps, timestamp)
	return time.Now(), nil
}

// pcm decodes packets to the positions of their timestamps.
func pcm(t *testing.T, payloads [][]byte, timestamps []uint32) []int16 {
	t.Helper()
	dec, err := opus.NewDecoder(sound.Rate, 1)
	require.NoError(t, err)
	var out []int16
	buf := make([]int16, 5760)
	for i, p := range payloads {
		n, err := dec.Decode(p, buf)
		require.NoError(t, err)
		at := int(timestamps[i] - timestamps[0])
		for len(out) < at {
			out = append(out, 0)
		}
		out = append(out[:at], buf[:n]...)
	}
	return out
}

// level returns the level of a frequency around a time, in dB of full scale (Goertzel).
func level(pcm []int16, at time.Duration, hz float64) float64 {
	from := int(at * sound.Rate / time.Second)
	part := pcm[from : from+sound.Rate/20]
	c := 2 * math.Cos(2*math.Pi*hz/sound.Rate)
	var s1, s2 float64
	for _, v := range part {
		s1, s2 = float64(v)/32768+c*s1-s2, s1
	}
	return 10 * math.Log10((s1*s1+s2*s2-c*s1*s2)*4/float64(len(part)*len(part))+1e-12)
}

// TestPlayer has a humming camera and a bot that speaks for two seconds: the hum is 12 dB lower from the first word on,
// alone and in the mix.
func TestPlayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := sound.NewLine(30*time.Second, 12)
		var voice, out sink
		w, err := speech.New(speech.Options{Out: &voice})
		require.NoError(t, err)
		p, err := sound.NewPlayer(sound.PlayerOptions{Voice: w, Line: line, Out: &out})
		require.NoError(t, err)
		mixed, cancel := p.Mix()
		defer cancel()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() { require.NoError(t, p.Run(ctx)) })
		synctest.Wait()
		wg.Go(func() { require.NoError(t, w.Run(ctx)) })
		var both sink
		wg.Go(func() {
			for m := range mixed {
				_, _ = both.WriteOpus(m.Payload, m.Timestamp, false)
			}
		})
		wg.Go(func() {
			for n := range int64(50 * 8) {
				pcm := make([]int16, frame)
				for i := range pcm {
					pcm[i] = sine(n*frame + int64(i))
				}
				line.Push(sound.Piece{Stream: 1, Media: n * frame, Arrival: time.Now(), PCM: pcm})
				line.Picture(time.Now(), time.Time{}, time.Now().Add(time.Second))
				time.Sleep(20 * time.Millisecond)
			}
		})
		word := make([]int16, 2*sound.Rate)
		for i := range word {
			word[i] = int16(8000 * math.Sin(2*math.Pi*2000*float64(i)/sound.Rate))
		}
		u := w.NewUtterance(speech.Events{})
		_, err = u.Write(media.PCM{Rate: sound.Rate, Samples: word})
		require.NoError(t, err)
		u.End()
		time.Sleep(2900 * time.Millisecond)
		u.Start(began.Add(3 * time.Second))
		time.Sleep(5 * time.Second)
		stop()
		wg.Wait()

		ms := time.Millisecond
		for name, s := range map[string]*sink{"alone": &out, "mixed": &both} {
			got := pcm(t, s.payloads, s.timestamps)
			// The sound alone begins with the schedule's first frame.
			full := level(got, 2000*ms, 440)
			require.InDelta(t, -12.2, full, 1.5, name) // 8000 of 32768
			require.InDelta(t, full, level(got, 2850*ms, 440), 1, name)
			for _, at := range []time.Duration{3010 * ms, 4000 * ms, 4900 * ms} {
				require.InDelta(t, full-12, level(got, at, 440), 2, "%s at %v", name, at)
			}
			require.InDelta(t, full, level(got, 5400*ms, 440), 1, name)
			if name == "mixed" {
				require.InDelta(t, -12.2, level(got, 4000*ms, 2000), 1.5, "the voice")
				require.Less(t, level(got, 2000*ms, 2000), -40.0)
			} else {
				require.Less(t, level(got, 4000*ms, 2000), -40.0)
			}
		}
		require.Zero(t, p.Stats().MixLost)
	})
}

// TestPlayerWithoutSound sends no packet to the room, and the voice alone as the mix.
func TestPlayerWithoutSound(t *testing.T) {
	for name, line := range map[string]*sound.Line{"none": nil, "silent camera": sound.NewLine(30*time.Second, 12)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var voice, out sink
				w, err := speech.New(speech.Options{Out: &voice})
				require.NoError(t, err)
				p, err := sound.NewPlayer(sound.PlayerOptions{Voice: w, Line: line, Out: &out})
				require.NoError(t, err)
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
				defer stop()
				mixed, _ := p.Mix()
				var wg sync.WaitGroup
				wg.Go(func() { require.NoError(t, p.Run(ctx)) })
				synctest.Wait()
				wg.Go(func() { require.NoError(t, w.Run(ctx)) })
				n := 0
				var last sound.Packet
				for m := range mixed {
					if n++; n > 1 {
						require.EqualValues(t, 960, m.Timestamp-last.Timestamp)
						require.Equal(t, 20*time.Millisecond, m.At.Sub(last.At))
					}
					last = m
				}
				wg.Wait()
				require.InDelta(t, 100, n, 1)
				require.Empty(t, out.payloads)
			})
		})
	}
}
