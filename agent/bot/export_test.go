package bot

import (
	"context"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/webhook"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/remote"
	"touchline/inference/voice"
)

// OutputsTo returns outputs to a running sender.
func OutputsTo(s *webhook.Sender) *Outputs { return &Outputs{all: []Output{s}, log: zerolog.Nop()} }

// Described is described.
func Described(pictures, chosen agent.SourceInfo) agent.SourceInfo {
	return described(pictures, chosen)
}

// NewLocalEngine makes an engine of a model that load loads.
func NewLocalEngine(load engine.Load, cfg minicpmo.Settings) (*Engine, error) {
	return newLocalEngine(&builtIn{name: "local", load: load}, cfg, zerolog.Nop())
}

// ScriptedEngines makes engines by build, and finds servers by discover.
func ScriptedEngines(build func(Settings, zerolog.Logger) (*Engine, error), discover func(context.Context, ...string) []remote.Found) *Engines {
	r := NewEngines(inference.VoiceConfig{}, zerolog.Nop())
	r.make, r.discover = build, discover
	r.voices = func() []voice.Voice {
		return []voice.Voice{{ID: "flite:rms", Language: "en"}, {ID: "espeak-ng:nl", Language: "nl"}}
	}
	return r
}

// Shared returns the number of engines.
func (r *Engines) Shared() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.shared)
}

// RunChanges makes the changes of the engine.
func (b *Bot) RunChanges(ctx context.Context) error { return b.engine.run(ctx) }

// CloseEngines ends the use of the engine.
func (b *Bot) CloseEngines() error { return b.engine.close() }

// RunRecognition has the bot's own engines run its recognizer.
func (b *Bot) RunRecognition() { b.engine.engines.hears = false }
