package bot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
	"touchline/models"
)

// builtIn is the model of a bundle.
type builtIn struct {
	name, note string
	can        inference.Capabilities
	load       engine.Load
	log        zerolog.Logger
}

// newBuiltIn reads the bundle's manifest; load reads the weights. threads of one operator on the CPU: 0 is one per core.
func newBuiltIn(cfg minicpmo.Settings, frames, threads int, log zerolog.Logger) (*builtIn, error) {
	bundle, err := models.OpenBundle(cfg.MiniCPM.Path)
	if err != nil {
		return nil, err
	}
	if bundle.Manifest.Dims.Vision == nil {
		return nil, fmt.Errorf("%s: %w", bundle.Dir, minicpmo.ErrNoVision)
	}
	var note string
	if bundle.Manifest.Random {
		note = "The model's weights are random: its words mean nothing."
	}
	if len(bundle.Manifest.Missing) > 0 {
		note = strings.TrimSpace(note + " The model lacks: " + strings.Join(bundle.Manifest.Missing, ", ") + ".")
	}
	load := func(ctx context.Context, progress engine.Progress) (inference.Model, error) {
		log.Info().Str("bundle", bundle.Dir).Str("device", cfg.MiniCPM.Device).Msg("loading the model")
		return minicpmo.OpenModel(ctx, bundle, minicpmo.Options{
			Config: cfg, Frames: frames, Threads: threads, Progress: progress, Logger: log, Staged: true,
		})
	}
	can := inference.Capabilities{
		Instructions: true, Structured: true, Speech: cfg.Voice.Enabled && bundle.Manifest.Dims.Speech != nil,
	}
	if can.Speech {
		voices, err := voice.Names(bundle) // the loaded model may have fewer
		if err != nil {
			return nil, err
		}
		can.OwnVoices = slices.DeleteFunc(voices, func(name string) bool { return name == inference.DefaultVoice })
	}
	return &builtIn{name: bundle.Manifest.Name, note: note, can: can, load: load, log: log}, nil
}

// reportLost logs the loss of the device, which ends the program.
func (b *builtIn) reportLost(err error) {
	b.log.Error().Err(err).Int("exit_code", minicpmo.ExitDeviceLost).
		Msg("GPU lost; restart the program")
}
