package events

// DataLines is dataLines.
func DataLines(text string) []byte { return dataLines(text) }

// Waiting is the number of cycles whose pictures wait to be encoded.
func Waiting(h *Hub) int { return len(h.frames.queue) }

// Bounds of the pictures of alerts.
const (
	AlertBytes = alertBytes
	AlertAge   = alertAge
)
