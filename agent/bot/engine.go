package bot

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/remote"
	"touchline/inference/residency"
	"touchline/inference/scene"
	"touchline/inference/voice"
	"touchline/internal/metrics"
	"touchline/models/nano"
)

// Engine is a model with a voice.
type Engine struct {
	inference.Model
	// Run loads and unloads the model until ctx ends. For the built-in model it also returns when the
	// first load failed, and, with minicpmo.ErrDeviceLost, when the GPU is lost.
	Run func(ctx context.Context) error
	// Note describes the limits of the engine for the page; "" without limits.
	Note string
	// Parallel is how many answers it works on at once.
	Parallel int
	// Metrics of the engine; may be nil.
	Metrics prometheus.Collector
	// Patient makes Run retry a failed first load. Set it before Run.
	Patient bool

	failure func() error // of the last load; may be nil
}

// sceneParallel is how many answers the scene engine works on at once.
const sceneParallel = 4

// NewEngine makes the configured engine with its voice. The engine is in memory while it is used.
func NewEngine(cfg Settings, log zerolog.Logger) (*Engine, error) {
	e := &Engine{Parallel: sceneParallel}
	in := cfg.Engine
	opts := residency.Options{Preload: true, Parallel: sceneParallel, IdleUnload: in.IdleUnload, Logger: log}
	var load residency.Load
	switch in.Engine {
	case "", "auto", "scene":
		e.Note = "No model is configured: the built-in scene engine only says what measurably changed in the picture."
		log.Info().Str("engine", "scene").Str("hint", "for a vision-language model, set inference.engine to remote or use --model DIR").
			Msg("no model configured")
		opts.Name = "scene"
		opts.Capabilities = scene.Model{}.Capabilities()
		if lang := in.Voice.Language; !opts.Capabilities.Speaks(lang) {
			e.Note += fmt.Sprintf(" It speaks English only: inference.voice.language %q has no effect.", lang)
		}
		load = func(context.Context, residency.Progress) (inference.Model, error) {
			return scene.Model{}, nil
		}
	case "remote":
		opts.Name = "remote"
		opts.Capabilities = remote.Capabilities()
		e.Parallel, opts.Parallel = cfg.Remote.Parallel, cfg.Remote.Parallel
		// Its own checks run now, so that a wrong URL fails the start and not the first cycle.
		if _, err := remote.New(cfg.Remote, in.MaxTokens, log); err != nil {
			return nil, fmt.Errorf("prepare the remote engine: %w", err)
		}
		load = func(context.Context, residency.Progress) (inference.Model, error) {
			return remote.New(cfg.Remote, in.MaxTokens, log)
		}
		opts.Warm = func(ctx context.Context, m inference.Model, progress residency.Progress) error {
			return m.(*remote.Model).Warm(ctx, progress) //nolint:forcetypeassert // load made it
		}
	case "minicpmo":
		settings := minicpmo.Settings{Config: in, MiniCPM: cfg.MiniCPM}
		local, err := newBuiltIn(settings, cfg.Agent.Frames, 0, log)
		if err != nil {
			return nil, fmt.Errorf("prepare the model: %w", err)
		}
		return newLocalEngine(local, settings, log)
	case "nano":
		return newNano(cfg, log)
	default:
		return nil, fmt.Errorf("expected inference.engine to be scene, nano, remote or minicpmo, got %q", in.Engine)
	}
	keeper, err := residency.New(load, opts)
	if err != nil {
		return nil, fmt.Errorf("prepare the %s engine: %w", opts.Name, err)
	}
	e.Run, e.failure = keeper.Run, keeper.Failure
	if in.Engine == "remote" {
		e.Metrics = metrics.Func(func(ch chan<- prometheus.Metric) { collectRemote(keeper, ch) })
	}
	if e.Model, err = WithVoice(keeper, in.Voice, log); err != nil {
		return nil, err
	}
	return e, nil
}

// newLocalEngine makes the engine of a model that runs in this process.
func newLocalEngine(local *builtIn, cfg minicpmo.Settings, log zerolog.Logger) (*Engine, error) {
	slots := cmp.Or(cfg.MiniCPM.Slots, minicpmo.DefaultSlots)
	e := &Engine{Note: local.note, Parallel: slots}
	keeper, err := residency.New(local.load, residency.Options{
		Name: local.name, Capabilities: local.can, Preload: true, IdleUnload: cfg.IdleUnload, Logger: log,
		// Prompts wait for a slot in the model's own queue, which is the one that is measured.
		Parallel:       slots + cfg.MiniCPM.Queue,
		FirstLoadFatal: func() bool { return !e.Patient },
		ErrLost:        minicpmo.ErrDeviceLost,
		OnLost:         local.reportLost,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the model: %w", err)
	}
	e.failure = keeper.Failure
	e.Run, e.Metrics = keeper.Run, metrics.Func(func(ch chan<- prometheus.Metric) { collectEngine(keeper, ch) })
	if e.Model, err = WithVoice(keeper, cfg.Voice, log); err != nil {
		return nil, err
	}
	return e, nil
}

// newNano keeps nano, which runs on the CPU. One slot is enough for it and keeps its memory small.
func newNano(cfg Settings, log zerolog.Logger) (*Engine, error) {
	c := cfg.MiniCPM
	var err error
	if c.Path, err = nano.Bundle(context.Background(), nano.Cache()); err != nil {
		return nil, fmt.Errorf("prepare nano: %w", err)
	}
	c.Device, c.Weights, c.Slots, c.VisionCache = "cpu", "fp32", cmp.Or(c.Slots, nano.Slots), min(c.VisionCache, nano.VisionCache)
	settings := minicpmo.Settings{Config: cfg.Engine, MiniCPM: c}
	local, err := newBuiltIn(settings, cfg.Agent.Frames, nano.Threads, log)
	if err != nil {
		return nil, fmt.Errorf("prepare nano: %w", err)
	}
	local.can.Languages = []string{"en", "es"}
	local.note = "Nano is a small model, trained on the generated worlds. It knows no other pictures."
	return newLocalEngine(local, settings, log)
}

// WithVoice gives a model the voice that the settings name.
func WithVoice(m inference.Model, cfg inference.VoiceConfig, log zerolog.Logger) (inference.Model, error) {
	synth, err := voice.New(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("prepare the voice program: %w", err)
	}
	if cfg.Enabled && cfg.Program == inference.VoiceModel && !m.Capabilities().Speech {
		others := slices.DeleteFunc(inference.VoiceChoices(), func(name string) bool { return name == inference.VoiceModel })
		return nil, fmt.Errorf("inference.voice.program model: %w (%s); choose %s", inference.ErrNoVoice, m.Name(), inference.List(others))
	}
	if err := synth.Check(cfg.Language); err != nil {
		log.Warn().Err(err).Msg("comments are shown, but not spoken")
	}
	return voice.Wrap(m, synth), nil
}
