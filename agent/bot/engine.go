package bot

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/voice"
	"touchline/internal/metrics"
)

// Engine is an engine that rooms can share. Run of the built-in model also returns when the first load failed, and, with
// minicpmo.ErrDeviceLost, when the GPU is lost.
type Engine struct {
	*engine.ModelManager

	// Note describes the limits of the engine for the page; "" without limits.
	Note string
	// Metrics of the engine; may be nil.
	Metrics prometheus.Collector
	// Patient makes Run retry a failed first load. Set it before Run.
	Patient bool
}

// manage loads the model when it is used, and gives it the voice of the settings.
func (e *Engine) manage(load engine.Load, opts engine.Options, cfg inference.Config, log zerolog.Logger) (err error) {
	opts.Preload, opts.IdleUnload, opts.Logger = true, cfg.IdleUnload, log
	if opts.Programs, err = programs(cfg.Voice, opts.Name, opts.Capabilities.Speech, log); err != nil {
		return err
	}
	if e.ModelManager, err = engine.New(load, opts); err != nil {
		return fmt.Errorf("prepare the %s engine: %w", opts.Name, err)
	}
	return nil
}

// Whole waits until nothing of the loaded model is left to load behind its answers, such as its voice.
func (e *Engine) Whole(ctx context.Context) error {
	if m, ok := e.Loaded().(interface {
		Wait(ctx context.Context) error
	}); ok {
		return m.Wait(ctx)
	}
	return nil
}

// newLocalEngine makes the engine of a model that runs in this process.
func newLocalEngine(local *builtIn, cfg minicpmo.Settings, log zerolog.Logger) (*Engine, error) {
	gpus, _ := cfg.MiniCPM.Cards() // loading reports the error
	cards := max(len(gpus), 1)
	slots := cards * cmp.Or(cfg.MiniCPM.Slots, minicpmo.DefaultSlots)
	e := &Engine{Note: local.note}
	err := e.manage(local.load, engine.Options{
		Name: local.name, Capabilities: local.can, Parallel: slots,
		// Prompts wait for a slot in the model's own queue, which is the one that is measured.
		Ahead:          cards * cfg.MiniCPM.Queue,
		FirstLoadFatal: func() bool { return !e.Patient },
		ErrLost:        minicpmo.ErrDeviceLost,
		OnLost:         local.reportLost,
	}, cfg.Config, log)
	e.Metrics = metrics.Func(func(ch chan<- prometheus.Metric) { collectEngine(e.Loaded(), ch) })
	return e, err
}

// WithVoice returns an engine of a loaded model with the voice that the settings name.
func WithVoice(m inference.Model, cfg inference.VoiceConfig, log zerolog.Logger) (*Engine, error) {
	synth, err := programs(cfg, m.Name(), m.Capabilities().Speech, log)
	if err != nil {
		return nil, err
	}
	return &Engine{ModelManager: engine.Of(m, synth)}, nil
}

// programs returns the voice programs that complement the model's voice, or replace it if it does not speak.
func programs(cfg inference.VoiceConfig, model string, speaks bool, log zerolog.Logger) (*voice.Synthesizer, error) {
	synth, err := voice.New(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("prepare the voice program: %w", err)
	}
	if cfg.Enabled && cfg.Program == inference.VoiceModel && !speaks {
		others := slices.DeleteFunc(inference.VoiceChoices(), func(name string) bool { return name == inference.VoiceModel })
		return nil, fmt.Errorf("inference.voice.program model: %w (%s); choose %s", inference.ErrNoVoice, model, inference.List(others))
	}
	if err := synth.Check(cfg.Language); err != nil {
		log.Warn().Err(err).Msg("comments are shown, but not spoken")
	}
	return synth, nil
}
