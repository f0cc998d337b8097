package speech_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/speech"
)

// BenchmarkResampler measures 20 ms of sound.
func BenchmarkResampler(b *testing.B) {
	for _, rate := range []int{16000, 22050, 24000, 44100, 48000} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) {
			r, err := speech.NewResampler(rate)
			require.NoError(b, err)
			in := noise(rate / 50)
			out := make([]int16, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				out = r.Append(out[:0], in)
			}
		})
	}
}

// BenchmarkEncoder measures 20 ms of the track; core-% is of one core in real time.
func BenchmarkEncoder(b *testing.B) {
	speaking := flite(b, "The red team moves down the left side, looking for an opening near the box.")
	for _, complexity := range []int{1, 5, 8, 9, 10} {
		for _, what := range []string{"speech", "silence"} {
			b.Run(fmt.Sprintf("complexity=%d/%s", complexity, what), func(b *testing.B) {
				enc, err := opus.NewEncoder(48000, 1, opus.AppVoIP)
				require.NoError(b, err)
				require.NoError(b, enc.SetBitrate(32000))
				require.NoError(b, enc.SetComplexity(complexity))
				require.NoError(b, enc.SetInBandFEC(true))
				require.NoError(b, enc.SetPacketLossPerc(10))
				require.NoError(b, enc.SetDTX(what == "silence"))
				pcm := make([]int16, 48000)
				if what == "speech" {
					r, err := speech.NewResampler(speaking.Rate)
					require.NoError(b, err)
					pcm = r.Append(nil, speaking.Samples)
				}
				data := make([]byte, 1500)
				bytes, n, at := 0, 0, 0
				for b.Loop() {
					if at+960 > len(pcm) {
						at = 0
					}
					size, err := enc.Encode(pcm[at:at+960], data)
					require.NoError(b, err)
					at += 960
					n++
					bytes += size
				}
				b.ReportMetric(float64(bytes)*50*8/1000/float64(n), "kbit/s")
				b.ReportMetric(100*b.Elapsed().Seconds()/float64(n)/0.02, "core-%")
			})
		}
	}
}

func noise(n int) []int16 {
	r := rand.New(rand.NewPCG(1, 2))
	s := make([]int16, n)
	for i := range s {
		s[i] = int16(r.IntN(20000) - 10000)
	}
	return s
}
