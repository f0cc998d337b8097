package bot

import (
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/webhook"
	"touchline/inference/minicpmo"
	"touchline/inference/residency"
	"touchline/media"
)

// OutputsTo returns outputs to a running sender.
func OutputsTo(s *webhook.Sender) *Outputs { return &Outputs{webhooks: s, log: zerolog.Nop()} }

// Described is described.
func Described(pictures, chosen agent.SourceInfo) agent.SourceInfo {
	return described(pictures, chosen)
}

// NewFanout makes a fanout before out.
func NewFanout(out agent.VideoOutput, askKeyFrame func()) agent.VideoOutput {
	return &fanout{out: out, askKeyFrame: askKeyFrame}
}

// Subscribe reads from a fanout of NewFanout.
func Subscribe(t agent.VideoOutput) (<-chan media.EncodedFrame, func()) {
	return t.(*fanout).subscribe()
}

// NewLocalEngine makes an engine of a model that load loads.
func NewLocalEngine(load residency.Load, cfg minicpmo.Settings) (*Engine, error) {
	return newLocalEngine(&builtIn{name: "local", load: load}, cfg, zerolog.Nop())
}
