//go:build integration

package transcode_test

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/codec/codectest"
	"touchline/media/source"
	"touchline/media/source/file"
	"touchline/media/source/transcode"
)

func TestMain(m *testing.M) { codectest.Main(m) }

// converter runs a Converter and keeps its output.
type converter struct {
	*transcode.Converter
	mu     sync.Mutex
	frames []media.EncodedFrame
	asked  int
}

func start(t *testing.T, change func(*transcode.Options)) *converter {
	t.Helper()
	c := &converter{}
	o := transcode.Options{
		Path: codectest.Program(),
		Out: func(f media.EncodedFrame) {
			c.mu.Lock()
			defer c.mu.Unlock()
			f.Data = bytes.Clone(f.Data)
			c.frames = append(c.frames, f)
		},
		RequestKeyFrame: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.asked++
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	c.Converter, err = transcode.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return c
}

func (c *converter) got() []media.EncodedFrame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]media.EncodedFrame(nil), c.frames...)
}

// await waits for n frames.
func (c *converter) await(t *testing.T, n int) []media.EncodedFrame {
	t.Helper()
	require.Eventually(t, func() bool { return len(c.got()) >= n }, 2*time.Minute, 10*time.Millisecond, "want %d", n)
	return c.got()
}

// units returns the access units of a clip of 50 pictures.
func units(t *testing.T, args ...string) []media.EncodedFrame {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip.mp4")
	all := append([]string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=50", "-frames:v", "50", "-threads", "1",
	}, args...)
	out, err := exec.CommandContext(t.Context(), "ffmpeg", append(all, path)...).CombinedOutput()
	require.NoError(t, err, string(out))
	clip, err := file.New(file.Options{
		Access: source.Access{Address: source.Address{Kind: source.File, Path: path}, Allow: source.AllowEverything(), Now: time.Now},
	})
	require.NoError(t, err)
	var frames []media.EncodedFrame
	err = clip.Pull(t.Context(), source.Sink{Frame: func(f media.EncodedFrame) { frames = append(frames, f) }})
	require.ErrorIs(t, err, source.ErrEnded)
	require.Len(t, frames, 50)
	return frames
}

// decodes returns the number of pictures that ffmpeg decodes.
func decodes(t *testing.T, frames []media.EncodedFrame) int {
	t.Helper()
	var stream bytes.Buffer
	for _, f := range frames {
		stream.Write(f.Data)
	}
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "h264", "-i", "pipe:0", "-f", "framemd5", "-fps_mode", "passthrough", "pipe:1")
	cmd.Stdin = &stream
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Empty(t, complaints.String())
	return strings.Count(string(out), "\n0,")
}

func TestFitStreamsPassUntouched(t *testing.T) {
	in := units(t, "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p")
	c := start(t, func(o *transcode.Options) { o.H265 = true })
	for _, f := range in {
		c.Frame(f)
	}
	out := c.got()
	require.Len(t, out, len(in))
	for i, f := range out {
		require.Equal(t, in[i].Data, f.Data)
		require.EqualValues(t, 1, f.Epoch)
	}
	require.Empty(t, c.Reason())
	c.RequestKeyFrame()
	require.Equal(t, 1, c.asked)

	again := in[0]
	again.Epoch = 9
	later := in[1]
	later.Epoch = 9
	c.Frame(later)
	require.Len(t, c.got(), len(in), "an epoch begins with a key frame")
	require.Equal(t, 2, c.asked)
	c.Frame(again)
	require.EqualValues(t, 2, c.got()[len(in)].Epoch)
}

func TestH265(t *testing.T) {
	in := units(t, "-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params", "bframes=0:log-level=none:pools=1")
	pass := start(t, func(o *transcode.Options) { o.H265 = true })
	c := start(t, nil)
	for _, f := range in {
		pass.Frame(f)
		c.Frame(f)
		time.Sleep(5 * time.Millisecond)
	}
	require.Len(t, pass.got(), len(in))
	out := c.await(t, len(in))
	require.Equal(t, len(in), decodes(t, out))
	require.Contains(t, c.Reason(), "H265")
	for i, f := range out {
		require.Equal(t, media.H264, f.Codec)
		require.Equal(t, in[i].PTS, f.PTS)
		require.Equal(t, 320, f.Width)
	}
}

// A stream with B frames has no loss: the pictures before the first one are transcoded as well.
func TestBFrames(t *testing.T) {
	in := units(t, "-c:v", "libx264", "-preset", "fast", "-bf", "2", "-pix_fmt", "yuv420p", "-g", "250")
	var reasons []string
	c := start(t, func(o *transcode.Options) { o.OnReason = func(s string) { reasons = append(reasons, s) } })
	for _, f := range in {
		c.Frame(f)
		time.Sleep(5 * time.Millisecond)
	}
	require.Eventually(t, func() bool { return transcoded(c.got()) >= len(in)-4 }, 2*time.Minute, 10*time.Millisecond,
		"the decoder keeps the last ones until more come")
	require.Len(t, reasons, 1)
	require.Contains(t, reasons[0], "B frames")
	var out []media.EncodedFrame
	for _, f := range c.got() {
		if f.Epoch == 2 {
			out = append(out, f)
		}
	}
	require.True(t, out[0].KeyFrame)
	require.Zero(t, out[0].PTS, "from the key frame on")
	for i := 1; i < len(out); i++ {
		require.Greater(t, out[i].PTS, out[i-1].PTS)
	}
	require.Equal(t, len(out), decodes(t, out))

	// From then on B frames are expected.
	in[0].Epoch = 7
	c.Frame(in[0])
	c.Frame(func() media.EncodedFrame { f := in[1]; f.Epoch = 7; return f }())
	for _, f := range c.got()[len(c.got())-1:] {
		require.NotEqual(t, in[0].Data, f.Data)
	}
}

func transcoded(frames []media.EncodedFrame) (n int) {
	for _, f := range frames {
		if f.Epoch == 2 {
			n++
		}
	}
	return n
}

func TestDeepColour(t *testing.T) {
	in := units(t, "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv422p", "-profile:v", "high422")
	c := start(t, nil)
	for _, f := range in {
		c.Frame(f)
		time.Sleep(5 * time.Millisecond)
	}
	out := c.await(t, len(in))
	require.Contains(t, c.Reason(), "4:2:0")
	require.Equal(t, len(in), decodes(t, out))
}

// TestPicturesThatAreNoIDR: a stream with intra refresh that is joined late has recovery points only. It is transcoded from the first one.
func TestPicturesThatAreNoIDR(t *testing.T) {
	in := units(t, "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p",
		"-x264-params", "intra-refresh=1:keyint=10:repeat-headers=1")
	c := start(t, nil)
	for _, f := range in[5:] {
		c.Frame(f)
		time.Sleep(5 * time.Millisecond)
	}
	out := c.await(t, 20)
	require.Contains(t, c.Reason(), "IDR")
	require.True(t, out[0].KeyFrame)
	require.Equal(t, len(out), decodes(t, out))
}

// JPEG pictures of two sizes.
func TestJPEG(t *testing.T) {
	c := start(t, nil)
	send := func(n, w, h int, epoch uint32) {
		img := image.NewYCbCr(image.Rect(0, 0, w, h), image.YCbCrSubsampleRatio420)
		for i := range n {
			for y := range h {
				for x := range w {
					img.Y[y*img.YStride+x] = byte(x + y + 7*i)
				}
			}
			var b bytes.Buffer
			require.NoError(t, jpeg.Encode(&b, img, nil))
			c.Frame(media.EncodedFrame{
				Codec: codec.MJPEG, KeyFrame: true, PTS: time.Duration(i) * 40 * time.Millisecond, Epoch: epoch,
				Width: w, Height: h, SpatialLayers: 1, Data: b.Bytes(),
			})
			time.Sleep(5 * time.Millisecond)
		}
	}
	// While the codec process starts, the newest picture is enough.
	for len(c.got()) == 0 {
		send(1, 320, 240, 1)
	}
	n := len(c.got())
	send(20, 320, 240, 1)
	n = len(c.await(t, n+20))
	require.Equal(t, 320, c.got()[n-1].Width)
	send(20, 640, 480, 2)
	require.Eventually(t, func() bool {
		out := c.got()
		return len(out) >= n+20 && out[len(out)-1].Width == 640 && out[len(out)-1].Epoch == 2
	}, 2*time.Minute, 10*time.Millisecond)
	keys := func() (n int) {
		for _, f := range c.got() {
			if f.KeyFrame {
				n++
			}
		}
		return n
	}
	before := keys()
	c.RequestKeyFrame()
	send(1, 640, 480, 2)
	require.Eventually(t, func() bool { return keys() > before }, 2*time.Minute, time.Millisecond, "a key frame on demand")
}

// TestTurnedPicture: a picture that its transport turns is transcoded, upright.
func TestTurnedPicture(t *testing.T) {
	c := start(t, nil)
	f := units(t, "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p")[0]
	f.Turn = 1
	require.Eventually(t, func() bool {
		f.PTS += 20 * time.Millisecond
		c.Frame(f)
		return len(c.got()) > 0
	}, 2*time.Minute, 10*time.Millisecond)
	require.Contains(t, c.Reason(), "do not turn pictures")
	require.Equal(t, [2]int{180, 320}, [2]int{c.got()[0].Width, c.got()[0].Height})
}
