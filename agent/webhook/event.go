package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"touchline/agent"
)

const (
	// maxMessage bounds the words of an error, in bytes.
	maxMessage = 2 << 10
	// maxBody bounds what is posted, in bytes; a full record is some 5 KiB.
	maxBody = 256 << 10
)

// event is a body. Its first fields are those of LiveKit's WebhookEvent, by the
// names of its protobuf, which its JSON readers take as well.
type event struct {
	Event       string      `json:"event"`
	ID          string      `json:"id"`
	CreatedAt   int64       `json:"created_at"` // s since 1970
	Room        roomName    `json:"room"`
	Participant participant `json:"participant"`
	// NumDropped is how many events this address was not told since the last one it took.
	NumDropped uint64 `json:"num_dropped,omitempty"`

	Record *agent.Record `json:"record,omitempty"`
	State  *state        `json:"state,omitempty"`
	Error  *failure      `json:"error,omitempty"`
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

	Before     string `json:"before"` // State before
	BeforeChip string `json:"before_chip"`
}

type failure struct {
	Message string `json:"message"`
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
		return nil, fmt.Errorf("write the event: %w", err)
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("expected an event of at most %d bytes, has %d", maxBody, len(b))
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
