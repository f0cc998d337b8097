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

// NewTap makes a tap before out.
func NewTap(out agent.VideoOutput, askKeyFrame func()) agent.VideoOutput {
	return &tap{out: out, askKeyFrame: askKeyFrame}
}

// SubscribeTap reads from a tap of NewTap.
func SubscribeTap(t agent.VideoOutput) (<-chan media.EncodedFrame, func()) {
	return t.(*tap).subscribe()
}

// Loaded is a model of this process.
type Loaded = loaded

// NewLocalEngine makes an engine of a model that open loads.
func NewLocalEngine(open func(context.Context, residency.Progress) (Loaded, error), cfg minicpmo.Settings) (*Engine, error) {
	return newLocalEngine(builtInOf("local", "", open, zerolog.Nop()), cfg, zerolog.Nop())
}
