package publish

import (
	"encoding/json"
	"sync"
	"time"
)

// CameraAttribute is the attribute with a CameraState as JSON, on the participant of a camera from outside of LiveKit.
const CameraAttribute = "touchline.source"

// CameraState is the state that the participant of a camera publishes.
type CameraState struct {
	// State is connecting, live, waiting, stalled, failed or ended.
	State string `json:"state"`
	// Reason why it is not live, in words.
	Reason string `json:"reason,omitempty"`
	// Since when.
	Since time.Time `json:"since,omitzero"`
}

// shownState is the published state of a camera.
type shownState struct {
	mu    sync.Mutex
	want  string
	shown string
}

func (b *shownState) set(s CameraState) {
	text, err := json.Marshal(s)
	if err != nil { // strings and a time always marshal
		return
	}
	b.mu.Lock()
	b.want = string(text)
	b.mu.Unlock()
}

// due returns the state if it has changed.
func (b *shownState) due() (text string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.want == b.shown {
		return "", false
	}
	b.shown = b.want
	return b.want, true
}

// forget makes the state due again.
func (b *shownState) forget() {
	b.mu.Lock()
	b.shown = ""
	b.mu.Unlock()
}
