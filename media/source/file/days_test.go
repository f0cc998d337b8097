package file_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts/codecs"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// TestTransportStreamAfterDays: times stay exact beyond the 33 bits of the clock.
func TestTransportStreamAfterDays(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	track := &mpegts.Track{PID: 256, Codec: &codecs.H264{}}
	w := &mpegts.Writer{W: &b, Tracks: []*mpegts.Track{track}}
	require.NoError(t, w.Initialize())
	const step, reorder = 10 * 60 * 90000, 7200
	idr := [][]byte{{0x67, 0x42, 0xc0, 0x1f, 0xda, 0x02, 0x80, 0xf6, 0x84}, {0x68, 0xce, 0x3c, 0x80}, {0x65, 0x88, 0x84, 1}}
	n := 72 * 6
	for i := range int64(n) {
		dts := i*step + 1<<33 - 27*step - reorder/2 // the clock wraps between a DTS and its PTS
		require.NoError(t, w.WriteH264(track, (dts+reorder)&(1<<33-1), dts&(1<<33-1), idr))
	}
	pts, dts := file.TimesTS(b.Bytes(), media.H264)
	require.Len(t, pts, n)
	for i := range pts {
		require.Equal(t, time.Duration(i)*10*time.Minute, dts[i]-dts[0], "picture %d", i)
		require.Equal(t, 80*time.Millisecond, pts[i]-dts[i], "picture %d", i)
	}
}

// TestSoundAfterDays: the sound of a stream stays with its pictures.
func TestSoundAfterDays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var arrival, sound time.Time
		p := file.NewPacer(time.Now, source.Sink{
			Frame: func(f media.EncodedFrame) { arrival = f.Arrival },
			Opus:  func(o source.Opus) { sound = o.Arrival },
		})
		const step = 9 * time.Second
		for i := range int64(72 * time.Hour / step) {
			at := time.Duration(i) * step
			require.NoError(t, p.Picture(t.Context(), at, false))
			require.NoError(t, p.Sound(t.Context(), at, []byte{0xf8, 0xff, 0xfe}))
			require.WithinDuration(t, arrival, sound, 20*time.Millisecond, "after %v", at)
		}
	})
}
