//go:build integration

package bot_test

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/internal/e2e/stage"
	"touchline/models"
)

// TestModelCommentsInTwoRooms is the whole way: a checkpoint is converted,
// loaded by ONNX Runtime, and comments in two rooms at once, on a clip in one
// and on a match in the other, in text and by voice.
func TestModelCommentsInTwoRooms(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	cfg := withModel(tiny(t))
	engine, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=15:duration=4",
		"-f", "lavfi", "-i", "sine=frequency=440:duration=4", "-shortest", clip).CombinedOutput()
	require.NoError(t, err, "apt-get install ffmpeg: %s", out)

	h.run("engine", engine.Run)
	type place struct {
		name    string
		records *stage.Reader
		viewer  *stage.Viewer
	}
	var places []place
	for name, film := range map[string]string{"clip": clip, "match": ""} {
		b, records := h.bot(cfg, name, engine)
		h.run("bot of "+name, b.Run)
		places = append(places, place{name, records, h.viewer(name)})
		h.camera(name, film)
	}
	spoken := func(records []look.Record) (out []look.Record) {
		for _, r := range records {
			if r.Outcome == look.OutcomeSpoken {
				out = append(out, r)
			}
		}
		return out
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, p := range places {
		var heard stage.Seen
		var matched int
		require.Eventually(t, func() bool {
			heard = p.viewer.Seen()
			captions := map[string]bool{}
			for _, c := range heard.Closed {
				captions[words(c.Text)] = true
			}
			records, err := stage.ParseRecords(heard.Records)
			require.NoError(t, err)
			matched = 0
			for _, r := range spoken(records) {
				if captions[words(r.Text)] {
					matched++
				}
			}
			return matched >= 2 && len(heard.Talks) > 0
		}, 2*patience, 100*time.Millisecond, "%s: captions, voice and records come to a viewer", p.name)
		var most float64
		for _, r := range spoken(p.records.Records()) {
			require.NotEmpty(t, r.Text)
			require.NotEmpty(t, r.FrameIDs)
			require.Positive(t, r.AudioSec)
			require.Equal(t, "tiny", r.Engine)
			most = max(most, r.ReadySec)
			t.Logf("%s: %q, ready after %.2f s, %.1f s of speech", p.name, r.Text, r.ReadySec, r.AudioSec)
		}
		t.Logf("%s: %d captions of records, %d stretches of speech, slowest look %.2f s", p.name, matched, len(heard.Talks), most)
	}

	values := metrics(t, engine)
	all := 0
	for _, p := range places {
		all += len(spoken(p.records.Records()))
	}
	require.GreaterOrEqual(t, values["touchline_engine_answers_total/done"], float64(all), "one engine for both")
	require.Equal(t, 8.0, values["touchline_engine_slots"])
	for _, name := range []string{
		"queue_wait_seconds", "preprocess_seconds", "vision_seconds", "prefill_seconds", "first_token_seconds", "answer_seconds",
		"step_seconds", "batch_size", "tokens_total", "prompt_tokens_total", "busy_seconds_total", "steps_total/fp32",
		"memory_bytes/planned", "memory_bytes/free", "pictures_total/miss",
	} {
		require.Positive(t, values["touchline_engine_"+name], name)
	}
	require.Contains(t, values, "touchline_engine_pictures_total/hit")
	require.Zero(t, values["touchline_engine_answers_total/failed"])
}

// metrics of an engine by name and label; of histograms, how much is in them.
func metrics(t *testing.T, e *bot.Engine) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(e.Metrics))
	found, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range found {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			if labels := m.GetLabel(); len(labels) > 0 {
				name += "/" + labels[0].GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				values[name] = float64(m.GetHistogram().GetSampleCount())
				require.Less(t, len(m.GetHistogram().GetBucket()), 25)
			case m.GetCounter() != nil:
				values[name] = m.GetCounter().GetValue()
			default:
				values[name] = m.GetGauge().GetValue()
			}
		}
	}
	return values
}

// mortal is a model whose device a test can lose. It reports a second device, which is lost.
type mortal struct {
	*minicpmo.Engine

	lost chan struct{}
	dead atomic.Bool
}

// Each has the engine and the lost device.
func (m *mortal) Each(f func(gpu int, e *minicpmo.Engine)) {
	f(0, m.Engine)
	f(1, nil)
}

// Lost is closed by kill.
func (m *mortal) Lost() <-chan struct{} { return m.lost }

// Status is failed after kill.
func (m *mortal) Status() inference.Status {
	if m.dead.Load() {
		return inference.Status{Phase: inference.PhaseFailed, Detail: minicpmo.ErrDeviceLost.Error()}
	}
	st := m.Engine.Status()
	st.Problem = "1 of 2 GPUs in use"
	return st
}

func (m *mortal) kill() {
	m.dead.Store(true)
	close(m.lost)
}

func TestLoadingIsSeenAndALostDeviceEndsTheBot(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	cfg := withModel(tiny(t))
	cfg.Inference.Voice.Enabled = false
	bundle, err := models.OpenBundle(cfg.Inference.MiniCPM.Path)
	require.NoError(t, err)
	goOn := make(chan struct{})
	opened := make(chan *mortal, 1)
	engine, err := bot.NewLocalEngine(func(ctx context.Context, progress engine.Progress) (inference.Model, error) {
		e, err := minicpmo.Open(ctx, bundle, minicpmo.Options{Config: minicpmo.Settings{Config: cfg.Inference.Config, MiniCPM: cfg.Inference.MiniCPM}, Progress: progress})
		if err != nil {
			return nil, err
		}
		progress(37, "loading: vision, 1.20 GB of 3.40 GB")
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		m := &mortal{Engine: e, lost: make(chan struct{})}
		opened <- m
		return m, nil
	}, minicpmo.Settings{Config: cfg.Inference.Config, MiniCPM: cfg.Inference.MiniCPM})
	require.NoError(t, err)
	b, records := h.bot(cfg, "room", engine)
	url := h.page(b, cfg)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- errors.Join(engine.Run(ctx), engine.Close()) }()
	h.run("bot", b.Run)
	defer cancel()

	require.Eventually(t, func() bool {
		status, body := get(t, url+"readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "loading: vision, 1.20 GB of 3.40 GB")
	}, patience, 20*time.Millisecond)
	close(goOn)
	require.Eventually(t, func() bool { status, _ := get(t, url+"readyz"); return status == http.StatusOK }, patience, 20*time.Millisecond)
	_, text := get(t, url+"metrics")
	require.Contains(t, text, `touchline_engine_slots{gpu="0"} 8`)
	require.Contains(t, text, `touchline_engine_answers_total{gpu="0",outcome="done"}`)
	require.Contains(t, text, `touchline_engine_step_seconds_count{gpu="0"}`)
	require.Contains(t, text, "touchline_engine_gpus_unused 1")
	require.Contains(t, b.Snapshot().EngineNote, "1 of 2 GPUs in use")
	h.camera("room", "")
	require.Eventually(t, func() bool { return len(records.Records()) > 0 }, patience, 50*time.Millisecond)

	(<-opened).kill()
	require.Eventually(t, func() bool {
		status, body := get(t, url+"readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, minicpmo.ErrDeviceLost.Error())
	}, patience, 20*time.Millisecond, "probes see it before the end")
	select {
	case err := <-ended:
		require.ErrorIs(t, err, minicpmo.ErrDeviceLost)
	case <-time.After(patience):
		require.FailNow(t, "the engine does not end")
	}
}

func TestModelThatCannotBeLoaded(t *testing.T) {
	cfg := botSettings(t)
	bundle := tiny(t)
	cfg.Inference.Engine, cfg.Inference.MiniCPM.Device = "minicpmo", "cpu"
	cfg.Inference.MiniCPM.Path = t.TempDir()
	_, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.ErrorContains(t, err, models.ManifestName)

	cfg.Inference.MiniCPM.Path, cfg.Inference.MiniCPM.Runtime = bundle, t.TempDir()
	e, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	require.ErrorContains(t, e.Run(t.Context()), "make runtime", "there is nothing to wait for")
	require.NoError(t, e.Close())

	e, err = bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	e.Patient = true
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	require.Eventually(t, func() bool { return e.Status().Phase == inference.PhaseFailed }, patience, 10*time.Millisecond)
	require.Empty(t, ended, "it goes on")
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, e.Close())
}

func TestModelIsUnloadedWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	cfg := withModel(tiny(t))
	cfg.Inference.Voice.Enabled = false
	cfg.Inference.IdleUnload = time.Second
	e, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	phase := func(want inference.Phase) {
		t.Helper()
		require.Eventually(t, func() bool { return e.Status().Phase == want }, patience, 10*time.Millisecond)
	}
	phase(inference.PhaseReady)
	require.NotEmpty(t, metrics(t, e))
	phase(inference.PhaseUnloaded)
	require.Empty(t, metrics(t, e))
	s, err := e.NewSession()
	require.NoError(t, err)
	phase(inference.PhaseReady)
	require.NoError(t, s.Close())
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, e.Close())
}
