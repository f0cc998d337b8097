//go:build integration

package codec_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/polygon"
	"touchline/media"
	"touchline/media/codec"
)

// rightHalf masks the right half of a picture of 16:9.
func rightHalf(version uint32) polygon.Masks {
	return polygon.Masks{Version: version, Shapes: []polygon.Shape{{
		Aspect: 16.0 / 9, Points: []polygon.Point{{0.5, 0}, {1, 0}, {1, 1}, {0.5, 1}},
	}}}
}

// requireHalf checks that the right half of a test picture is black, and the left half is not.
func requireHalf(t *testing.T, f media.VideoFrame) {
	t.Helper()
	for y := range f.Height {
		for x := range f.Width {
			p := 3 * (y*f.Width + x)
			if x >= f.Width/2 {
				require.Less(t, max(f.Pix[p], f.Pix[p+1], f.Pix[p+2]), byte(12), "%d, %d of %d x %d", x, y, f.Width, f.Height)
			}
		}
	}
	require.InDelta(t, 235, int(f.Pix[3*(f.Height/2*f.Width+f.Width/16)]), 14, "the first bar")
}

// TestMasks: nothing under a mask is in a sampled, asked or encoded picture, of any codec and size, and after the process was replaced.
func TestMasks(t *testing.T) {
	t.Parallel()
	for _, c := range allCodecs() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			out := make(chan media.EncodedFrame, 100)
			clip := barsClip(t, c, 320, 180, 0, 40, 10)
			r := newRig(t, codec.Options{LongSide: 160, Transcode: codec.TranscodeOptions{OnFrame: func(f media.EncodedFrame) { out <- f }}})
			r.SetMasks(rightHalf(1))
			r.SetTranscode(true)
			r.feed(t, clip[:10], always)
			for range 10 {
				requireHalf(t, receive(t, r.pictures, "a picture"))
			}
			seen := newRig(t, codec.Options{})
			for range 10 {
				require.NoError(t, seen.Decode(receive(t, out, "a transcoded frame"), true))
				requireHalf(t, receive(t, seen.pictures, "a transcoded picture"))
			}
			p, err := r.Latest(t.Context())
			require.NoError(t, err)
			requireHalf(t, p)

			require.NoError(t, syscall.Kill(receive(t, r.log.pids, "a process"), syscall.SIGKILL))
			receive(t, r.restarts, "the call of OnRestart")
			r.feed(t, clip[10:20], always)
			for range 10 {
				requireHalf(t, receive(t, r.pictures, "a picture of the next process"))
			}
			r.SetMasks(polygon.Masks{Version: 2})
			r.feed(t, clip[20:21], always)
			require.Equal(t, 20, readBars(t, receive(t, r.pictures, "a picture without masks")))
			r.SetMasks(rightHalf(3))
			p, err = r.Latest(t.Context())
			require.NoError(t, err)
			requireHalf(t, p)
		})
	}
}

// TestMasksOfAnotherRatio: a picture that is turned, or has another ratio, is covered as a whole.
func TestMasksOfAnotherRatio(t *testing.T) {
	t.Parallel()
	r := newRig(t, codec.Options{})
	r.SetMasks(rightHalf(1))
	f := media.EncodedFrame{Codec: codec.MJPEG, KeyFrame: true, Width: 320, Height: 180, SpatialLayers: 1}
	for i, whole := range map[uint16]bool{1: false, 6: true, 3: false, 8: true} {
		f.Data = oriented(t, i)
		require.NoError(t, r.Decode(f, true))
		p := receive(t, r.pictures, "a picture")
		bright := false
		for _, v := range p.Pix {
			bright = bright || v > 12
		}
		require.Equal(t, !whole, bright, "orientation %d", i)
	}
	clip := barsClip(t, media.VP8, 336, 180, 0, 1, 1) // 5 % wider
	require.NoError(t, r.Decode(clip[0], true))
	for _, v := range receive(t, r.pictures, "a picture").Pix {
		require.Less(t, v, byte(12))
	}
}

// TestMasksBefore: a picture that the process sent before it knew the masks is not passed on.
func TestMasksBefore(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.H264, 320, 180, 0, 60, 60)
	r := newRig(t, codec.Options{})
	for i, f := range clip {
		require.NoError(t, r.Decode(f, true))
		if i == 30 {
			r.SetMasks(rightHalf(1))
			for len(r.pictures) > 0 { // passed on before
				<-r.pictures
			}
		}
		if i%20 == 19 {
			_, err := r.Latest(t.Context())
			require.NoError(t, err)
		}
	}
	p, err := r.Latest(t.Context())
	require.NoError(t, err)
	requireHalf(t, p)
	require.Eventually(t, func() bool { return len(r.pictures) > 20 }, soon, time.Millisecond)
	for len(r.pictures) > 0 {
		requireHalf(t, <-r.pictures)
	}
}

// BenchmarkMasks is the cost of a room whose picture is 720p30, with a mask over a quarter: two pictures a second for the engine, and
// with all pictures encoded again for the delayed picture. %core is the processor time of both processes by media time.
func BenchmarkMasks(b *testing.B) {
	const seconds = 10
	clip, _ := movingClip(b, media.H264, "1280x720", seconds)
	quarter := polygon.Masks{Version: 1, Shapes: []polygon.Shape{{
		Aspect: 16.0 / 9, Points: []polygon.Point{{0.5, 0.5}, {1, 0.5}, {1, 1}, {0.5, 1}},
	}}}
	for _, bb := range []struct {
		name            string
		mask, transcode bool
	}{{"none", false, false}, {"mask", true, false}, {"transcode", false, true}, {"mask_delayed", true, true}} {
		b.Run(bb.name, func(b *testing.B) {
			r := newRig(b, codec.Options{LongSide: 448, Transcode: codec.TranscodeOptions{OnFrame: func(media.EncodedFrame) {}}})
			if bb.mask {
				r.SetMasks(quarter)
			}
			r.SetTranscode(bb.transcode)
			pid := receive(b, r.log.pids, "the process")
			child, own := cpuOf(b, pid), ownCPU(b)
			for b.Loop() {
				for i, f := range clip {
					require.NoError(b, r.Decode(f, i%15 == 0))
					if i%20 == 19 {
						_, err := r.Latest(b.Context())
						require.NoError(b, err)
					}
				}
			}
			child, own = cpuOf(b, pid)-child, ownCPU(b)-own
			b.ReportMetric(100*float64(child+own)/(float64(b.N*seconds)*float64(time.Second)), "%core")
			b.ReportMetric(0, "ns/op")
		})
	}
}
