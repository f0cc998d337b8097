package judge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"touchline/internal/ticks"
	"touchline/media"
	"touchline/worlds"
)

// film yields a world's pictures in order, as an engine receives them: scaled, and, unless it is raw, encoded and decoded before.
type film struct {
	world         *worlds.World
	frames        uint32
	width, height int
	raw           []byte // a picture of the world
	codec         *codec // nil for raw pictures
	pix           []byte // a decoded picture
}

// bitRate of the encoded film.
const bitRate = "1500k"

// newFilm starts a film. Raw pictures are drawn only where they are used.
func newFilm(ctx context.Context, w *worlds.World, longSide int, length time.Duration, encoded bool) (*film, error) {
	width, height := w.Size()
	f := &film{
		world: w, frames: uint32(ticks.Count(length, int64(w.FPS()))),
		width: longSide, height: longSide * height / width / 2 * 2,
		raw: make([]byte, w.I420Size()),
	}
	if !encoded {
		return f, nil
	}
	f.pix = make([]byte, f.width*f.height*3)
	var err error
	f.codec, err = startCodec(ctx, f)
	return f, err
}

// picture returns picture n, which follows the previous call's. An unused picture has no pixels.
func (f *film) picture(n uint32, used bool) (media.VideoFrame, error) {
	out := media.VideoFrame{PTS: f.world.PTS(n), Width: f.width, Height: f.height}
	if f.codec != nil {
		if _, err := io.ReadFull(f.codec.out, f.pix); err != nil {
			return out, fmt.Errorf("decode picture %d: %w: %s", n, err, f.codec.complaints.String())
		}
		if used {
			out.Pix = bytes.Clone(f.pix)
		}
		return out, nil
	}
	if !used {
		return out, nil
	}
	if err := f.world.Render(n, f.raw); err != nil {
		return out, err
	}
	w, h := f.world.Size()
	out.Pix = shrink(f.raw, w, h, f.width, f.height)
	return out, nil
}

func (f *film) close() error {
	if f.codec == nil {
		return nil
	}
	return f.codec.close()
}

// codec is two ffmpeg processes: one encodes H264 as the demo does, the other decodes and scales it.
type codec struct {
	cancel         context.CancelFunc
	encode, decode *exec.Cmd
	out            io.Reader
	complaints     bytes.Buffer
	fed            chan struct{} // closed when drawing has ended
}

func startCodec(ctx context.Context, f *film) (*codec, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &codec{cancel: cancel, fed: make(chan struct{})}
	w, h := f.world.Size()
	rate := strconv.Itoa(f.world.FPS())
	c.encode = exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-threads", "1",
		"-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", fmt.Sprintf("%dx%d", w, h), "-r", rate, "-i", "pipe:0",
		"-c:v", "libx264", "-threads", "1", "-preset", "superfast", "-tune", "zerolatency", "-x264-params", "scenecut=0",
		"-g", strconv.Itoa(2*f.world.FPS()),
		"-b:v", bitRate, "-maxrate", bitRate, "-bufsize", bitRate, "-f", "h264", "pipe:1")
	c.decode = exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-threads", "1",
		"-f", "h264", "-r", rate, "-i", "pipe:0",
		"-vf", fmt.Sprintf("scale=%d:%d:flags=area", f.width, f.height), "-pix_fmt", "rgb24", "-f", "rawvideo", "pipe:1")
	c.encode.Stderr, c.decode.Stderr = &c.complaints, io.Discard
	in, err := c.encode.StdinPipe()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("connect to ffmpeg: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("connect to ffmpeg: %w", err)
	}
	c.encode.Stdout, c.decode.Stdin = write, read
	if c.out, err = c.decode.StdoutPipe(); err != nil {
		cancel()
		return nil, fmt.Errorf("connect to ffmpeg: %w", err)
	}
	err = errors.Join(c.encode.Start(), c.decode.Start(), read.Close(), write.Close())
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start ffmpeg (--no-codec does without): %w", err)
	}
	go func() {
		defer close(c.fed)
		_ = errors.Join(f.draw(in), in.Close()) // the decoder sees an early end
	}()
	return c, nil
}

// draw writes all pictures to the encoder.
func (f *film) draw(to io.Writer) error {
	for n := range f.frames {
		if err := f.world.Render(n, f.raw); err != nil {
			return err
		}
		if _, err := to.Write(f.raw); err != nil {
			return fmt.Errorf("hand a picture to ffmpeg: %w", err)
		}
	}
	return nil
}

// close ends the processes.
func (c *codec) close() error {
	c.cancel()
	_, _ = c.encode.Wait(), c.decode.Wait() // killed
	<-c.fed
	return nil
}

// shrink converts an I420 picture to RGB of a smaller size: each pixel is the mean of the pixels that it covers.
func shrink(i420 []byte, w, h, width, height int) []byte {
	luma, u, v := i420[:w*h], i420[w*h:w*h*5/4], i420[w*h*5/4:]
	out := make([]byte, 0, width*height*3)
	mean := func(plane []byte, stride, x0, x1, y0, y1 int) int {
		sum := 0
		for y := y0; y < y1; y++ {
			for _, p := range plane[y*stride+x0 : y*stride+x1] {
				sum += int(p)
			}
		}
		return sum / ((x1 - x0) * (y1 - y0))
	}
	for y := range height {
		y0, y1 := y*h/height, max((y+1)*h/height, y*h/height+1)
		for x := range width {
			x0, x1 := x*w/width, max((x+1)*w/width, x*w/width+1)
			l := (mean(luma, w, x0, x1, y0, y1) - 16) * 298
			cb := mean(u, w/2, x0/2, max(x1/2, x0/2+1), y0/2, max(y1/2, y0/2+1)) - 128
			cr := mean(v, w/2, x0/2, max(x1/2, x0/2+1), y0/2, max(y1/2, y0/2+1)) - 128
			out = append(out, clip(l+409*cr), clip(l-100*cb-208*cr), clip(l+516*cb)) // BT.601
		}
	}
	return out
}

func clip(v int) byte { return byte(max(0, min(255, (v+128)>>8))) } // clipped
