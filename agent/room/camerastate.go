package room

import (
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode"

	lksdk "github.com/livekit/server-sdk-go/v2"
)

// cameraAttribute carries a CameraState as JSON, on the participant of a camera
// that is opened from outside of LiveKit.
const cameraAttribute = "touchline.source"

// maxReason bounds a reason that is read from an attribute, in characters.
const maxReason = 300

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

// away returns why a camera sends no picture, as declared by its participant: the
// watched one, or else the wanted one ("" for any).
func away(others []*lksdk.RemoteParticipant, wanted, watched string) string {
	for _, p := range others {
		identity := p.Identity()
		if watched != "" && identity != watched || watched == "" && wanted != "" && identity != wanted || p.Kind() == lksdk.ParticipantAgent {
			continue
		}
		if why := readAway(p.Attributes()[cameraAttribute]); why != "" {
			return why
		}
	}
	return ""
}

// readAway reads the attribute; "" when the camera is live or it is not understood.
func readAway(text string) string {
	if text == "" || len(text) > 16<<10 {
		return ""
	}
	var s CameraState
	if json.Unmarshal([]byte(text), &s) != nil {
		return ""
	}
	reason := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s.Reason)
	if runes := []rune(reason); len(runes) > maxReason {
		reason = string(runes[:maxReason])
	}
	reason = strings.TrimSpace(reason)
	switch s.State {
	case "connecting":
		return "the camera is being opened"
	case "waiting", "stalled", "failed":
		if reason == "" {
			return "the camera is away"
		}
		return reason
	case "ended":
		return "the camera has ended"
	}
	return ""
}
