//go:build integration

package bot_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/history"
	"touchline/agent/region"
	"touchline/agent/webhook"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/remote"
	"touchline/internal/e2e/fakes"
	"touchline/internal/e2e/mediamtx"
	"touchline/internal/e2e/stage"
	"touchline/internal/polygon"
	"touchline/internal/redact"
	"touchline/media"
	"touchline/media/window"
	"touchline/worlds"
)

// marked finds the frame counter of the camera in pictures. It is an engine and an output, and so sees what all of them get.
type marked struct {
	*stage.Engine
	notes

	mu     sync.Mutex
	places map[string]int // pictures by place
	bare   []string       // places where the counter was seen
	tall   int            // pictures higher than wide that are not dark everywhere
}

// see looks for the counter in a picture, and for anything bright where it is.
func (m *marked) see(place string, width, height int, pix []byte) {
	_, found := worlds.ReadCounter(media.VideoFrame{Width: width, Height: height, Pix: pix})
	for y := height * 88 / 100; y < height; y++ {
		for x := width * 76 / 100; x < width; x++ {
			at := 3 * (y*width + x)
			found = found || max(pix[at], pix[at+1], pix[at+2]) > 70
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places[place]++
	if found {
		m.bare = append(m.bare, place)
	}
	if height > width && slices.Max(pix) > 70 {
		m.tall++
	}
}

func (m *marked) count(place string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.places[place]
}

// jpeg looks for the counter in a JPEG of the page.
func (m *marked) jpeg(t *testing.T, place, body string) {
	t.Helper()
	f, err := window.FromJPEG([]byte(body))
	require.NoError(t, err, place)
	m.see(place, f.Width, f.Height, f.Pix)
}

// NewSession implements inference.Model.
func (m *marked) NewSession() (inference.Session, error) {
	s, err := m.Engine.NewSession()
	return markedSession{s, m}, err
}

// Frames implements agent.FrameOutput.
func (m *marked) Frames(_ uint64, frames []window.Frame) {
	for _, f := range frames {
		m.see("output", f.Width, f.Height, f.Pix)
	}
}

// Alert implements agent.AlertOutput: MQTT, the history and the page get the same frame.
func (m *marked) Alert(_ alert.Alert, frame *window.Frame) {
	if frame != nil {
		m.see("alert", frame.Width, frame.Height, frame.Pix)
	}
}

type markedSession struct {
	inference.Session

	m *marked
}

// Observe implements inference.Session.
func (s markedSession) Observe(f inference.Frame) { s.m.see("observe", f.Width, f.Height, f.Pix) }

// Generate implements inference.Session.
func (s markedSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	for _, f := range p.Frames {
		s.m.see("prompt", f.Width, f.Height, f.Pix)
	}
	return s.Session.Generate(ctx, p)
}

// TestMasksInARoom: the counter of a camera in a real room is under a mask, and in no picture that the program reads, sends or stores. The
// delayed picture shows it unless mask_delayed is set: in the room, to a WHEP player and in a recording. Without a mask it is in all of them.
// A mask of another ratio covers everything until it is confirmed. Another engine sees no more.
func TestMasksInARoom(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, tt := range []struct {
		name          string
		mask, delayed bool
	}{{"bare", false, false}, {"masked", true, false}, {"mask-delayed", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := &fixture{t: t, url: h.url, keys: h.keys}
			cfg := configs.Default()
			cfg.Pacing.InitialDelay, cfg.Media.MaskDelayed, cfg.Agent.Instruction = time.Second, tt.delayed, "Follow the ball."
			cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.url, tt.name
			cfg.Agent.Alert.Rules = []alert.Rule{{When: "a goal is scored"}}
			if tt.mask {
				cfg.Agent.Regions.List = []region.Item{{Name: "counter", Kind: region.Mask, Shape: polygon.Shape{
					Aspect: 16.0 / 9, Points: []polygon.Point{{0.74, 0.85}, {1, 0.85}, {1, 1}, {0.74, 1}},
				}}}
			}
			broker := startMosquitto(t)
			cfg.Agent.MQTT.URL = "mqtt://" + broker
			receiver := &hookReceiver{t: t, keys: auth.NewSimpleKeyProvider(h.keys.APIKey, h.keys.APISecret)}
			hooks := httptest.NewServer(receiver)
			t.Cleanup(hooks.Close)
			cfg.Agent.Webhook.URLs = []webhook.URL{{URL: hooks.URL}}
			cfg.Agent.Webhook.APIKey, cfg.Agent.Webhook.APISecret = h.keys.APIKey, redact.Secret(h.keys.APISecret)
			cfg.Agent.History.Store, cfg.Agent.History.Path = history.StoreFile, t.TempDir()

			m := &marked{Engine: stage.NewEngine(1, 100*time.Millisecond, 200*time.Millisecond), places: map[string]int{}}
			other := &marked{Engine: stage.NewEngine(2, 100*time.Millisecond, 200*time.Millisecond), places: map[string]int{}}
			engines := bot.ScriptedEngines(func(bot.Settings, zerolog.Logger) (*bot.Engine, error) {
				return &bot.Engine{ModelManager: engine.Of(other, nil)}, nil
			}, func(context.Context, ...string) []remote.Found { return nil })
			h.run("engines", engines.Run)
			b, err := bot.New(bot.Options{
				Settings: cfg.Bot(), Keys: h.keys, LoopbackOnly: true, Texts: []agent.TextOutput{m}, Outputs: h.outputs(cfg.Outputs()),
				Engine: &bot.Engine{ModelManager: engine.Of(m, nil)}, Engines: engines, Log: zerolog.Nop(),
			})
			require.NoError(t, err)
			h.camera(tt.name, "")
			viewer := h.viewer(tt.name)
			h.run("bot", b.Run)
			page := strings.Split(h.page(b, cfg), "#")[0]
			for _, place := range []string{"observe", "prompt", "output"} {
				require.Eventually(t, func() bool { return m.count(place) > 3 }, patience, 10*time.Millisecond, place)
			}
			m.readPictures(t, b, page, receiver, broker)
			m.mu.Lock()
			bare := slices.Compact(slices.Sorted(slices.Values(m.bare)))
			places := len(m.places)
			m.mu.Unlock()
			if !tt.mask {
				require.Len(t, bare, places, "%v of %v", bare, m.places)
				return
			}
			require.Empty(t, bare, "of %v", m.places)

			// The delayed picture.
			require.Eventually(t, func() bool { return len(viewer.Seen().Pictures) > 30 }, patience, 10*time.Millisecond)
			read := 0
			for _, p := range viewer.Seen().Pictures {
				if p.Read {
					read++
				}
			}
			require.Equal(t, !tt.delayed, read > 0, "%d of %d", read, len(viewer.Seen().Pictures))
			players := &marked{places: map[string]int{}}
			players.readRecording(t, page, tt.name)
			require.Equal(t, !tt.delayed, len(players.bare) > 0, "a recording of a WHEP player: %v", players.places)

			// A mask that was drawn for a turned picture.
			tall := region.Region{Kind: region.Mask, Shape: polygon.Shape{Aspect: 9.0 / 16, Points: []polygon.Point{{0, 0}, {0.1, 0}, {0, 0.1}}}}
			require.NoError(t, b.Regions.Put("tall", tall, "ana", time.Now()))
			require.Eventually(t, func() bool { return strings.Contains(b.Snapshot().Covered, "another ratio") }, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool { return strings.Contains(b.Status().Detail, "another ratio") }, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool { // a picture with the new masks
				f, err := b.Newest(t.Context())
				return err == nil && !strings.ContainsFunc(string(f.Pix), func(r rune) bool { return r > 12 })
			}, patience, 10*time.Millisecond)
			require.NoError(t, b.Regions.Confirm("ana", time.Now()))
			looks := m.count("prompt")
			require.Eventually(t, func() bool { return m.count("prompt") > looks }, patience, 10*time.Millisecond)

			choose(t, b, "nano") // it is other
			for _, place := range []string{"observe", "prompt"} {
				require.Eventually(t, func() bool { return other.count(place) > 3 }, patience, 10*time.Millisecond, place)
			}
			require.Empty(t, other.bare, "another engine")
			require.Empty(t, m.bare)
		})
	}
}

// TestSourceTurns: a camera, in a real room, turns by 90 degrees: by the extension for the orientation, or with pictures of another size. From
// the first turned picture, masks cover everything, also in the delayed picture; the zone rests, and its rule shows a problem. Once the
// regions are confirmed, the mask covers its share of the turned picture. The same again when the camera turns back.
func TestSourceTurns(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	wide, tall := whitePicture(t, 640, 360), whitePicture(t, 360, 640)
	for name, turn := range map[string]func(cam *fakes.RTSP, tall bool){
		"orientation": func(cam *fakes.RTSP, turned bool) {
			cam.Turn.Store(map[bool]uint32{true: 1}[turned])
		},
		"size": func(cam *fakes.RTSP, turned bool) {
			cam.Picture.Store(map[bool]*[]byte{false: &wide, true: &tall}[turned])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fixture{t: t, url: h.url, keys: h.keys}
			cam, err := fakes.ListenRTSP(t.Context())
			require.NoError(t, err)
			t.Cleanup(cam.Close)
			cam.Picture.Store(&wide)
			cfg := configs.Default()
			cfg.Pacing.InitialDelay, cfg.Media.MaskDelayed, cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = time.Second, true, h.url, name
			cfg.Agent.Alert.Rules = []alert.Rule{{When: `a person enters the zone "yard"`}}
			corner := []polygon.Point{{0.74, 0.85}, {1, 0.85}, {1, 1}, {0.74, 1}}
			for _, kind := range []string{region.Mask, region.Zone} {
				name := map[string]string{region.Mask: "door", region.Zone: "yard"}[kind]
				cfg.Agent.Regions.List = append(cfg.Agent.Regions.List, region.Item{Name: name, Kind: kind, Shape: polygon.Shape{Aspect: 16.0 / 9, Points: corner}})
			}
			m := &marked{Engine: stage.NewEngine(1, 100*time.Millisecond, 200*time.Millisecond), places: map[string]int{}}
			b, err := bot.New(bot.Options{
				Settings: cfg.Bot(), Keys: h.keys, LoopbackOnly: true, Engine: &bot.Engine{ModelManager: engine.Of(m, nil)}, Log: zerolog.Nop(),
			})
			require.NoError(t, err)
			h.camera(name, cam.URL("turning", ""))
			h.viewerWith(name, func(f media.VideoFrame) {
				m.see(map[bool]string{false: "delayed", true: "delayed, tall"}[f.Height > f.Width], f.Width, f.Height, f.Pix)
			})
			h.run("bot", b.Run)
			// fits waits until the regions do or do not fit a picture that is higher than wide, or wider than high.
			fits := func(tall, want bool) {
				t.Helper()
				require.Eventually(t, func() bool {
					v := b.Regions.View()
					return v.Aspect > 0 && v.Aspect < 1 == tall && !v.Regions[0].Rests == want
				}, patience, 10*time.Millisecond)
				problem := func() bool { return strings.Contains(b.Alerts.List(time.Now())[0].Problem, `the zone "yard" rests`) }
				require.Eventually(t, func() bool { return problem() == !want }, patience, 10*time.Millisecond)
				require.Eventually(t, func() bool { return (b.Snapshot().Covered == "") == want }, patience, 10*time.Millisecond)
				require.Equal(t, !want, b.Regions.View().Regions[1].Rests, "the zone")
			}
			more := func(place string) {
				t.Helper()
				before := m.count(place)
				require.Eventually(t, func() bool { return m.count(place) > before+3 }, patience, 10*time.Millisecond, place)
			}
			fits(false, true)
			more("prompt")
			more("delayed")
			for _, turned := range []bool{true, false} {
				turn(cam, turned)
				fits(turned, false)
				if turned {
					more("delayed, tall")
					m.mu.Lock()
					require.Zero(t, m.tall, "turned pictures that are not covered")
					m.mu.Unlock()
				}
				require.NoError(t, b.Regions.Confirm("ana", time.Now()))
				fits(turned, true)
				more("prompt")
				require.Eventually(t, func() bool {
					f, err := b.Newest(t.Context())
					return err == nil && f.Height > f.Width == turned && slices.Max(f.Pix[:3*f.Width]) > 200
				}, patience, 10*time.Millisecond, "the picture is back")
				if turned {
					m.mu.Lock()
					before := m.tall
					m.mu.Unlock()
					require.Eventually(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.tall > before+30 }, patience, 10*time.Millisecond)
				}
			}
			for range 3 {
				more("delayed")
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			require.NotZero(t, m.tall)
			require.Empty(t, m.bare, "of %v", m.places)
		})
	}
}

// whitePicture returns a key frame of H.264, white everywhere.
func whitePicture(t *testing.T, width, height int) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", fmt.Sprintf("color=white:s=%dx%d", width, height),
		"-frames:v", "1", "-c:v", "libx264", "-profile:v", "baseline", "-pix_fmt", "yuv420p", "-f", "h264", "-").Output()
	require.NoError(t, err)
	return out
}

// readPictures raises an alert, and reads the pictures of the page, of the alert from a webhook, and of MQTT.
func (m *marked) readPictures(t *testing.T, b *bot.Bot, page string, receiver *hookReceiver, broker string) {
	t.Helper()
	// Where the camera or the encoder is late, an alert or a comment has no picture.
	until := func(place string, paths func() []string) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, path := range paths() {
				if status, body := get(t, page+path); status == http.StatusOK {
					m.jpeg(t, place, body)
					return true
				}
			}
			return false
		}, patience, 100*time.Millisecond, place)
	}
	always := func(path string) func() []string { return func() []string { return []string{path} } }
	until("snapshot", always("api/frame"))
	until("thumbnail", always("api/frame?w=160"))
	until("alert of the webhook", func() (paths []string) {
		for _, e := range receiver.of(webhook.EventAlert) {
			paths = append(paths, "api/alerts/"+e.Alert.ID+"/frame")
		}
		_ = b.Alerts.Test("r1", time.Now())
		return paths
	})
	require.Eventually(t, func() bool { return m.count("alert") > 0 }, patience, 10*time.Millisecond)
	receiver.mu.Lock()
	require.NotContains(t, strings.Join(receiver.bodies, " "), "/9j/", "a JPEG in a webhook")
	receiver.mu.Unlock()
	for place, query := range map[string]string{"frame of a comment": "", "its thumbnail": "?w=160"} {
		until(place, func() (paths []string) {
			for _, r := range b.Hub.History() {
				for _, f := range r.FrameIDs {
					paths = append(paths, fmt.Sprintf("api/frames/%d%s", f, query))
				}
			}
			return paths
		})
	}
	m.jpeg(t, "MJPEG", mjpeg(t, page))

	_, port, err := net.SplitHostPort(broker)
	require.NoError(t, err)
	frame, err := exec.CommandContext(t.Context(), "mosquitto_sub", "-V", "5", "-p", port, "-t", "touchline/+/+/frame/+", "-C", "1", "-N", "-W", "240").Output()
	require.NoError(t, err, "no frame by MQTT")
	m.jpeg(t, "MQTT", string(frame))
}

// readRecording records the delayed picture as a WHEP player gets it, which MediaMTX is, and reads the recording.
func (m *marked) readRecording(t *testing.T, page, room string) {
	t.Helper()
	program, err := mediamtx.Find(moduleRoot + "bin")
	require.NoError(t, err)
	var server *mediamtx.Server
	for range 3 { // another program may take a port that was free
		var ports mediamtx.Ports
		ports, err = mediamtx.FreePorts()
		require.NoError(t, err)
		source := strings.Replace(page, "http://", "whep://", 1) + "whep/" + room
		if server, err = mediamtx.Start(t.Context(), program, ports, mediamtx.Pulled{Name: "open-whep", Source: source}); err == nil {
			break
		}
	}
	require.NoError(t, err)
	defer server.Close()
	const width, height = 320, 180
	recording := filepath.Join(t.TempDir(), "recording.mkv")
	ffmpeg := func(arguments ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-v", "error", "-nostdin", "-y"}, arguments...)...).Output()
	}
	address := fmt.Sprintf("rtsp://127.0.0.1:%d/open-whep", server.RTSP)
	var pix []byte
	require.Eventually(t, func() bool { // MediaMTX waits 10 s for its source, which may take longer on a busy machine
		_, err := ffmpeg("-rtsp_transport", "tcp", "-t", "3", "-i", address, "-map", "0:v", "-c", "copy", recording)
		if err == nil {
			pix, err = ffmpeg("-i", recording, "-vf", fmt.Sprintf("fps=10,scale=%d:%d:flags=area", width, height), "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
		}
		return err == nil && len(pix) > 10*3*width*height
	}, patience, time.Second)
	for picture := range slices.Chunk(pix, 3*width*height) {
		m.see("recording", width, height, picture)
	}
}

// startMosquitto runs Mosquitto and returns its address.
func startMosquitto(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = l.Addr().String()
	require.NoError(t, l.Close())
	program, err := exec.LookPath("mosquitto")
	if err != nil {
		program = "/usr/sbin/mosquitto" // not in the path of all users
	}
	conf := filepath.Join(t.TempDir(), "mosquitto.conf")
	_, port, _ := net.SplitHostPort(address)
	require.NoError(t, os.WriteFile(conf, []byte("listener "+port+" 127.0.0.1\nallow_anonymous true\n"), 0o600))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-c", conf)
	require.NoError(t, cmd.Start(), "scripts/setup.sh test installs it")
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.NoError(t, mediamtx.Answers(t.Context(), address))
	return address
}

// mjpeg returns the first picture of /api/mjpeg.
func mjpeg(t *testing.T, page string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"api/mjpeg", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		if n, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(line)), "content-length: "); ok {
			var size int
			_, err := fmt.Sscan(n, &size)
			require.NoError(t, err)
			for strings.TrimSpace(line) != "" {
				line, err = r.ReadString('\n')
				require.NoError(t, err)
			}
			picture := make([]byte, size)
			_, err = io.ReadFull(r, picture)
			require.NoError(t, err)
			return string(picture)
		}
	}
}
