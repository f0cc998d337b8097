package wiring

import (
	"touchline/agent"
	"touchline/media"
)

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
