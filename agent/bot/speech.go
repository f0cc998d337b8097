package bot

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/rs/zerolog"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/voice"
)

// Speech returns speech as a service, with the configured voices; model returns the engine whose own voice it may use.
func (r *Engines) Speech(cfg inference.VoiceConfig, model func() *Engine, log zerolog.Logger) (*audioapi.Handler, error) {
	synth, err := voice.New(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("prepare speech as a service: %w", err)
	}
	return audioapi.New(audioapi.Options{
		Speaker: speaker{synth, configuredVoice(cfg), model},
		Voice:   configuredVoice(cfg),
		Voices: func() (out []audioapi.Voice) {
			for _, id := range model().Capabilities().OwnVoiceIDs() {
				out = append(out, audioapi.Voice{ID: id})
			}
			for _, v := range r.voices() {
				out = append(out, audioapi.Voice(v))
			}
			return out
		},
		Check: func(id, language string) error {
			if err := model().Capabilities().CheckVoice(id); err != nil {
				return err
			}
			return voice.Check(r.voices(), id, language)
		},
		Paced: func(id string) bool {
			s := speaker{voice: configuredVoice(cfg), model: model}
			return !s.own(id)
		},
		Language: cfg.Language, Lenient: cfg.Lenient, Log: log,
	}), nil
}

// configuredVoice returns the voice of the settings, as in inference.Prompt.
func configuredVoice(cfg inference.VoiceConfig) string {
	if cfg.Name == "" {
		return cfg.Program
	}
	return cfg.Program + ":" + cfg.Name
}

// speaker speaks texts that are of no room: by the programs or by the model, behind live rooms.
type speaker struct {
	programs *voice.Synthesizer
	voice    string // of the settings
	model    func() *Engine
}

// own reports whether the model speaks with a voice.
func (s speaker) own(name string) bool {
	program, _, _ := strings.Cut(cmp.Or(name, s.voice), ":")
	return (program == inference.VoiceModel || program == inference.VoiceAuto) && s.model().Capabilities().OwnVoice
}

// Speak implements inference.Speaker.
func (s speaker) Speak(ctx context.Context, text, name, language string) iter.Seq2[inference.Chunk, error] {
	ctx, name = inference.Behind(ctx), cmp.Or(name, s.voice)
	model := s.model()
	if !s.own(name) {
		return s.programs.Speak(ctx, text, name, language)
	}
	return func(yield func(inference.Chunk, error) bool) {
		session, err := model.Open(nil)
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		defer session.Close()
		session.Speak(ctx, text, name, language)(yield)
	}
}
