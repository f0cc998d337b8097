//go:build integration

package codec_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/codec/codectest"
)

// requirePlayable checks the H264 profile of browsers: constrained baseline, parameter sets
// before each key frame, no delimiters and one slice.
func requirePlayable(t *testing.T, f media.EncodedFrame) {
	t.Helper()
	if f.Codec != media.H264 {
		return
	}
	var types []byte
	for _, h := range nalHeads(f.Data) {
		types = append(types, h&0x1f)
	}
	if !f.KeyFrame {
		require.Equal(t, []byte{1}, types)
		return
	}
	require.True(t, bytes.Contains(types, []byte{7, 8}), "SPS and PPS in front of a key frame, got %v", types)
	require.EqualValues(t, 5, types[len(types)-1])
	for i := 0; i+6 < len(f.Data); i++ {
		if f.Data[i] == 0 && f.Data[i+1] == 0 && f.Data[i+2] == 1 && f.Data[i+3]&0x1f == 7 {
			require.EqualValues(t, 66, f.Data[i+4], "profile_idc of baseline")
			require.NotZero(t, f.Data[i+5]&0x40, "constraint_set1_flag makes it constrained")
			break
		}
	}
}

func newTranscoder(t *testing.T, o codec.Options) (*codec.Decoder, chan media.EncodedFrame) {
	t.Helper()
	out := make(chan media.EncodedFrame, 1000)
	o.Path = codectest.Program()
	o.Transcode.OnFrame = func(f media.EncodedFrame) { out <- f }
	tr, err := codec.New(o)
	require.NoError(t, err)
	tr.SetTranscode(true)
	start(t, tr)
	return tr, out
}

func TestTranscode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ from, to media.Codec }{
		{media.VP9, media.H264},
		{media.AV1, media.H264},
		{media.H265, media.H264},
		{media.VP8, media.H264},
		{media.H264, media.VP8},
	} {
		t.Run(fmt.Sprintf("%v to %v", tt.from, tt.to), func(t *testing.T) {
			t.Parallel()
			clip := barsClip(t, tt.from, 320, 180, 0, 40, 40)
			tr, out := newTranscoder(t, codec.Options{Transcode: codec.TranscodeOptions{Codec: tt.to}})
			r := newRig(t, codec.Options{})
			require.Eventually(t, func() bool { return tr.Decode(clip[0], false) == nil }, soon, time.Millisecond)
			for i, in := range clip {
				if i == 25 {
					tr.ForceKeyFrame()
				}
				if i > 0 {
					require.NoError(t, tr.Decode(in, false))
				}
				f := receive(t, out, "a transcoded frame")
				require.Equal(t, tt.to, f.Codec)
				require.Equal(t, i == 0 || i == 25, f.KeyFrame, "frame %d", i)
				require.Equal(t, isKey(tt.to, f.Data), f.KeyFrame)
				requirePlayable(t, f)
				in.Codec, in.KeyFrame, in.Data, in.Width, in.Height = f.Codec, f.KeyFrame, f.Data, 320, 180
				require.Equal(t, in, f, "times and epoch are the source's")
				require.NoError(t, r.Decode(f, true))
				require.Equal(t, i, readBars(t, receive(t, r.pictures, "a picture")))
			}
			require.Empty(t, out)
		})
	}
}

func TestTranscodeSurvivesChanges(t *testing.T) {
	t.Parallel()
	tr, out := newTranscoder(t, codec.Options{})
	r := newRig(t, codec.Options{})
	first := true
	for epoch, size := range [][2]int{{320, 180}, {160, 90}, {333, 187}, {320, 180}} {
		clip := barsClip(t, media.VP8, size[0], size[1], 0, 5, 5)
		for i, f := range clip {
			f.Epoch = uint32(epoch / 2)
			if first {
				require.Eventually(t, func() bool { return tr.Decode(f, false) == nil }, soon, time.Millisecond)
				first = false
			} else {
				require.NoError(t, tr.Decode(f, false))
			}
			got := receive(t, out, "a transcoded frame")
			require.Equal(t, [2]int{size[0] &^ 1, size[1] &^ 1}, [2]int{got.Width, got.Height})
			require.Equal(t, i == 0, got.KeyFrame, "a new size begins with a key frame")
			got.Epoch = 7
			require.NoError(t, r.Decode(got, true))
			require.Equal(t, i, readBars(t, receive(t, r.pictures, "a picture")))
		}
	}
}

func TestTranscodeWithoutX264(t *testing.T) {
	t.Parallel()
	tr, out := newTranscoder(t, codec.Options{Avoid: []string{"libx264", "libopenh264"}})
	clip := barsClip(t, media.VP9, 320, 180, 0, 3, 3)
	require.Eventually(t, func() bool { return tr.Decode(clip[0], false) == nil }, soon, time.Millisecond)
	require.Equal(t, media.VP8, receive(t, out, "a transcoded frame").Codec)
}

// The bit rate is capped for any content and picture rate.
func TestTranscodeRate(t *testing.T) {
	t.Parallel()
	for _, fps := range []int{30, 10} {
		args, apt := encodeArgs(media.VP8)
		stream := ffmpeg(t, nil, apt, append(append([]string{
			"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=s=640x360:r=%d,noise=alls=30:allf=t", fps), "-t", "4",
			"-pix_fmt", "yuv420p", "-b:v", "8M", "-g", "999",
		}, args...), "-")...)
		tr, out := newTranscoder(t, codec.Options{Transcode: codec.TranscodeOptions{BitRate: 2_000_000}})
		size := 0
		clip := accessUnits(t, media.VP8, stream)
		for i, f := range clip {
			f.PTS = time.Duration(i) * time.Second / time.Duration(fps)
			if i == 2*fps { // by then the rate of pictures is known
				tr.ForceKeyFrame()
				size = 0
			}
			require.Eventually(t, func() bool { return tr.Decode(f, false) == nil }, soon, time.Millisecond)
			size += len(receive(t, out, "a transcoded frame").Data)
		}
		require.InDelta(t, 2_000_000*0.354, 8*size/2, 200_000, "bit/s at %d pictures a second", fps)
	}
}

// TestTranscoderChoosesItsCodec: another codec is encoded from the next picture on, without a restart.
func TestTranscoderChoosesItsCodec(t *testing.T) {
	t.Parallel()
	var vp8 atomic.Bool
	out := make(chan media.EncodedFrame, 100)
	r := newRig(t, codec.Options{Transcode: codec.TranscodeOptions{OnFrame: func(f media.EncodedFrame) { out <- f }, Choose: func() media.Codec {
		if vp8.Load() {
			return media.VP8
		}
		return media.H264
	}}})
	r.SetTranscode(true)
	clip := barsClip(t, media.H265, 320, 180, 0, 30, 10)
	r.feed(t, clip[:5], always)
	for range 5 {
		require.Equal(t, media.H264, receive(t, out, "a frame").Codec)
	}
	vp8.Store(true)
	r.feed(t, clip[5:10], always)
	for i := range 5 {
		f := receive(t, out, "a frame")
		require.Equal(t, media.VP8, f.Codec)
		require.Equal(t, i == 0, f.KeyFrame)
	}
}

// One process decodes once for pictures and stream.
func TestDecoderTranscodesToo(t *testing.T) {
	t.Parallel()
	out := make(chan media.EncodedFrame, 100)
	r := newRig(t, codec.Options{Transcode: codec.TranscodeOptions{OnFrame: func(f media.EncodedFrame) { out <- f }}})
	clip := barsClip(t, media.H265, 320, 180, 0, 30, 10)
	r.feed(t, clip[:5], always)
	r.SetTranscode(true)
	r.feed(t, clip[5:10], never)
	_, err := r.Latest(t.Context())
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(receive(t, r.log.pids, "a process"), syscall.SIGKILL))
	receive(t, r.restarts, "the call of OnRestart")
	r.feed(t, clip[10:15], always)
	r.SetTranscode(false)
	r.feed(t, clip[15:20], never)
	for i := 5; i < 15; i++ {
		f := receive(t, out, "a transcoded frame")
		require.Equal(t, clip[i].PTS, f.PTS)
		require.Equal(t, i == 5 || i == 10, f.KeyFrame)
	}
	require.Empty(t, out)
	require.Len(t, r.pictures, 10)
}

func newEncoder(tb testing.TB, o codec.EncoderOptions) (*codec.Encoder, chan media.EncodedFrame, *logLines) {
	tb.Helper()
	out, log := make(chan media.EncodedFrame, 1000), newLog()
	o.Path, o.OnFrame, o.Log = codectest.Program(), func(f media.EncodedFrame) { out <- f }, zerolog.New(log)
	e, err := codec.NewEncoder(o)
	require.NoError(tb, err)
	start(tb, e)
	receive(tb, log.pids, "the process")
	return e, out, log
}

func TestEncoderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, to := range []media.Codec{media.H264, media.VP8} {
		t.Run(to.String(), func(t *testing.T) {
			t.Parallel()
			const w, h = 320, 180
			e, out, _ := newEncoder(t, codec.EncoderOptions{Codec: to, Width: w, Height: h, FPS: 30, BitRate: 1_000_000})
			r := newRig(t, codec.Options{})
			base := time.Now()
			for i := range 30 {
				p := codec.Picture{
					Pix: toI420(drawBars(w, h, i), w, h), PTS: time.Duration(i) * frameGap,
					Arrival: base.Add(time.Duration(i) * frameGap), NTP: base, Epoch: 4,
				}
				require.NoError(t, e.Encode(t.Context(), p, i == 17))
				f := receive(t, out, "an encoded frame")
				require.Equal(t, i == 0 || i == 17, f.KeyFrame, "frame %d", i)
				require.Equal(t, isKey(to, f.Data), f.KeyFrame)
				requirePlayable(t, f)
				require.Equal(t, media.EncodedFrame{
					Codec: to, KeyFrame: f.KeyFrame, PTS: p.PTS, NTP: p.NTP, Arrival: p.Arrival, Received: p.Arrival, Epoch: 4,
					Width: w, Height: h, SpatialLayers: 1, Data: f.Data,
				}, f)
				require.NoError(t, r.Decode(f, true))
				require.Equal(t, i, readBars(t, receive(t, r.pictures, "a picture")))
			}
		})
	}
}

// toI420 is the plain BT.601 conversion.
func toI420(rgb []byte, w, h int) []byte {
	out := make([]byte, codec.PictureBytes(w, h))
	u, v := out[w*h:], out[w*h+(w/2)*(h/2):]
	for y := range h {
		for x := range w {
			r, g, b := float64(rgb[3*(y*w+x)]), float64(rgb[3*(y*w+x)+1]), float64(rgb[3*(y*w+x)+2])
			out[y*w+x] = byte(16 + 0.257*r + 0.504*g + 0.098*b)
			u[y/2*(w/2)+x/2] = byte(128 - 0.148*r - 0.291*g + 0.439*b)
			v[y/2*(w/2)+x/2] = byte(128 + 0.439*r - 0.368*g - 0.071*b)
		}
	}
	return out
}

func TestEncoderProcessIsReplaced(t *testing.T) {
	t.Parallel()
	out, log := make(chan media.EncodedFrame, 1000), newLog()
	e, err := codec.NewEncoder(codec.EncoderOptions{
		Codec: media.H264, Width: 64, Height: 64, FPS: 30, BitRate: 100_000, Path: codectest.Program(), Log: zerolog.New(log),
		OnFrame: func(f media.EncodedFrame) { out <- f },
	})
	require.NoError(t, err)
	p := codec.Picture{Pix: toI420(drawBars(64, 64, 1), 64, 64)}
	require.ErrorIs(t, e.Encode(t.Context(), p, false), codec.ErrNotRunning)
	require.ErrorContains(t, e.Encode(t.Context(), codec.Picture{Pix: p.Pix[1:]}, false), "expected 6144 bytes")
	start(t, e)
	pid := receive(t, log.pids, "a process")
	require.NoError(t, e.Encode(t.Context(), p, false))
	require.True(t, receive(t, out, "a frame").KeyFrame)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	receive(t, log.pids, "another process")
	// The first ones may still be sent to the ended process.
	for again := true; again; {
		p.PTS += frameGap
		if err := e.Encode(t.Context(), p, false); err != nil {
			require.ErrorIs(t, err, codec.ErrRestarted)
			continue
		}
		select {
		case f := <-out:
			require.True(t, f.KeyFrame)
			again = false
		case <-time.After(time.Second):
		}
	}
}

func TestNewEncoderChecks(t *testing.T) {
	t.Parallel()
	good := codec.EncoderOptions{
		Codec: media.VP8, Width: 64, Height: 64, FPS: 30, BitRate: 100_000, Path: codectest.Program(),
		OnFrame: func(media.EncodedFrame) {},
	}
	for _, tt := range []struct {
		want   string
		change func(*codec.EncoderOptions)
	}{
		{"H264 or VP8", func(o *codec.EncoderOptions) { o.Codec = media.VP9 }},
		{"even edges", func(o *codec.EncoderOptions) { o.Width = 63 }},
		{"even edges", func(o *codec.EncoderOptions) { o.Height = 100_000 }},
		{"pictures a second", func(o *codec.EncoderOptions) { o.FPS = 0 }},
		{"bit rate", func(o *codec.EncoderOptions) { o.BitRate = 1 }},
		{"OnFrame", func(o *codec.EncoderOptions) { o.OnFrame = nil }},
	} {
		o := good
		tt.change(&o)
		_, err := codec.NewEncoder(o)
		require.ErrorContains(t, err, tt.want)
	}
}
