//go:build integration

package bot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/media"
	"touchline/media/codec/codectest"
	"touchline/media/source"
	"touchline/media/source/catalog"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// shared is a folder for what several tests use.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "bot"); err != nil {
		panic(err)
	}
	code := codectest.OnPath(func() int { return sfutest.Main(m) })
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

// patience is how long a part of the fixture may take on a busy machine.
const patience = 5 * time.Minute

// fixture is a LiveKit server in this process, with the parts of its rooms.
type fixture struct {
	t    *testing.T
	url  string
	keys conn.Keys
}

// newFixture opens the server.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	server, _ := sfutest.Start(t, sfu.Options{})
	return &fixture{t: t, url: server.URL(), keys: conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}}
}

// run runs a part until the test ends; it must end then without an error.
func (h *fixture) run(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
			assert.NoError(h.t, err, name)
		}
	})
	h.t.Cleanup(func() { cancel(); wg.Wait() })
}

// camera films for a room: a clip, or a generated match.
func (h *fixture) camera(roomName, clip string) {
	h.t.Helper()
	if clip != "" {
		a, err := source.ParseAddress(clip)
		require.NoError(h.t, err)
		p, err := catalog.Open(catalog.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}, Loop: true})
		require.NoError(h.t, err)
		f, err := camera.New(camera.Options{
			URL: h.url, Keys: h.keys, Room: roomName, Identity: "camera", Name: "camera", LoopbackOnly: true, Log: zerolog.Nop(),
		})
		require.NoError(h.t, err)
		h.run("camera of "+roomName, func(ctx context.Context) error { return f.Play(ctx, p, a.Hide) })
		return
	}
	c, err := camera.NewDemo(camera.DemoOptions{
		URL: h.url, Keys: h.keys, Room: roomName, Identity: "camera", Width: 640, Height: 360, FPS: 15, Seed: 5, Counter: true,
		LoopbackOnly: true, Log: zerolog.Nop(),
	})
	require.NoError(h.t, err)
	h.run("camera of "+roomName, c.Run)
}

// bot makes a bot for a room.
func (h *fixture) bot(cfg configs.Config, roomName string, engine *bot.Engine) (*bot.Bot, *stage.Reader) {
	h.t.Helper()
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.url, roomName
	reader := &stage.Reader{}
	b, err := bot.New(bot.Options{
		Settings: cfg.Bot(), Keys: h.keys, Engine: engine, LoopbackOnly: true, Texts: []agent.TextOutput{reader}, Log: zerolog.Nop(),
	})
	require.NoError(h.t, err)
	return b, reader
}

// outputs opens the outputs of a process until the test ends.
func (h *fixture) outputs(to bot.OutputSettings) *bot.Outputs {
	h.t.Helper()
	opened := make(chan *bot.Outputs, 1)
	h.run("outputs", func(ctx context.Context) error {
		return bot.WithOutputs(ctx, to, zerolog.Nop(), func(out *bot.Outputs) error {
			opened <- out
			<-ctx.Done()
			return nil
		})
	})
	select {
	case out := <-opened:
		return out
	case <-time.After(patience):
		require.FailNow(h.t, "the outputs do not open")
		return nil
	}
}

// viewer watches a room.
func (h *fixture) viewer(roomName string) *stage.Viewer {
	h.t.Helper()
	return h.viewerWith(roomName, nil)
}

// viewerWith watches a room and passes on each picture.
func (h *fixture) viewerWith(roomName string, onPicture func(media.VideoFrame)) *stage.Viewer {
	h.t.Helper()
	token, err := conn.ViewerToken(h.keys, conn.Person{Room: roomName, Identity: "viewer"})
	require.NoError(h.t, err)
	v, err := stage.NewViewer(stage.ViewerOptions{URL: h.url, Token: token, OnPicture: onPicture, Log: zerolog.Nop()})
	require.NoError(h.t, err)
	h.run("viewer of "+roomName, v.Run)
	return v
}

// page serves a bot's page and returns its address.
func (h *fixture) page(b *bot.Bot, cfg configs.Config) (url string) {
	h.t.Helper()
	cfg.Agent.Console.Listen = "127.0.0.1:0"
	address := make(chan string, 1)
	p, err := b.Console(cfg.Agent.Console.Config, func(url string) { address <- url })
	require.NoError(h.t, err)
	h.run("page", p.Run)
	select {
	case url = <-address:
	case <-time.After(patience):
		require.FailNow(h.t, "the page does not listen")
	}
	return url
}

// get requests a page.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	var text bytes.Buffer
	_, err = io.Copy(&text, res.Body)
	require.NoError(t, err)
	http.DefaultClient.CloseIdleConnections()
	return res.StatusCode, text.String()
}

const moduleRoot = "../../"

// tiny returns the tiny checkpoint, converted for the CPU.
func tiny(t *testing.T) string {
	t.Helper()
	require.NoError(t, convertTiny())
	return filepath.Join(shared, "tiny")
}

var convertTiny = sync.OnceValue(func() error {
	src, err := checkpoint.Open(moduleRoot + "models/testdata/tiny")
	if err != nil {
		return err
	}
	defer src.Close()
	return convert.Convert(context.Background(), src, filepath.Join(shared, "tiny"), convert.Options{
		Name: "tiny", Weights: []models.Weights{models.WeightsFloat32, models.WeightsInt4}, Devices: []models.Device{models.DeviceCPU},
	})
})

// withModel are settings of bots on a model, quick on a small machine.
func withModel(bundle string) configs.Config {
	cfg := configs.Default()
	cfg.Media.CaptureFPS = 2
	cfg.Agent.Repeats = "allow" // a small model says little
	cfg.Pacing.InitialDelay = time.Second
	in := &cfg.Inference
	in.Engine, in.MiniCPM.Path, in.MiniCPM.Device = "minicpmo", bundle, "cpu"
	in.MiniCPM.Runtime = moduleRoot + "bin/runtime" // `make runtime` fetches it
	in.MiniCPM.Slots, in.MaxTokens, in.Voice.MaxTokens = 8, 24, 24
	return cfg
}
