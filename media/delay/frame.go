// Package delay holds the picture back: a Line keeps encoded access units
// until arrival + D and lets D slide without a jump.
package delay

import (
	"time"

	"touchline/media"
)

// OutFrame is one access unit on its way out of the delay line.
type OutFrame struct {
	media.EncodedFrame
	// Due is when the picture is to be shown: arrival + D. The RTP timestamp
	// of the copy follows it, not the source's.
	Due time.Time
}
