package room

import (
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"touchline/agent"
	"touchline/agent/room/conn"
	"touchline/agent/room/publish"
)

func init() { conn.SetLibraryLogger(zerolog.Nop()) } //nolint:gochecknoinits // before any test uses the library

// StateAttribute is the state attribute alone.
type StateAttribute struct{ b *stateAttribute }

// NewStateAttribute starts one.
func NewStateAttribute(now time.Time) StateAttribute { return StateAttribute{newStateAttribute(now)} }

// Set sets the status.
func (b StateAttribute) Set(s agent.Status, now time.Time) { b.b.set(s, now) }

// Due returns the word and the detail to send.
func (b StateAttribute) Due(now time.Time) (word, detail string) {
	n := b.b.due(now, "")
	return n.attributes[attrAgentState], n.detail
}

// DueAttributes returns the attributes to send.
func (b StateAttribute) DueAttributes(now time.Time) map[string]string {
	return b.b.due(now, "").attributes
}

// Newcomer notes a new participant.
func (b StateAttribute) Newcomer(now time.Time) { b.b.newcomer(now) }

// CountRPCAnswers counts the acknowledgements and answers that a participant gets.
func CountRPCAnswers(room *lksdk.Room) *atomic.Int64 {
	var n atomic.Int64
	dc := conn.EngineOf(room).GetDataChannelSub(livekit.DataPacket_RELIABLE)
	next := conn.Unexported[func(webrtc.DataChannelMessage)](dc, "onMessageHandler")
	dc.OnMessage(func(msg webrtc.DataChannelMessage) {
		var packet livekit.DataPacket
		if proto.Unmarshal(msg.Data, &packet) == nil && (packet.GetRpcAck() != nil || packet.GetRpcResponse() != nil) {
			n.Add(1)
		}
		next(msg)
	})
	return &n
}

// PublishUnanswered publishes a track in a room that does not answer, until interrupt is done; it returns how
// publishing ended.
func PublishUnanswered(room *lksdk.Room, interrupt func(gone func(), reconnecting func())) error {
	ses := conn.NewSession(nil)
	ses.Room = room
	timer := time.AfterFunc(300*time.Millisecond, func() {
		interrupt(func() { ses.End() }, func() { ses.SetReconnecting(true) })
	})
	defer timer.Stop()
	return publish.NewVoice(nil, zerolog.Nop()).Publish(ses)
}

// Reconnects returns the number of reconnects by the client library since the start.
func (s *Supervisor) Reconnects() int64 { return s.reconnects.Load() }
