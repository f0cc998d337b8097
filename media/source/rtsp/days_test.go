package rtsp_test

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

// TestJPEGAfterDays: the times of MJPEG stay exact over a weekend.
func TestJPEGAfterDays(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	require.NoError(t, jpeg.Encode(&picture, image.NewYCbCr(image.Rect(0, 0, 64, 64), image.YCbCrSubsampleRatio420), nil))
	f := &format.MJPEG{}
	enc, err := f.CreateEncoder()
	require.NoError(t, err)
	var got media.EncodedFrame
	now := time.Unix(1, 0)
	r := rtsp.NewReader(f, source.Sink{Frame: func(f media.EncodedFrame) { got = f }})
	r.SetNow(func() time.Time { return now })
	const step = 10 * time.Minute
	for i := range int64(72 * time.Hour / step) {
		packets, err := enc.Encode(picture.Bytes())
		require.NoError(t, err)
		for _, p := range packets {
			p.Timestamp = uint32(i * int64(step/time.Second) * media.VideoClockRate) // modulo 2^32
			r.Packet(p)
		}
		require.Equal(t, time.Duration(i)*step, got.PTS)
		require.WithinDuration(t, now, got.Arrival, time.Millisecond)
		now = now.Add(step)
	}
}
