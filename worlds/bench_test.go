package worlds_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/worlds"
)

// BenchmarkRender720p draws a minute of each world, backgrounds apart. The
// metric is the share of one core that 30 frames a second take.
func BenchmarkRender720p(b *testing.B) {
	for _, name := range worlds.Worlds() {
		b.Run(name, func(b *testing.B) {
			w := world(b, worlds.Options{World: name, Seed: 1, Width: 1280, Height: 720})
			buf := make([]byte, w.I420Size())
			for n := uint32(0); n < 60*30; n += 20 {
				require.NoError(b, w.Render(n, buf))
			}
			n := uint32(0)
			for b.Loop() {
				if err := w.Render(n%(60*30), buf); err != nil {
					b.Fatal(err)
				}
				n += 7
			}
			perFrame := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(perFrame*30*100, "%core@30fps")
		})
	}
}
