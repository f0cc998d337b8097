package control

import (
	"encoding/json"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/room/conn"
)

// AnswerControl answers one message of the data topic without a room. moderator makes the sender a listed
// participant of the room; otherwise it has a listed name, but is not in the room.
func AnswerControl(bot agent.Steerer, payload []byte, moderator bool) (ok bool, code string, answer []byte) {
	c := New(Config{Identities: []string{"boss"}}, conn.Keys{}, bot, nil, nil, zerolog.Nop())
	m := inbound{who: caller{identity: "boss", known: moderator}}
	m.who.rights = c.rightsOf(m.who, time.Now())
	if m.err = decode(payload, &m.req); m.err == nil {
		m.err = c.authorise(&m.who, m.req.Method, m.req.Token, time.Now())
	}
	r := c.answer(m)
	b, _ := json.Marshal(r) // nil is no JSON, and the test fails
	if r.Error != nil {
		code = r.Error.Code
	}
	return r.OK, code, b
}
