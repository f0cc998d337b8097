package speech_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/internal/resample"
)

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
					pcm, err = resample.All(speaking.Samples, speaking.Rate, 48000)
					require.NoError(b, err)
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
