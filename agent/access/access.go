// Package access defines the rights, the right that each operation needs, the tokens that carry rights, and their revocation.
//
// It owns the table of operations of the HTTP API and of the room. It knows neither HTTP nor LiveKit. An operation without a row
// needs Everything.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Rights is a set of rights in one room.
type Rights uint16

// The rights. None includes another.
const (
	// Watch allows pictures, sound, comments and state.
	Watch Rights = 1 << iota
	// Instruct allows instructions, commands, the choice of a profile, starting and stopping, and reading raw prompts and answers.
	Instruct
	// Settings allows settings, and the contents of profiles and of the sheet.
	Settings
	// Sources allows cameras and streams: opening, choosing and removing them, and sending one.
	Sources
	// Rules allows changing alert rules, and acknowledging alerts.
	Rules
	// Speak allows speaking to the commentator in the room, having its voice say a text, and speech as a service.
	Speak
	// Transcribe allows the words that people say in the room, and transcription as a service.
	Transcribe
	// Process allows process-wide operations: the list of rooms, dispatches, metrics. No token of a room has it.
	Process
)

// AllInRoom are the rights of a token that steers.
const AllInRoom = Watch | Instruct | Settings | Sources | Rules | Speak | Transcribe

// Everything are the rights of the operator, who has the console token or uses the same machine.
const Everything = AllInRoom | Process

// names of the rights, in the order of their bits.
func names() []string {
	return []string{"watch", "instruct", "settings", "sources", "rules", "speak", "transcribe", "process"}
}

// Allow reports whether r has all of the needed rights.
func (r Rights) Allow(needed Rights) bool { return needed&^r == 0 }

// Names lists the rights in r.
func (r Rights) Names() []string {
	out := []string{}
	for i, name := range names() {
		if r.Allow(1 << i) {
			out = append(out, name)
		}
	}
	return out
}

// String lists the rights, separated by commas.
func (r Rights) String() string { return strings.Join(r.Names(), ",") }

// Steer is the name of AllInRoom in lists of rights.
const Steer = "steer"

// Parse returns the rights of a list of names. Steer stands for AllInRoom. Process cannot be granted.
func Parse(list []string) (Rights, error) {
	var out Rights
	for _, name := range list {
		name = strings.TrimSpace(name)
		i := slices.Index(names(), name)
		switch {
		case name == Steer:
			out |= AllInRoom
		case i < 0 || Process == 1<<i:
			return 0, fmt.Errorf("right %.40q: must be one of %s, or %s for all", name, AllInRoom, Steer)
		default:
			out |= 1 << i
		}
	}
	if out == 0 {
		return 0, fmt.Errorf("rights: must name one or more of %s, or %s for all", AllInRoom, Steer)
	}
	return out, nil
}

// Needed returns the rights that an operation needs; Everything for an unknown one. An operation of the HTTP API is its method and
// path; for an operation on a room, the path below the room's. An operation in the room is the name of its method.
func Needed(operation string) Rights {
	switch operation {
	case "GET /", "GET /comments", "GET /status", "GET /stream", "GET /events", "GET /history", "GET /frame", "GET /frames/{id}", "GET /mjpeg",
		"GET /audio-stream", "GET /rights", "GET /profiles", "GET /profiles/{id}", "GET /sheet", "GET /rules",
		"GET /alerts", "GET /alerts/{id}/frame", "GET /sight", "GET /regions",
		"POST /livekit/token", // and Sources for the role of a camera
		"GET /openapi.json", "GET /openapi.yaml", "/rtc",
		"status", "rules", "regions",
		"history": // or the permission to subscribe
		return Watch
	case "POST /instruction", "DELETE /instruction", "POST /profiles", "POST /start", "POST /stop", "POST /command",
		"GET /looks", "GET /looks/next",
		"set_instruction", "clear_instruction", "set_profile", "start", "stop", "command", "talk":
		return Instruct
	case "GET /settings", "POST /settings", "PUT /profiles/{id}", "DELETE /profiles/{id}", "PUT /sheet", "DELETE /sheet",
		"GET /engines", "POST /engine", "update_settings":
		return Settings
	case "POST /source", "GET /sources", "POST /sources", "GET /sources/{id}", "PATCH /sources/{id}", "DELETE /sources/{id}",
		"POST /sources/{id}/select", "select_source":
		return Sources
	case "POST /say", "say", "POST /v1/audio/speech", "GET /v1/audio/voices":
		return Speak
	case "POST /v1/audio/transcriptions", "POST /v1/audio/transcriptions/stream", "POST /v1/audio/translations",
		"POST /v1/audio/subtitles", "GET /v1/models", "GET /v1/models/{id}", "GET /v1/realtime", "GET /ws/transcribe", "GET /health",
		"heard": // the events of what people say, among those of "GET /events"
		return Transcribe
	case "POST /rules", "PUT /rules/{id}", "DELETE /rules/{id}", "POST /rules/try", "POST /rules/{id}/snooze", "POST /rules/{id}/test",
		"POST /alerts/{id}/ack", "DELETE /alerts/{id}",
		"add_rule", "replace_rule", "remove_rule", "snooze_rule", "ack_alert":
		return Rules
	case "DELETE /heard":
		return Transcribe | Instruct
	case "PATCH /": // the room as a whole
		return Instruct | Settings | Sources
	case "POST /links", "GET /links", "DELETE /links/{id}",
		"PUT /regions/{name}", "DELETE /regions/{name}", "DELETE /regions", "POST /regions", // privacy masks
		"put_region", "remove_region", "clear_regions", "confirm_regions":
		return AllInRoom
	case "DELETE /", "GET /api/rooms", "POST /api/rooms", "GET /metrics",
		"GET /api/events": // of all rooms; of the only one it is "GET /events"
		return Process
	}
	return Everything
}
