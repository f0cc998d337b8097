package file_test

import (
	"bytes"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts/codecs"
	"github.com/stretchr/testify/require"

	"touchline/internal/ticks"
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

// TestWrapOfPTS plays twenty minutes of a transport stream with sound around the wrap of its clock: each picture and each packet comes in
// its moment.
func TestWrapOfPTS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, fps, wraps = 20 * time.Minute, 25, 10 * time.Minute
		in, out := io.Pipe()
		go func() {
			_ = out.CloseWithError(writeTS(out, 1<<33-ticks.Count(wraps, media.VideoClockRate), length, fps))
		}()
		var pictures, sounds int
		var began time.Time
		var heap [2]uint64
		var worst time.Duration
		p := file.NewPacer(time.Now, source.Sink{
			Frame: func(f media.EncodedFrame) {
				if pictures == 0 {
					began = time.Now()
				}
				at := ticks.Duration(int64(pictures), fps)
				worst = max(worst, (f.PTS - at).Abs(), (time.Since(began) - at).Abs(), time.Since(f.Arrival.Add(-80*time.Millisecond)).Abs())
				if f.Epoch != 0 {
					t.Errorf("epoch %d at picture %d", f.Epoch, pictures)
				}
				pictures++
				if pictures == fps*60 || pictures == fps*60*19 {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					heap[pictures/(fps*60*19)] = m.HeapAlloc
				}
			},
			Opus: func(o source.Opus) {
				sounds++
				worst = max(worst, time.Since(o.Arrival).Abs()-preSkip)
			},
		})
		require.ErrorIs(t, p.PlayTS(t.Context(), in, media.H264), io.EOF)
		require.Equal(t, int(length.Seconds())*fps, pictures)
		require.InDelta(t, length/(100*time.Millisecond), sounds, 10)
		require.LessOrEqual(t, worst, time.Millisecond)
		require.LessOrEqual(t, heap[1], heap[0]+1e6)
	})
}

// preSkip is the delay of an Opus encoder.
const preSkip = 312 * time.Second / 48000

// writeTS writes a transport stream of pictures and sound, with a time of its clock for the first picture.
func writeTS(out io.Writer, first int64, length time.Duration, fps int64) error {
	video, audio := &mpegts.Track{PID: 256, Codec: &codecs.H264{}}, &mpegts.Track{PID: 257, Codec: &codecs.Opus{ChannelCount: 1}} //nolint:staticcheck // shorter than the new field
	w := &mpegts.Writer{W: out, Tracks: []*mpegts.Track{video, audio}}
	if err := w.Initialize(); err != nil {
		return err
	}
	idr := [][]byte{{0x67, 0x42, 0xc0, 0x1f, 0xda, 0x02, 0x80, 0xf6, 0x84}, {0x68, 0xce, 0x3c, 0x80}, {0x65, 0x88, 0x84, 1}}
	const wrap, reorder, packet = 1<<33 - 1, 7200, media.VideoClockRate / 10
	sound := int64(reorder)
	for i := range ticks.Count(length, fps) {
		dts := i * media.VideoClockRate / fps
		err := w.WriteH264(video, (first+dts+reorder)&wrap, (first+dts)&wrap, idr)
		for ; err == nil && sound <= dts; sound += packet {
			err = w.WriteOpus(audio, (first+sound)&wrap, [][]byte{{0xf8, 0xff, 0xfe}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
