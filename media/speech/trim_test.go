package speech_test

import (
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/resample"
	"touchline/media"
)

// flite returns the speech of a text by flite, with silence around it.
func flite(tb testing.TB, text string) media.PCM {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "a.wav")
	out, err := exec.CommandContext(tb.Context(), "flite", "-voice", "slt", "-t", text, "-o", path).CombinedOutput()
	require.NoError(tb, err, "install flite: %s", out)
	return wav(tb, path)
}

// espeak returns the speech of a text by espeak-ng.
func espeak(tb testing.TB, text string) media.PCM {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "a.wav")
	out, err := exec.CommandContext(tb.Context(), "espeak-ng", "-v", "de", "-w", path, "--", text).CombinedOutput()
	require.NoError(tb, err, "install espeak-ng: %s", out)
	return wav(tb, path)
}

// wav reads a plain file with a header of 44 bytes.
func wav(tb testing.TB, path string) media.PCM {
	tb.Helper()
	b, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.Greater(tb, len(b), 44)
	pcm := media.PCM{Rate: int(binary.LittleEndian.Uint32(b[24:])), Samples: make([]int16, (len(b)-44)/2)}
	for i := range pcm.Samples {
		pcm.Samples[i] = int16(binary.LittleEndian.Uint16(b[44+2*i:]))
	}
	return pcm
}

func TestTrimsRealVoices(t *testing.T) {
	tests := []struct {
		name string
		pcm  media.PCM
		// The silence around it.
		before, after time.Duration
	}{
		{"flite", flite(t, "What a goal!"), 200 * time.Millisecond, 170 * time.Millisecond},
		{"flite, soft onset", flite(t, "He has the ball."), 200 * time.Millisecond, 170 * time.Millisecond},
		{"flite, fricatives", flite(t, "First half."), 200 * time.Millisecond, 170 * time.Millisecond},
		{"espeak-ng", espeak(t, "Was für ein Tor!"), 0, 280 * time.Millisecond},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			out := &wire{}
			w := track(t, nil, out)
			var h heard
			u := w.NewUtterance(h.events())
			// In pieces, as from a pipe.
			var audible time.Duration
			for part := range slices.Chunk(tt.pcm.Samples, 777) {
				next, err := u.Write(media.PCM{Rate: tt.pcm.Rate, Samples: part})
				require.NoError(t, err)
				require.GreaterOrEqual(t, next, audible)
				audible = next
			}
			total := u.End()
			t.Logf("%s: %v written, %v in front, %v audible", tt.name, tt.pcm.Duration(), u.LeadTrimmed(), total)
			require.InDelta(t, total.Seconds(), audible.Seconds(), 0.03)
			require.InDelta(t, tt.before.Seconds(), u.LeadTrimmed().Seconds(), 0.09)
			behind := tt.pcm.Duration() - u.LeadTrimmed() - total
			require.InDelta(t, tt.after.Seconds(), behind.Seconds(), 0.12)

			at := time.Now().Add(150 * time.Millisecond)
			u.Start(at)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			require.InDelta(t, 0, h.onset.Sub(at).Seconds(), 0.002)
			require.InDelta(t, total.Seconds(), h.end.Sub(h.onset).Seconds(), 0.001)

			// The listener hears it at that time, at the same level.
			sound, from := listen(t, out.all())
			on := onset(sound)
			t.Log("heard off by", from.Add(samples(on)).Sub(at))
			require.InDelta(t, 0, from.Add(samples(on)).Sub(at).Seconds(), 0.01)
			whole, err := resample.All(tt.pcm.Samples, tt.pcm.Rate, 48000)
			require.NoError(t, err)
			want := rms(whole[first(whole, 328):last(whole, 328)])
			require.InDelta(t, 0, 20*math.Log10(rms(sound[on:last(sound, 328)])/want), 1)
		})
	}
}

// onset is the first sample of -40 dBFS in the first 10 ms of -40 dBFS RMS.
func onset(s []int16) int {
	for i := 0; i+480 <= len(s); i += 48 {
		if rms(s[i:i+480]) >= 328 {
			return i + first(s[i:i+480], 328)
		}
	}
	return -1
}

// sine is a tone of 300 Hz at amplitude a.
func sine(n int, a float64) []int16 {
	s := make([]int16, n)
	for i := range s {
		s[i] = int16(math.RoundToEven(a * math.Sin(2*math.Pi*300*float64(i)/48000)))
	}
	return s
}

func TestSoftBeginningIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 60 ms at -46 dBFS before the loud part: heard, but before the onset.
		soft := sine(2880, 230)
		pcm := slices.Concat(make([]int16, 14400), soft, sine(24000, 6000), make([]int16, 9600))
		w := track(t, cheap{}, &wire{})
		frames, cancel := w.Frames()
		defer cancel()
		var h heard
		u := w.NewUtterance(h.events())
		_, err := u.Write(media.PCM{Rate: 48000, Samples: pcm})
		require.NoError(t, err)
		u.End()
		require.InDelta(t, 0.36, u.LeadTrimmed().Seconds(), 0.002)
		u.Start(time.Now().Add(200 * time.Millisecond))
		var sent []int16
		for range 49 {
			sent = append(sent, (<-frames).PCM...)
		}
		require.InDelta(t, 2880, first(sent, 328)-first(sent, 100), 50)
	})
}
