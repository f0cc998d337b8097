//go:build integration

package bot_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/region"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/remote"
	"touchline/internal/e2e/stage"
	"touchline/internal/polygon"
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
// delayed picture shows it unless mask_delayed is set. A mask of another ratio covers everything until it is confirmed. Another engine
// sees no more.
func TestMasksInARoom(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, delayed := range []bool{false, true} {
		t.Run(fmt.Sprintf("mask_delayed %v", delayed), func(t *testing.T) {
			t.Parallel()
			h := &fixture{t: t, url: h.url, keys: h.keys}
			room := fmt.Sprintf("masked-%v", delayed)
			cfg := configs.Default()
			cfg.Pacing.InitialDelay, cfg.Media.MaskDelayed, cfg.Agent.Instruction = time.Second, delayed, "Follow the ball."
			cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.url, room
			cfg.Agent.Alert.Rules = []alert.Rule{{When: "a goal is scored"}}
			cfg.Agent.Regions.List = []region.Item{{Name: "counter", Kind: region.Mask, Shape: polygon.Shape{
				Aspect: 16.0 / 9, Points: []polygon.Point{{0.74, 0.85}, {1, 0.85}, {1, 1}, {0.74, 1}},
			}}}
			m := &marked{Engine: stage.NewEngine(1, 100*time.Millisecond, 200*time.Millisecond), places: map[string]int{}}
			other := &marked{Engine: stage.NewEngine(2, 100*time.Millisecond, 200*time.Millisecond), places: map[string]int{}}
			engines := bot.ScriptedEngines(func(bot.Settings, zerolog.Logger) (*bot.Engine, error) {
				return &bot.Engine{ModelManager: engine.Of(other, nil)}, nil
			}, func(context.Context, ...string) []remote.Found { return nil })
			h.run("engines", engines.Run)
			b, err := bot.New(bot.Options{
				Settings: cfg.Bot(), Keys: h.keys, LoopbackOnly: true, Texts: []agent.TextOutput{m},
				Engine: &bot.Engine{ModelManager: engine.Of(m, nil)}, Engines: engines, Log: zerolog.Nop(),
			})
			require.NoError(t, err)
			h.camera(room, "")
			viewer := h.viewer(room)
			h.run("bot", b.Run)
			page := strings.Split(h.page(b, cfg), "#")[0]
			for _, place := range []string{"observe", "prompt", "output"} {
				require.Eventually(t, func() bool { return m.count(place) > 3 }, patience, 10*time.Millisecond, place)
			}
			require.NoError(t, b.Alerts.Test("r1", time.Now()))
			require.Eventually(t, func() bool { return m.count("alert") > 0 }, patience, 10*time.Millisecond)

			_, body := get(t, page+"api/frame")
			m.jpeg(t, "snapshot", body)
			require.Eventually(t, func() bool { return len(b.Hub.History()) > 0 && len(b.Hub.Alerts()) > 0 }, patience, 10*time.Millisecond)
			_, body = get(t, page+"api/alerts/"+b.Hub.Alerts()[0].ID+"/frame")
			m.jpeg(t, "frame of the alert", body)
			seen := 0
			for _, f := range b.Hub.History()[0].FrameIDs {
				if status, body := get(t, page+fmt.Sprintf("api/frames/%d", f)); status == http.StatusOK {
					m.jpeg(t, "frame of the comment", body)
					seen++
				}
			}
			require.NotZero(t, seen)
			m.jpeg(t, "MJPEG", mjpeg(t, page))
			require.Empty(t, m.bare, "of %v", m.places)

			// The delayed picture.
			require.Eventually(t, func() bool { return len(viewer.Seen().Pictures) > 30 }, patience, 10*time.Millisecond)
			read := 0
			for _, p := range viewer.Seen().Pictures {
				if p.Read {
					read++
				}
			}
			require.Equal(t, !delayed, read > 0, "%d of %d", read, len(viewer.Seen().Pictures))

			// A mask that was drawn for a turned picture.
			tall := region.Region{Kind: region.Mask, Shape: polygon.Shape{Aspect: 9.0 / 16, Points: []polygon.Point{{0, 0}, {0.1, 0}, {0, 0.1}}}}
			require.NoError(t, b.Regions.Put("tall", tall, "ana", time.Now()))
			require.Eventually(t, func() bool { return strings.Contains(b.Snapshot().Covered, "another ratio") }, patience, 10*time.Millisecond)
			require.Contains(t, b.Status().Detail, "another ratio")
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
