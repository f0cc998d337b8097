package wiring

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/remote"
	"touchline/inference/residency"
	"touchline/inference/scene"
	"touchline/inference/voice"
)

// Engine is a model with a voice, and what must run beside it.
type Engine struct {
	inference.Model
	// Run owns the loading and unloading; it returns when ctx ends.
	Run func(ctx context.Context) error
	// Note says in words what the engine cannot do; "" when there is nothing to say.
	Note string
}

// ErrNotBuilt is returned for an engine that the settings know and this program does not have.
var ErrNotBuilt = errors.New("the engine minicpmo is not built yet: set inference.engine to scene, " +
	"or to remote for a model server that has the same model")

// NewEngine makes the engine that the settings name, kept in memory while
// somebody uses it, and gives it a voice.
func NewEngine(cfg inference.Config, log zerolog.Logger) (*Engine, error) {
	e := &Engine{}
	opts := residency.Options{IdleUnload: cfg.IdleUnload, Parallel: 4, Logger: log}
	var load residency.Load
	switch cfg.Engine {
	case "", "scene":
		e.Note = "No model is configured: the built-in scene engine only says what measurably changed in the picture."
		log.Info().Msg("engine: scene, which uses no model and says only what it measures in the picture; " +
			"set inference.engine to remote for a vision-language model")
		opts.Name, opts.Preload = "scene", true
		load = func(context.Context, residency.Progress) (inference.Model, error) {
			return scene.New(scene.Options{}), nil
		}
	case "remote":
		opts.Name, opts.Preload = "remote", true
		// Its own checks run now, so that a wrong URL ends the start and not the first look.
		if _, err := remote.New(cfg.Remote, cfg.MaxTokens, log); err != nil {
			return nil, fmt.Errorf("prepare the remote engine: %w", err)
		}
		load = func(context.Context, residency.Progress) (inference.Model, error) {
			return remote.New(cfg.Remote, cfg.MaxTokens, log)
		}
		opts.Warm = func(ctx context.Context, m inference.Model, progress residency.Progress) error {
			return m.(*remote.Model).Warm(ctx, progress) //nolint:forcetypeassert // load made it
		}
	case "minicpmo":
		return nil, ErrNotBuilt
	default:
		return nil, fmt.Errorf("expected inference.engine to be scene or remote, got %q", cfg.Engine)
	}
	keeper, err := residency.New(load, opts)
	if err != nil {
		return nil, fmt.Errorf("prepare the %s engine: %w", opts.Name, err)
	}
	e.Run = keeper.Run
	if e.Model, err = WithVoice(keeper, cfg.Voice, log); err != nil {
		return nil, err
	}
	return e, nil
}

// WithVoice gives a model the voice that the settings name.
func WithVoice(m inference.Model, cfg inference.VoiceConfig, log zerolog.Logger) (inference.Model, error) {
	synth, err := voice.New(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("prepare the voice program: %w", err)
	}
	if err := synth.Check(cfg.Language); err != nil {
		log.Warn().Err(err).Msg("comments are shown, but not spoken")
	}
	return voice.Wrap(m, synth), nil
}
