package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
)

const (
	// maxMessage bounds an error's message, in bytes.
	maxMessage = 2 << 10
	// maxBody bounds a request's body, in bytes; a full record has about 5 KiB.
	maxBody = 256 << 10
)

// event is a request's body. Its first fields are the fields of LiveKit's WebhookEvent with the names in its protobuf, which
// LiveKit's JSON readers accept.
type event struct {
	Event       string      `json:"event"`
	ID          string      `json:"id"`
	CreatedAt   int64       `json:"created_at"` // s since 1970
	Room        roomName    `json:"room"`
	Participant participant `json:"participant"`
	// NumDropped is the number of events lost to this recipient since its last delivery.
	NumDropped uint64 `json:"num_dropped,omitempty"`

	Record *look.Record `json:"record,omitempty"`
	State  *state       `json:"state,omitempty"`
	Error  *failure     `json:"error,omitempty"`
	Alert  *alert.Alert `json:"alert,omitempty"`
	Heard  *agent.Heard `json:"heard,omitempty"`

	// forgotten is set when the speech was deleted, or the instruction of a record; nil for other events.
	forgotten *atomic.Bool
}

type roomName struct {
	Name string `json:"name"`
}

type participant struct {
	Identity string `json:"identity"`
	Kind     string `json:"kind"`
}

type state struct {
	agent.Status

	Before         string `json:"before"` // State before
	BeforeActivity string `json:"before_chip"`
}

type failure struct {
	Message string `json:"message"`
}

// withoutInstruction returns an event of a record without its instruction, which was deleted.
func (e event) withoutInstruction() event {
	r := *e.Record
	r.Instruction, e.Record = "", &r
	return e
}

func (e event) body() ([]byte, error) {
	if e.Error != nil {
		e.Error = &failure{shorten(e.Error.Message)}
	}
	if r := e.Record; r != nil && len(r.Reason) > maxMessage {
		short := *r
		short.Reason = shorten(r.Reason)
		e.Record = &short
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("event of %d bytes: at most %d are posted", len(b), maxBody)
	}
	return b, nil
}

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	end := maxMessage
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimSpace(s[:end]) + "…"
}
