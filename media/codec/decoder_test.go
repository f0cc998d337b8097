//go:build integration

package codec_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/codec/codectest"
	"touchline/media/window"
)

const soon = 2 * time.Minute // generous: the machine may be busy

func allCodecs() []media.Codec {
	return []media.Codec{media.VP8, media.VP9, media.H264, media.H265, media.AV1}
}

// runner is anything with a Run.
type runner interface {
	Run(ctx context.Context) error
}

// start runs r until the test ends.
func start(tb testing.TB, r runner) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		require.NoError(tb, <-done)
	})
}

// logLines keeps a log.
type logLines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	pids chan int
	pid  atomic.Int64 // the newest process
}

func newLog() *logLines { return &logLines{pids: make(chan int, 100)} }

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal(b, &line) == nil && line.PID != 0 {
		l.pid.Store(int64(line.PID))
		l.pids <- line.PID
	}
	return l.buf.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func receive[T any](tb testing.TB, ch <-chan T, what string) T {
	tb.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		require.FailNow(tb, "waited too long for "+what)
		panic("unreachable")
	}
}

// rig is a running decoder with its output.
type rig struct {
	*codec.Decoder
	pictures chan media.VideoFrame
	restarts chan struct{}
	troubles chan error
	log      *logLines
}

func newRig(tb testing.TB, o codec.Options) *rig {
	tb.Helper()
	r := &rig{
		pictures: make(chan media.VideoFrame, 1000), restarts: make(chan struct{}, 100), troubles: make(chan error, 100),
		log: newLog(),
	}
	o.Path = codectest.Program()
	o.OnPicture = func(f media.VideoFrame) { r.pictures <- f }
	o.OnRestart = func() { r.restarts <- struct{}{} }
	o.OnUndecodable = func(err error) { r.troubles <- err }
	o.Log = zerolog.New(r.log)
	d, err := codec.New(o)
	require.NoError(tb, err)
	r.Decoder = d
	start(tb, d)
	// Run has begun when Latest no longer returns ErrNotRunning.
	require.Eventually(tb, func() bool {
		_, err := d.Latest(tb.Context())
		return !errors.Is(err, codec.ErrNotRunning)
	}, soon, time.Millisecond)
	return r
}

// feed decodes all frames as fast as the decoder takes them.
func (r *rig) feed(tb testing.TB, frames []media.EncodedFrame, sample func(i int) bool) {
	tb.Helper()
	for i, f := range frames {
		require.NoError(tb, r.Decode(f, sample(i)))
		if i%20 == 19 { // stay inside the queue's bound
			_, err := r.Latest(tb.Context())
			require.NoError(tb, err)
		}
	}
}

func always(int) bool { return true }
func never(int) bool  { return false }

func TestDecodeAllSampledPictures(t *testing.T) {
	t.Parallel()
	for _, c := range allCodecs() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			clip := barsClip(t, c, 320, 180, 0, 60, 60)
			r := newRig(t, codec.Options{LongSide: 160})
			r.feed(t, clip, func(i int) bool { return i%3 == 0 })
			for i := 0; i < len(clip); i += 3 {
				p := receive(t, r.pictures, "a sampled picture")
				require.Equal(t, [2]int{160, 90}, [2]int{p.Width, p.Height})
				require.Equal(t, i, readBars(t, p))
				require.Equal(t, clip[i].PTS, p.PTS)
				require.Equal(t, clip[i].NTP, p.NTP)
				require.Equal(t, clip[i].Arrival, p.Arrival)
				require.Equal(t, clip[i].Epoch, p.Epoch)
			}
			p, err := r.Latest(t.Context())
			require.NoError(t, err)
			require.Equal(t, len(clip)-1, readBars(t, p), "the latest picture is not the last one handed over")
			require.Equal(t, clip[len(clip)-1].PTS, p.PTS)
			require.Empty(t, r.pictures, "more pictures than were asked for")
			require.Zero(t, r.Stats().Undecodable, r.log.String())
		})
	}
}

func TestKilledProcessIsReplaced(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 320, 180, 0, 40, 20)
	r := newRig(t, codec.Options{LongSide: 320})
	r.feed(t, clip[:10], never)
	_, err := r.Latest(t.Context())
	require.NoError(t, err)

	require.NoError(t, syscall.Kill(receive(t, r.log.pids, "a process"), syscall.SIGKILL))
	receive(t, r.restarts, "the call of OnRestart")
	require.ErrorIs(t, r.Decode(clip[10], true), codec.ErrNeedKeyFrame)
	_, err = r.Latest(t.Context())
	require.ErrorIs(t, err, codec.ErrNoPicture)

	r.feed(t, clip[20:], always)
	for i := 20; i < 40; i++ {
		require.Equal(t, i, readBars(t, receive(t, r.pictures, "a picture from the new process")))
	}
	require.EqualValues(t, 1, r.Stats().Restarts)
}

// signalled sends a signal to a child process of the test.
func signalled(tb testing.TB, pid int, sig syscall.Signal) {
	tb.Helper()
	require.NoError(tb, syscall.Kill(pid, sig))
}

func TestWhatWasNotHandedOverSurvivesTheProcess(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.H264, 320, 180, 0, 40, 20)
	r := newRig(t, codec.Options{})
	pid := receive(t, r.log.pids, "a process")
	r.feed(t, clip[:20], never)
	// Not enough for a write, so the key frame is still held when the process ends.
	require.NoError(t, r.Decode(clip[20], false))
	signalled(t, pid, syscall.SIGKILL)
	receive(t, r.restarts, "the call of OnRestart")
	for _, f := range clip[21:] {
		require.NoError(t, r.Decode(f, true))
	}
	require.Equal(t, 21, readBars(t, receive(t, r.pictures, "a picture")))
}

func TestHangingProcessIsReplaced(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 64, 36, 0, 8, 8)
	r := newRig(t, codec.Options{})
	pid := receive(t, r.log.pids, "a process")
	signalled(t, pid, syscall.SIGSTOP)
	require.NoError(t, r.Decode(clip[0], true))
	_, err := r.Latest(t.Context())
	require.ErrorIs(t, err, codec.ErrRestarted)
	receive(t, r.restarts, "the call of OnRestart")
	require.NoError(t, r.Decode(clip[0], true))
	receive(t, r.pictures, "a picture from the new process")
	require.Contains(t, r.log.String(), "hangs")
}

func TestSlowProcessDropsToTheNextKeyFrame(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 320, 180, 0, 120, 100)
	r := newRig(t, codec.Options{})
	pid := receive(t, r.log.pids, "a process")
	require.NoError(t, r.Decode(clip[0], true))
	receive(t, r.pictures, "a picture")
	signalled(t, pid, syscall.SIGSTOP)
	var behind int
	for behind = range clip {
		if err := r.Decode(clip[behind], true); err != nil {
			require.ErrorIs(t, err, codec.ErrBehind)
			break
		}
	}
	require.InDelta(t, 60, behind, 10, "the queue's bound")
	require.ErrorIs(t, r.Decode(clip[behind+1], true), codec.ErrBehind)
	signalled(t, pid, syscall.SIGCONT)
	_, err := r.Latest(t.Context()) // it has caught up
	require.NoError(t, err)
	require.ErrorIs(t, r.Decode(clip[behind+2], true), codec.ErrBehind, "only a key frame helps")
	for i := 100; i < 120; i++ {
		require.NoError(t, r.Decode(clip[i], true))
	}
	last := -1
	for last != 119 {
		p := readBars(t, receive(t, r.pictures, "a picture"))
		require.Greater(t, p, last)
		last = p
	}
	require.NotZero(t, r.Stats().Dropped)
}

func TestNothingBeforeAKeyFrame(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 64, 36, 0, 10, 5)
	r := newRig(t, codec.Options{})
	_, err := r.Latest(t.Context())
	require.ErrorIs(t, err, codec.ErrNoPicture)
	require.ErrorIs(t, r.Decode(clip[1], true), codec.ErrNeedKeyFrame)
	require.NoError(t, r.Decode(clip[5], true))
	receive(t, r.pictures, "the key frame's picture")

	other := clip[6]
	other.Epoch++
	require.ErrorIs(t, r.Decode(other, true), codec.ErrNeedKeyFrame)
	require.NoError(t, r.Decode(clip[6], true), "the old epoch still goes on")
	require.Equal(t, 6, readBars(t, receive(t, r.pictures, "a picture")))
	other = clip[5]
	other.Epoch += 3
	require.NoError(t, r.Decode(other, true))
	require.Equal(t, other.Epoch, receive(t, r.pictures, "the new epoch's picture").Epoch)
}

func TestCodecAndSizeMayChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, codec.Options{LongSide: 256})
	sizes := [][2]int{{160, 90}, {320, 180}, {180, 320}, {332, 186}, {322, 182}}
	for _, c := range []media.Codec{media.VP8, media.H264, media.VP9, media.AV1, media.H265} {
		for i, size := range sizes {
			if c == media.H265 && size[0] < 200 {
				continue
			}
			f := barsClip(t, c, size[0], size[1], i, 2, 2)
			require.NoError(t, r.Decode(f[0], true))
			p := receive(t, r.pictures, "a picture")
			require.Equal(t, i, readBars(t, p))
			require.LessOrEqual(t, max(p.Width, p.Height), 256)
			require.InDelta(t, float64(size[0])/float64(size[1]), float64(p.Width)/float64(p.Height), 0.02)
			if size[0] == 160 {
				require.Equal(t, [2]int{160, 90}, [2]int{p.Width, p.Height}, "pictures are never enlarged")
			}
		}
	}
	require.NoError(t, r.SetLongSide(100))
	p, err := r.Latest(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, p.Width)
	require.NoError(t, r.SetLongSide(0))
	p, err = r.Latest(t.Context())
	require.NoError(t, err)
	require.Equal(t, [2]int{322, 182}, [2]int{p.Width, p.Height})
	require.Zero(t, r.Stats().Undecodable, r.log.String())
}

// Layers of a VP9 picture follow each other without an index. Here complete pictures
// replace them: the last one counts.
func TestLayeredVP9GivesTheLargestPicture(t *testing.T) {
	t.Parallel()
	low := barsClip(t, media.VP9, 160, 90, 0, 10, 1)
	high := barsClip(t, media.VP9, 320, 180, 0, 10, 1)
	r := newRig(t, codec.Options{})
	for i := range high {
		f := high[i]
		f.SpatialLayers = 2
		f.Data = append(append([]byte{}, low[i].Data...), high[i].Data...)
		require.NoError(t, r.Decode(f, true))
	}
	for i := range high {
		p := receive(t, r.pictures, "a picture")
		require.Equal(t, 320, p.Width)
		require.Equal(t, i, readBars(t, p))
		require.Equal(t, high[i].PTS, p.PTS)
	}
}

// Reordered pictures have the times of their access units.
func TestReorderedPicturesKeepTheirTimes(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.H264, 320, 180, 0, 40, 20, "-tune", "animation", "-bf", "2", "-b_strategy", "0")
	// Frames are in decoding order, and ffmpeg's raw output has no times.
	for i := range clip {
		clip[i].PTS = time.Duration(i)
	}
	r := newRig(t, codec.Options{})
	r.feed(t, clip, always)
	end := clip[0]
	end.Epoch++
	require.NoError(t, r.Decode(end, true)) // another epoch flushes the decoder
	seen := map[time.Duration]int{}
	moved := 0
	for i := range 40 {
		p := receive(t, r.pictures, "a picture")
		require.Equal(t, i, readBars(t, p), "pictures come in the order of showing")
		seen[p.PTS]++
		if p.PTS != time.Duration(i) {
			moved++
		}
	}
	require.Len(t, seen, 40, "two pictures have the times of one access unit")
	require.NotZero(t, moved, "the clip has no reordering to test")
}

func TestJPEGStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, codec.Options{})
	for n := range 3 {
		data, err := window.JPEG(media.VideoFrame{Width: 320, Height: 180, Pix: drawBars(320, 180, n)}, 95)
		require.NoError(t, err)
		require.NoError(t, r.Decode(media.EncodedFrame{Codec: codec.MJPEG, Data: data, PTS: time.Duration(n)}, true))
		p := receive(t, r.pictures, "a picture")
		require.Equal(t, n, readBars(t, p))
		require.EqualValues(t, n, p.PTS)
	}
}

// The colour description of the stream is used.
func TestExplicitColours(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, matrix, colourspace, levels string }{
		{"BT.709 limited", "bt709", "bt709", "tv"},
		{"BT.709 full", "bt709", "bt709", "pc"},
		{"BT.601 full", "bt601", "smpte170m", "pc"},
		{"BT.2020 limited", "bt2020", "bt2020nc", "tv"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			clip := barsClip(t, media.H264, 320, 180, 0, 2, 2,
				"-vf", "scale=out_color_matrix="+tt.matrix+":out_range="+tt.levels,
				"-colorspace", tt.colourspace, "-color_range", tt.levels)
			r := newRig(t, codec.Options{})
			require.NoError(t, r.Decode(clip[0], true))
			require.Zero(t, readBars(t, receive(t, r.pictures, "a picture")))
		})
	}
}

func TestFallbackDecoders(t *testing.T) {
	t.Parallel()
	for _, c := range []media.Codec{media.VP8, media.VP9, media.AV1} {
		clip := barsClip(t, c, 320, 180, 0, 3, 3)
		r := newRig(t, codec.Options{Avoid: []string{"vp8", "libvpx-vp9", "libdav1d"}})
		r.feed(t, clip, always)
		for i := range clip {
			require.Equal(t, i, readBars(t, receive(t, r.pictures, "a picture")))
		}
		require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "is missing, using") }, soon, time.Millisecond)
	}
	r := newRig(t, codec.Options{Avoid: []string{"hevc"}})
	require.NoError(t, r.Decode(media.EncodedFrame{Codec: media.H265, KeyFrame: true, Data: []byte{1}}, true))
	require.ErrorContains(t, receive(t, r.troubles, "a complaint"), "no decoder for H265")
	require.Eventually(t, func() bool { return strings.Contains(r.Trouble(), "no decoder for H265") }, soon, 10*time.Millisecond)
}

func TestBadAccessUnits(t *testing.T) {
	t.Parallel()
	for _, c := range allCodecs() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			clip := barsClip(t, c, 320, 180, 0, 30, 10)
			r := newRig(t, codec.Options{})
			rnd := rand.New(rand.NewPCG(1, uint64(c)))
			for range 20 {
				for _, f := range clip {
					f.Data = bytes.Clone(f.Data)
					switch rnd.IntN(3) {
					case 0:
						f.Data = f.Data[:1+rnd.IntN(len(f.Data))]
					case 1:
						for range 1 + rnd.IntN(20) {
							f.Data[rnd.IntN(len(f.Data))] ^= byte(1 << rnd.IntN(8))
						}
					default:
						for i := range f.Data {
							f.Data[i] = byte(rnd.Uint32())
						}
					}
					if err := r.Decode(f, true); err != nil {
						require.True(t, errors.Is(err, codec.ErrBehind) || errors.Is(err, codec.ErrNeedKeyFrame), err)
					}
				}
				if _, err := r.Latest(t.Context()); err != nil {
					require.ErrorIs(t, err, codec.ErrNoPicture)
				}
			}
			f := clip[0]
			f.Epoch = 99
			require.Eventually(t, func() bool { return r.Decode(f, true) == nil }, soon, time.Millisecond)
			for p := receive(t, r.pictures, "a picture of a good stream"); p.Epoch != 99; {
				p = receive(t, r.pictures, "a picture of a good stream")
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	d, err := codec.New(codec.Options{Path: codectest.Program()})
	require.NoError(t, err)
	good := media.EncodedFrame{Codec: media.VP8, KeyFrame: true, Data: []byte{0}}
	require.ErrorIs(t, d.Decode(good, false), codec.ErrNotRunning)
	_, err = d.Latest(t.Context())
	require.ErrorIs(t, err, codec.ErrNotRunning)
	require.ErrorContains(t, d.SetLongSide(-1), "must be between 0 and")

	r := newRig(t, codec.Options{})
	for _, tt := range []struct {
		want string
		f    media.EncodedFrame
	}{
		{"expected VP8", media.EncodedFrame{KeyFrame: true, Data: []byte{0}}},
		{"expected VP8", media.EncodedFrame{Codec: 77, KeyFrame: true, Data: []byte{0}}},
		{"got 0", media.EncodedFrame{Codec: media.VP8, KeyFrame: true}},
		{"got 8388609", media.EncodedFrame{Codec: media.VP8, KeyFrame: true, Data: make([]byte, 8<<20+1)}},
	} {
		require.ErrorContains(t, r.Decode(tt.f, false), tt.want)
	}
	require.ErrorContains(t, r.Run(t.Context()), "running already")
	require.ErrorContains(t, r.SetLongSide(1<<20), "long side")
}

func TestLatestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, codec.Options{})
	pid := receive(t, r.log.pids, "a process")
	signalled(t, pid, syscall.SIGSTOP)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, err := r.Latest(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestNewChecks(t *testing.T) {
	t.Parallel()
	_, err := codec.New(codec.Options{Path: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "find the codec program")
	_, err = codec.New(codec.Options{Path: codectest.Program(), LongSide: 9000})
	require.ErrorContains(t, err, "long side")
	_, err = codec.New(codec.Options{Path: codectest.Program(), Transcode: codec.TranscodeOptions{Codec: media.AV1}})
	require.ErrorContains(t, err, "use H264 or VP8")
}

// The process does not inherit the bot's environment, and has its own process group, so
// that Ctrl-C on the terminal does not reach it before the bot.
func TestProcessIsApart(t *testing.T) {
	t.Parallel()
	r := newRig(t, codec.Options{})
	pid := receive(t, r.log.pids, "a process")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	require.NoError(t, err)
	require.NotContains(t, string(environ), "PATH=")
	require.NotContains(t, string(environ), "TOUCHLINE")
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group)

	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	require.NoError(t, err)
	require.Regexp(t, `Max data size +268435456 +3221225472`, string(limits))

	out, err := exec.CommandContext(t.Context(), codectest.Program(), "-check").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "confined: no files, no sockets, no programs")
}

// Streams with huge picture sizes: the process stays within its limit, or ends, and decodes good pictures
// afterwards.
func TestHugePictures(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP9, 320, 180, 0, 2, 1)
	r := newRig(t, codec.Options{})
	// A key frame's header (VP9 bitstream section 6.2) of 65536 x 65536 pixels, then of 16384 x 16384.
	for i, side := range []uint32{65535, 16383} {
		sides := uint64(side)<<16 | uint64(side)
		head := []byte{0x82, 0x49, 0x83, 0x42}
		head = append(binary.BigEndian.AppendUint64(head, 2<<60|sides<<28), make([]byte, 5000)...)
		n := 0
		require.Eventually(t, func() bool { // complaints come at most once a second
			n++
			f := media.EncodedFrame{Codec: media.VP9, KeyFrame: true, Epoch: uint32(10 + i), PTS: time.Duration(n) * frameGap, Data: head}
			_ = r.Decode(f, true) // refused while the process starts again
			return len(r.troubles) > 0
		}, 3*soon, 100*time.Millisecond)
		require.Error(t, <-r.troubles)
	}
	f := clip[0]
	f.Epoch = 99
	require.NoError(t, r.Decode(f, true))
	require.Equal(t, 0, readBars(t, receive(t, r.pictures, "a picture of a good stream")))
	require.Empty(t, r.Trouble())
}

// Another program or version is not restarted forever.
func TestWrongProgram(t *testing.T) {
	t.Parallel()
	for _, say := range []string{`printf '\007\000\000\000A\124\103\114\130\377\377'`, `printf 'GET / HTTP/1.0'`} {
		path := filepath.Join(t.TempDir(), "touchline-codec")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+say+"\nexec /bin/cat > /dev/null\n"), 0o700))
		d, err := codec.New(codec.Options{Path: path})
		require.NoError(t, err)
		passing, runs := strings.Contains(say, "HTTP"), soon
		if passing {
			runs = time.Second
		}
		ctx, stop := context.WithTimeout(t.Context(), runs)
		err = d.Run(ctx)
		stop()
		if passing {
			require.NoError(t, err, "it may be a fault that passes: tried again until the end")
			continue
		}
		require.ErrorIs(t, err, codec.ErrVersion)
	}
}

// A discardable access unit is decoded only for its own picture, and the pictures are
// the same as when all are decoded.
func TestDiscardableUnitsAreSkipped(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.H264, 320, 180, 0, 60, 60, "-x264-params", "bframes=1:b-pyramid=none:b-adapt=0:sync-lookahead=0")
	skipped := uint64(0)
	sampled := func(i int) bool { return i%7 == 0 }
	for i := range clip {
		needed := false
		for _, head := range nalHeads(clip[i].Data) {
			needed = needed || head&0x1f >= 1 && head&0x1f <= 5 && head&0x60 != 0
		}
		if clip[i].Discardable = !needed; !needed && !sampled(i) {
			skipped++
		}
	}
	require.Greater(t, skipped, uint64(15))
	pictures := func(mark bool) (map[time.Duration][]byte, codec.Stats) {
		r := newRig(t, codec.Options{LongSide: 160})
		marked := slices.Clone(clip)
		for i := range marked {
			marked[i].Discardable = mark && marked[i].Discardable
		}
		r.feed(t, marked, sampled)
		out := map[time.Duration][]byte{}
		for range 8 {
			p := receive(t, r.pictures, "a sampled picture")
			out[p.PTS] = p.Pix
		}
		require.Zero(t, r.Stats().Dropped+r.Stats().Undecodable, r.log.String())
		return out, r.Stats()
	}
	all, stats := pictures(false)
	require.Zero(t, stats.Skipped)
	some, stats := pictures(true)
	require.Equal(t, skipped, stats.Skipped)
	require.Equal(t, all, some)
}

// TestPanicInCallback: a panic in a callback is the error of Run, which ends the process.
func TestPanicInCallback(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 64, 36, 0, 2, 2)
	log := newLog()
	d, err := codec.New(codec.Options{
		Path: codectest.Program(), OnPicture: func(media.VideoFrame) { panic("crash in OnPicture") }, Log: zerolog.New(log),
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context()) }()
	pid := receive(t, log.pids, "a process")
	require.NoError(t, d.Decode(clip[0], true))
	p, ok := rescue.Of(receive(t, ended, "the end of Run"))
	require.True(t, ok)
	require.Equal(t, "crash in OnPicture", p.Value)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process is gone")
}
