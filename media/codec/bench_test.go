//go:build integration

package codec_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
)

// cpuOf returns the processor time of a running process, user and system.
func cpuOf(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	require.NoError(tb, err)
	// The fields begin after the name, which is in brackets: state is the third.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		require.NoError(tb, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ
}

func ownCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// movingClip makes a moving scene with noise as a browser's encoder would
// send it: 30 fps, 1.7 Mbit/s, one key frame.
func movingClip(tb testing.TB, c media.Codec, size string, seconds int) (frames []media.EncodedFrame, stream []byte) {
	tb.Helper()
	args, apt := encodeArgs(c)
	if c == media.H264 { // what browsers send
		args = append([]string{"-profile:v", "baseline"}, args...)
	}
	in := []string{
		"-f", "lavfi", "-i", "testsrc2=s=" + size + ":r=30,noise=alls=6:allf=t", "-t", strconv.Itoa(seconds),
		"-pix_fmt", "yuv420p", "-g", "9999", "-b:v", "1.7M", "-maxrate", "1.7M", "-bufsize", "1M", "-threads", "2",
	}
	out := ffmpeg(tb, nil, apt, append(append(in, args...), "-")...)
	return accessUnits(tb, c, out), out
}

// bareDecode returns the processor time of ffmpeg with the same decoder and one thread: the lower bound on this
// machine.
func bareDecode(tb testing.TB, c media.Codec, stream []byte) time.Duration {
	tb.Helper()
	decoder := map[media.Codec]string{
		media.VP8: "vp8", media.VP9: "libvpx-vp9", media.H264: "h264", media.H265: "hevc", media.AV1: "libdav1d",
	}[c]
	file := filepath.Join(tb.TempDir(), "stream")
	require.NoError(tb, os.WriteFile(file, stream, 0o600))
	cmd := exec.CommandContext(tb.Context(), "ffmpeg", "-v", "error", "-nostdin", "-threads", "1", "-c:v", decoder, "-i", file,
		"-f", "null", "-")
	require.NoError(tb, cmd.Run())
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// idleLoop returns the processor time of waking up for each frame.
func idleLoop(tb testing.TB) float64 {
	tb.Helper()
	const frames = 5 * clipFPS
	began, before := time.Now(), ownCPU(tb)
	for i := range frames {
		time.Sleep(time.Until(began.Add(time.Duration(i) * frameGap)))
	}
	return float64(ownCPU(tb)-before) / float64(frames*frameGap)
}

// BenchmarkDecodeSample is the cost of watching a room: 720p30 decoded, two
// pictures a second scaled to 448 pixels. %core is the processor time of both
// processes by media time, while access units come in real time ("live", as they do
// from a room) or as fast as possible ("rush"). For comparison, %core-bare is the decoder
// alone in the ffmpeg program, and %core-wake is 30 idle wake-ups a second.
func BenchmarkDecodeSample(b *testing.B) {
	const seconds = 20
	for _, c := range allCodecs() {
		b.Run(c.String(), func(b *testing.B) {
			clip, stream := movingClip(b, c, "1280x720", seconds)
			size := 0
			for _, f := range clip {
				size += len(f.Data)
			}
			bare := bareDecode(b, c, stream)
			for _, live := range []bool{true, false} {
				name := "rush"
				if live {
					name = "live"
				}
				b.Run(name, func(b *testing.B) {
					wake := 0.0
					if live {
						wake = idleLoop(b)
					}
					r := newRig(b, codec.Options{LongSide: 448})
					pid := receive(b, r.log.pids, "the process")
					child, own := cpuOf(b, pid), ownCPU(b)
					pictures := 0
					for b.Loop() {
						began := time.Now()
						for i, f := range clip {
							f.PTS += time.Duration(b.N) * seconds * time.Second
							if live {
								time.Sleep(time.Until(began.Add(time.Duration(i) * frameGap)))
							}
							for err := r.Decode(f, i%15 == 0); err != nil; err = r.Decode(f, i%15 == 0) {
								require.ErrorIs(b, err, codec.ErrBehind)
							}
							if !live && i%30 == 29 {
								_, err := r.Latest(b.Context())
								require.NoError(b, err)
							}
						}
						_, err := r.Latest(b.Context())
						require.NoError(b, err)
						for len(r.pictures) > 0 {
							<-r.pictures
							pictures++
						}
					}
					child, own = cpuOf(b, pid)-child, ownCPU(b)-own
					media := float64(b.N*seconds) * float64(time.Second)
					b.ReportMetric(100*float64(child+own)/media, "%core")
					b.ReportMetric(100*float64(own)/media, "%core-parent")
					b.ReportMetric(100*wake, "%core-wake")
					b.ReportMetric(100*float64(bare)/float64(seconds*time.Second), "%core-bare")
					b.ReportMetric(float64(pictures)/float64(b.N*seconds), "pictures/s")
					b.ReportMetric(float64(8*size)/seconds/1e6, "Mbit/s")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// BenchmarkEncode is the cost of a camera that makes raw 720p30 I420 pictures, both
// processes together.
func BenchmarkEncode(b *testing.B) {
	const w, h, frames = 1280, 720, 300
	var pix [][]byte
	raw := ffmpeg(b, nil, "", "-f", "lavfi", "-i", "testsrc2=s=1280x720:r=30", "-frames:v", "30", "-pix_fmt", "yuv420p",
		"-f", "rawvideo", "-")
	for n := codec.PictureBytes(w, h); len(raw) >= n; raw = raw[n:] {
		pix = append(pix, raw[:n])
	}
	for _, c := range []media.Codec{media.H264, media.VP8} {
		b.Run(c.String(), func(b *testing.B) {
			e, out, log := newEncoder(b, codec.EncoderOptions{Codec: c, Width: w, Height: h, FPS: clipFPS, BitRate: 2_000_000})
			require.NoError(b, e.Encode(b.Context(), codec.Picture{Pix: pix[0]}, false))
			receive(b, out, "the first frame")
			pid := log.pid.Load()
			child, own, size, pts := cpuOf(b, int(pid)), ownCPU(b), 0, frameGap
			for b.Loop() {
				for i := range frames {
					require.NoError(b, e.Encode(b.Context(), codec.Picture{Pix: pix[i%len(pix)], PTS: pts}, false))
					pts += frameGap
					size += len(receive(b, out, "a frame").Data)
				}
			}
			child, own = cpuOf(b, int(pid))-child, ownCPU(b)-own
			media := float64(b.N*frames) * float64(frameGap)
			b.ReportMetric(100*float64(child+own)/media, "%core")
			b.ReportMetric(100*float64(own)/media, "%core-parent")
			b.ReportMetric(float64(8*size)/media*1e3, "Mbit/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
