package bot

import (
	"context"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/webhook"
	"touchline/inference/minicpmo"
	"touchline/inference/residency"
	"touchline/media"
)

// OutputsTo are outputs to a sender that somebody else runs.
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

// Loaded is a model of this process.
type Loaded = loaded

// NewLocalEngine makes an engine of a model that open loads.
func NewLocalEngine(open func(context.Context, residency.Progress) (Loaded, error), cfg minicpmo.Settings) (*Engine, error) {
	return newLocalEngine(builtInOf("local", "", open, zerolog.Nop()), cfg, zerolog.Nop())
}
