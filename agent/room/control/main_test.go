package control

import (
	"testing"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/room/conn"
)

func TestMain(m *testing.M) {
	conn.SetLibraryLogger(zerolog.Nop()) // before any test uses the library
	goleak.VerifyTestMain(m)
}

// presence is the bot in a room that is not there.
type presence struct {
	mute  bool
	voice string // id of its track

	encrypted bool
}

func (*presence) RoomName() string                     { return "match" }
func (*presence) Identity() string                     { return "bot" }
func (*presence) CurrentRoom() *lksdk.Room             { return nil }
func (p *presence) VoiceSID() string                   { return p.voice }
func (*presence) VideoSID() string                     { return "" }
func (*presence) SetState(agent.Status)                {}
func (*presence) Instructors(*lksdk.Room) []string     { return nil }
func (*presence) Readers(*lksdk.Room) ([]string, bool) { return nil, true }
func (p *presence) Transcribes() bool                  { return !p.mute }
func (p *presence) Encrypted() bool                    { return p.encrypted }
func (*presence) Fail(error)                           {}
