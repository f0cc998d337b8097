package events

import "time"

// DataLines is dataLines.
func DataLines(text string) []byte { return dataLines(text) }

// Waiting is the number of cycles whose pictures wait to be encoded.
func Waiting(h *Hub) int { return len(h.frames.queue) }

// LastID is the id of the last event.
func LastID(h *Hub) uint64 { return h.next }

// Bounds of the pictures of alerts.
const (
	AlertBytes = alertBytes
	AlertAge   = alertAge
)

// FrameAt is AlertFrame at a time.
func FrameAt(h *Hub, id string, now time.Time) []byte {
	jpeg, _, _ := h.alerts.frame(id, now)
	return jpeg
}
