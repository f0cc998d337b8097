package watch

import (
	"encoding/json"
	"strings"
	"unicode"

	lksdk "github.com/livekit/server-sdk-go/v2"

	"touchline/agent/room/publish"
)

// maxReason bounds a reason that is read from an attribute, in characters.
const maxReason = 300

// away returns the reason why a camera sends no picture, as declared by its participant: the watched one, or without one the
// wanted one ("" for any).
func away(others []*lksdk.RemoteParticipant, wanted, watched string) string {
	for _, p := range others {
		identity := p.Identity()
		if watched != "" && identity != watched || watched == "" && wanted != "" && identity != wanted || p.Kind() == lksdk.ParticipantAgent {
			continue
		}
		if why := readAway(p.Attributes()[publish.CameraAttribute]); why != "" {
			return why
		}
	}
	return ""
}

// readAway reads the reason from the attribute; "" when the camera is live or the attribute is not valid.
func readAway(text string) string {
	if text == "" || len(text) > 16<<10 {
		return ""
	}
	var s publish.CameraState
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
