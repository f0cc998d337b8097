//go:build integration && !nodemo

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/mediadevices/pkg/driver"
	"github.com/pion/mediadevices/pkg/frame"
	"github.com/pion/mediadevices/pkg/io/video"
	"github.com/pion/mediadevices/pkg/prop"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/agent/look"
	"touchline/configs"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/mediamtx"
	"touchline/internal/e2e/whipclient"
	"touchline/media"
	"touchline/worlds"
)

// The clip that cameras of all kinds play.
const (
	cameraWidth, cameraHeight = 640, 360
	cameraFPS                 = 15
	cameraSeconds             = 6
)

func newWorld(t *testing.T) *worlds.World {
	t.Helper()
	world, err := worlds.New(worlds.Options{Seed: 5, Width: cameraWidth, Height: cameraHeight, FPS: cameraFPS, Counter: true})
	require.NoError(t, err)
	return world
}

// studio provides cameras: a folder of clips, and MediaMTX.
type studio struct {
	dir string
	mtx *mediamtx.Server
}

// clip makes a file of the match in the folder with ffmpeg, once.
func (s *studio) clip(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	out, err := exec.CommandContext(t.Context(), "ffmpeg", slices.Concat(
		[]string{"-v", "error", "-nostdin", "-i", filepath.Join(s.dir, "match.mkv"), "-threads", "1"}, args, []string{path})...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
	return path
}

// encoders returns ffmpeg's arguments for the codecs of cameras, with a key frame each second.
var encoders = map[string][]string{
	"h264": {"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "15", "-b:v", "1500k"},
	"h265": {
		"-c:v", "libx265", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-b:v", "1500k",
		"-x265-params", "keyint=15:bframes=0:log-level=none:pools=1",
	},
	"vp8":   {"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-g", "15", "-b:v", "1500k"},
	"av1":   {"-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-g", "15", "-lag-in-frames", "0", "-b:v", "1M"},
	"mpeg4": {"-c:v", "mpeg4", "-q:v", "4", "-g", "15"},
	"mjpeg": {"-c:v", "mjpeg", "-q:v", "4", "-pix_fmt", "yuvj420p", "-huffman", "default", "-force_duplicated_matrix", "1"},
}

// newStudio renders the match and starts MediaMTX.
func newStudio(t *testing.T) *studio {
	t.Helper()
	s := &studio{dir: t.TempDir()}
	renderMatch(t, filepath.Join(s.dir, "match.mkv"), cameraSeconds)
	s.mtx = startMediaMTX(t)
	return s
}

// renderMatch makes a nearly lossless file of the match.
func renderMatch(t *testing.T, path string, seconds int) {
	t.Helper()
	require.NoError(t, encode(newWorld(t), uint32(seconds*cameraFPS), "-c:v", "libx264", "-preset", "ultrafast", "-qp", "10", path))
}

func startMediaMTX(t *testing.T, pulled ...mediamtx.Pulled) *mediamtx.Server {
	t.Helper()
	program, err := mediamtx.Find(filepath.Join(moduleRoot, "bin"))
	require.NoError(t, err)
	var m *mediamtx.Server
	for range 3 { // another program may take a port that was free
		var ports mediamtx.Ports
		ports, err = mediamtx.FreePorts()
		require.NoError(t, err)
		if m, err = mediamtx.Start(t.Context(), program, ports, pulled...); err == nil {
			break
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		m.Close()
		if t.Failed() {
			t.Logf("mediamtx says: %s", m.Log())
		}
	})
	return m
}

// play runs a program until the test ends.
func play(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	var log bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says: %s", filepath.Base(cmd.Path), log.String())
		}
	})
}

func tcpPort(t *testing.T) int {
	t.Helper()
	address, err := netip.ParseAddrPort(freeAddress(t))
	require.NoError(t, err)
	return int(address.Port())
}

// publish sends a clip to MediaMTX with ffmpeg.
func (s *studio) publish(t *testing.T, path, name string) {
	t.Helper()
	play(t, exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", path, "-c", "copy",
		"-f", "rtsp", "-rtsp_transport", "tcp", "-pkt_size", "1300", fmt.Sprintf("rtsp://127.0.0.1:%d/%s", s.mtx.RTSP, name)), s.dir)
}

// rtsp makes a camera of a clip and returns its address.
func (s *studio) rtsp(t *testing.T, name, kind string) string {
	t.Helper()
	s.publish(t, s.clip(t, name+".mkv", encoders[kind]...), "open-"+name)
	return fmt.Sprintf("rtsp://127.0.0.1:%d/open-%s", s.mtx.RTSP, name)
}

// camera makes an RTSP camera when its test begins.
func (s *studio) camera(name, kind string, more ...string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		return append([]string{s.rtsp(t, name, kind)}, more...)
	}
}

// file makes a clip when its test begins.
func (s *studio) file(name, kind string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		return []string{s.clip(t, name, encoders[kind]...)}
	}
}

// lens is a webcam driver that shows the match.
type lens struct{ world *worlds.World }

func (*lens) Open() error  { return nil }
func (*lens) Close() error { return nil }
func (*lens) Properties() []prop.Media {
	return []prop.Media{{Video: prop.Video{
		Width: cameraWidth, Height: cameraHeight, FrameRate: cameraFPS, FrameFormat: frame.FormatI420,
	}}}
}

// VideoRecord implements driver.VideoRecorder.
func (w *lens) VideoRecord(prop.Media) (video.Reader, error) {
	const ySize = cameraWidth * cameraHeight
	begin, n := time.Now(), uint32(0)
	return video.ReaderFunc(func() (image.Image, func(), error) {
		<-time.After(time.Until(begin.Add(w.world.PTS(n))))
		b := w.world.Frame(n)
		n++
		return &image.YCbCr{
			Y: b[:ySize], Cb: b[ySize : ySize+ySize/4], Cr: b[ySize+ySize/4:], YStride: cameraWidth, CStride: cameraWidth / 2,
			SubsampleRatio: image.YCbCrSubsampleRatio420, Rect: image.Rect(0, 0, cameraWidth, cameraHeight),
		}, func() {}, nil
	}), nil
}

// TestCameras publishes cameras of every kind with `touchline camera`. The commentator sees the picture, whose frame counter is
// read, and comments on it. For each codec, so does a browser in the room.
func TestCameras(t *testing.T) {
	const key = "a-good-long-key"
	s, h := newStudio(t), newHouse(t)
	folder := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
	t.Cleanup(folder.Close)
	s.publish(t, s.clip(t, "locked.mkv", encoders["h264"]...), "locked")

	tests := []struct {
		name string
		// camera starts the camera and returns the arguments of the command.
		camera func(t *testing.T) []string
		// codec is the published codec, transcoded a part of the printed reason for transcoding.
		codec, transcoded string
		// shown makes a browser show the picture.
		shown bool
	}{
		{"RTSP H264 over TCP with digest", func(*testing.T) []string {
			return []string{fmt.Sprintf("rtsp://%s:%s@127.0.0.1:%d/locked", mediamtx.User, mediamtx.Password, s.mtx.RTSP)}
		}, "H264", "", true},
		{"RTSP H264 over UDP", s.camera("udp", "h264", "--transport", "udp"), "H264", "", false},
		{"RTSP H264 over TLS", func(*testing.T) []string {
			return []string{fmt.Sprintf("rtsps://%s:%s@127.0.0.1:%d/locked", mediamtx.User, mediamtx.Password, s.mtx.RTSPS), "--insecure"}
		}, "H264", "", false},
		{"RTSP H265", s.camera("h265", "h265"), "H265", "H265", true},
		{"RTSP MJPEG", s.camera("mjpeg", "mjpeg"), "JPEG", "JPEG", true},
		{"RTSP AV1", func(t *testing.T) []string {
			t.Helper()
			units := ivf(t, s.clip(t, "av1.ivf", encoders["av1"]...))
			send(t, whipclient.Options{URL: fmt.Sprintf("http://127.0.0.1:%d/open-av1/whip", s.mtx.WebRTC), Codec: media.AV1, Units: units, FPS: cameraFPS})
			return []string{fmt.Sprintf("rtsp://127.0.0.1:%d/open-av1", s.mtx.RTSP)}
		}, "AV1", "", true},
		{"HTTP MJPEG", func(t *testing.T) []string {
			t.Helper()
			port := tcpPort(t)
			address := fmt.Sprintf("http://127.0.0.1:%d/video.mjpg", port)
			play(t, exec.CommandContext(t.Context(), "ffmpeg", slices.Concat(
				[]string{"-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", filepath.Join(s.dir, "match.mkv")}, encoders["mjpeg"],
				[]string{"-f", "mpjpeg", "-flush_packets", "1", "-listen", "1", address})...), s.dir)
			return []string{address}
		}, "JPEG", "JPEG", false},
		{"HTTP video", func(t *testing.T) []string {
			t.Helper()
			s.clip(t, "web.mp4", append(slices.Clone(encoders["h264"]), "-movflags", "+faststart")...)
			return []string{folder.URL + "/web.mp4"}
		}, "H264", "", false},
		{"HLS of MediaMTX", func(t *testing.T) []string {
			t.Helper()
			s.rtsp(t, "hls", "h264")
			return []string{fmt.Sprintf("http://127.0.0.1:%d/open-hls/index.m3u8", s.mtx.HLS)}
		}, "H264", "", false},
		{"HLS folder of ffmpeg", func(t *testing.T) []string {
			t.Helper()
			live := filepath.Join(s.dir, "live")
			require.NoError(t, os.Mkdir(live, 0o755))
			play(t, exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-stream_loop", "-1",
				"-i", s.clip(t, "hls.mp4", encoders["h264"]...), "-c", "copy", "-f", "hls", "-hls_time", "1", "-hls_list_size", "4",
				"-hls_flags", "delete_segments", filepath.Join(live, "live.m3u8")), s.dir)
			require.Eventually(t, func() bool {
				text, _ := os.ReadFile(filepath.Join(live, "live.m3u8"))
				return strings.Count(string(text), ".ts") >= 3
			}, startWait, 20*time.Millisecond)
			return []string{folder.URL + "/live/live.m3u8"}
		}, "H264", "", false},
		{"file mp4", s.file("file.mp4", "h264"), "H264", "", false},
		{"file mkv", s.file("file.mkv", "h265"), "H265", "H265", false},
		{"file webm", s.file("file.webm", "vp8"), "VP8", "", true},
		{"file ts", s.file("file.ts", "h264"), "H264", "", false},
		{"file avi", s.file("file.avi", "mpeg4"), "H264", "", true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			name := "camera-" + strconv.Itoa(i)
			bot, address := h.bot(t, name, quick)
			arguments := append([]string{"camera", "--room", name}, tt.camera(t)...)
			began := time.Now()
			env := h.env()
			if tt.transcoded == "" {
				// On a busy machine UDP loses key frames.
				env = append(env, "TOUCHLINE_SOURCES_TRANSCODE=off")
			}
			p := launch(t, env, arguments...)
			seen(t, bot, address, tt.shown, began)
			p.says(t, "Live: "+tt.codec)
			if tt.transcoded != "" {
				p.says(t, "The picture is transcoded: ")
				p.says(t, tt.transcoded)
			} else {
				require.NotContains(t, p.output(), "transcoded")
			}
			require.NotContains(t, p.output(), mediamtx.Password)
			p.interrupt(t)
			require.Zero(t, p.exitCode())
		})
	}
	t.Run("WHIP", func(t *testing.T) {
		t.Parallel()
		const name = "camera-whip"
		units := ivf(t, s.clip(t, "whip.ivf", encoders["vp8"]...))
		bot, page := h.bot(t, name, quick)
		address := fmt.Sprintf("127.0.0.1:%d", tcpPort(t))
		p := launch(t, h.env(), "camera", "--room", name, "--whip", address, "--whip-key", key)
		require.NoError(t, mediamtx.Answers(t.Context(), address))
		began := time.Now()
		send(t, whipclient.Options{URL: "http://" + address + "/whip/" + name, Token: key, Codec: media.VP8, Units: units, FPS: cameraFPS})
		seen(t, bot, page, false, began)
		p.interrupt(t)
		require.Zero(t, p.exitCode())
	})
	t.Run("webcam", func(t *testing.T) {
		t.Parallel()
		const name = "camera-webcam"
		require.NoError(t, driver.GetManager().Register(&lens{newWorld(t)}, driver.Info{Label: "match", DeviceType: driver.Camera}))
		bot, page := h.bot(t, name, quick)
		c := newCameraCmd("webcam")
		c.Room, c.Size, c.FPS = name, fmt.Sprintf("%dx%d", cameraWidth, cameraHeight), cameraFPS
		began := time.Now()
		// In this process, because the driver is here.
		keepRunning(t, func(ctx context.Context) error { return c.Run(ctx, h.app()) })
		seen(t, bot, page, true, began)
	})
}

// quick holds settings with a sufficient initial delay.
func quick(c *configs.Config) { c.Pacing.FixedDelay = 2 * time.Second }

// seen waits for a moving picture and a comment, on a room's page in a browser if shown is set, otherwise by its API.
func seen(t *testing.T, bot *bot.Bot, page string, shown bool, began time.Time) {
	t.Helper()
	var first, second uint32
	if shown {
		viewer := open(t, page, browser.Options{Width: 800, Height: 600})
		plays(t, viewer, later)
		first = counts(t, viewer, 0)
		second = counts(t, viewer, first)
		commented(t, viewer, later)
		require.Empty(t, problems(viewer))
		viewer.Close()
	} else {
		next := func(not uint32) (n uint32) {
			require.Eventually(t, func() bool {
				_, body := fetch(t, page+"api/frame")
				img, err := jpeg.Decode(strings.NewReader(body))
				if err != nil {
					return false // none yet
				}
				var ok bool
				n, ok = counter(img)
				return ok && n != not
			}, later, 100*time.Millisecond)
			return n
		}
		first = next(0)
		second = next(first)
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(bot.Hub.History(), func(r look.Record) bool { return r.Text != "" && len(r.FrameIDs) > 0 })
		}, later, 100*time.Millisecond)
	}
	t.Logf("commented %.1f s after the camera was started; pictures %d, %d", time.Since(began).Seconds(), first, second)
	source := bot.Snapshot().Source
	require.Equal(t, [2]int{cameraWidth, cameraHeight}, [2]int{source.Width, source.Height})
}

// ivf reads a file of libvpx's format.
func ivf(t *testing.T, path string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return whipclient.SplitIVF(b)
}

// send sends a clip by WHIP until the test ends.
func send(t *testing.T, o whipclient.Options) {
	t.Helper()
	x, err := whipclient.Dial(t.Context(), o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := <-ended
		x.Vanish()
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
