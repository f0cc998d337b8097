// Package delay delays the picture: a Line holds encoded access units until
// arrival + D, and changes D gradually.
package delay

import (
	"time"

	"touchline/media"
)

// OutFrame is an access unit that leaves the delay line.
type OutFrame struct {
	media.EncodedFrame
	// Due is when the picture is to be shown: arrival + D. The RTP timestamps of
	// the copy are derived from it, not from the source's.
	Due time.Time
}
