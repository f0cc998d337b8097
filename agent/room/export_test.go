package room

import (
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"touchline/agent"
	"touchline/agent/room/conn"
	"touchline/media"
)

func init() { conn.SetLibraryLogger(zerolog.Nop()) } //nolint:gochecknoinits // before any test uses the library

// Candidate is a track for Choose, in a test's words.
type Candidate struct {
	Identity, SID string
	Agent, Muted  bool
	Screen        bool
}

// Choose returns the SID of the track that would be watched; the order is that of first sight.
func Choose(all []Candidate, watch media.WatchConfig, present string) string {
	list := make([]candidate, len(all))
	for i, c := range all {
		list[i] = candidate{
			identity: c.Identity, agent: c.Agent, muted: c.Muted, sid: c.SID, order: uint64(i),
			source: livekit.TrackSource_CAMERA,
		}
		if c.Screen {
			list[i].source = livekit.TrackSource_SCREEN_SHARE
		}
	}
	picked, _ := choose(list, watch, present)
	return picked.sid
}

// StateAttribute is the state attribute alone.
type StateAttribute struct{ b *stateAttribute }

// NewStateAttribute starts one.
func NewStateAttribute(now time.Time) StateAttribute { return StateAttribute{newStateAttribute(now)} }

// Set sets the status.
func (b StateAttribute) Set(s agent.Status, now time.Time) { b.b.set(s, now) }

// Due returns the word and the detail to send.
func (b StateAttribute) Due(now time.Time) (word, detail string) {
	n := b.b.due(now)
	return n.attributes[attrAgentState], n.detail
}

// DueAttributes returns the attributes to send.
func (b StateAttribute) DueAttributes(now time.Time) map[string]string {
	return b.b.due(now).attributes
}

// Newcomer notes a new participant.
func (b StateAttribute) Newcomer(now time.Time) { b.b.newcomer(now) }

// boundTrack returns a track whose packets go to a peer on loopback.
func boundTrack(t *testing.T, mime string) *lksdk.LocalTrack {
	t.Helper()
	track, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: mime, ClockRate: media.VideoClockRate})
	require.NoError(t, err)
	from, to := Peers(t)
	_, err = from.AddTrack(track)
	require.NoError(t, err)
	Connect(t, from, to)
	require.Eventually(t, track.IsBound, 2*time.Minute, 5*time.Millisecond)
	return track
}

// Peers makes two ends on loopback.
func Peers(t *testing.T) (from, to *webrtc.PeerConnection) {
	t.Helper()
	var engine webrtc.SettingEngine
	engine.SetIncludeLoopbackCandidate(true)
	engine.SetIPFilter(func(ip net.IP) bool { return ip.IsLoopback() && ip.To4() != nil })
	engine.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	api := webrtc.NewAPI(webrtc.WithSettingEngine(engine))
	var out [2]*webrtc.PeerConnection
	for i := range out {
		pc, err := api.NewPeerConnection(webrtc.Configuration{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pc.GracefulClose()) })
		out[i] = pc
	}
	return out[0], out[1]
}

// Connect joins them, candidates inside the descriptions.
func Connect(t *testing.T, from, to *webrtc.PeerConnection) {
	t.Helper()
	offer, err := from.CreateOffer(nil)
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(from)
	require.NoError(t, from.SetLocalDescription(offer))
	<-gathered
	require.NoError(t, to.SetRemoteDescription(*from.LocalDescription()))
	answer, err := to.CreateAnswer(nil)
	require.NoError(t, err)
	gathered = webrtc.GatheringCompletePromise(to)
	require.NoError(t, to.SetLocalDescription(answer))
	<-gathered
	require.NoError(t, from.SetRemoteDescription(*to.LocalDescription()))
}

// NewVoice returns a voice that writes to inner.
func NewVoice(inner *lksdk.LocalTrack) *VoiceTrack {
	return &VoiceTrack{localTrack: localTrack{inner: inner}, log: zerolog.Nop()}
}

// PacketsPerStep is how many packets of a frame of n leave together.
func PacketsPerStep(n int) int { return packetsPerStep(n) }

// AnswerControl answers one message of the data topic without a room. moderator makes the sender a listed
// participant of the room; otherwise it has a listed name, but is not in the room.
func AnswerControl(bot agent.Steerer, payload []byte, moderator bool) (ok bool, code string, answer []byte) {
	c := NewControl(ControlConfig{Identities: []string{"boss"}}, conn.Keys{}, bot, nil, zerolog.Nop())
	m := inbound{who: caller{identity: "boss", known: moderator}}
	m.who.rights = c.rightsOf(m.who)
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

// Unlimited takes the limits of requests away.
func Unlimited(c *Control) { c.moderators, c.strangers, c.histories, c.all = nil, nil, nil, nil }

// CountRPCAnswers counts the acknowledgements and answers that a participant gets.
func CountRPCAnswers(room *lksdk.Room) *atomic.Int64 {
	var n atomic.Int64
	dc := conn.EngineOf(room).GetDataChannelSub(livekit.DataPacket_RELIABLE)
	next := handlerOf(dc)
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
	var t VoiceTrack
	return t.publish(ses)
}

// Reconnects returns the number of reconnects by the client library since the start.
func (s *Supervisor) Reconnects() int64 { return s.reconnects.Load() }
