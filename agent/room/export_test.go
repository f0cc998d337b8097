package room

import (
	"bytes"
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/media"
)

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

// Delays returns the waits of n attempts that take no time themselves, with the defaults for a first and most of 0.
func Delays(n int, now time.Time, first, most time.Duration) (waits []time.Duration, total time.Duration) {
	b := backoff{first: first, most: most}
	for range n {
		d := b.next(now)
		now, total = now.Add(d), total+d
		waits = append(waits, d)
	}
	return waits, total
}

// Board is the attribute board alone.
type Board struct{ b *stateBoard }

// NewBoard starts one.
func NewBoard(now time.Time) Board { return Board{newStateBoard(now)} }

// Set sets the status.
func (b Board) Set(s agent.Status, now time.Time) { b.b.set(s, now) }

// Due returns what would be sent: the word, and the detail.
func (b Board) Due(now time.Time) (word, detail string) {
	n := b.b.due(now)
	return n.word, n.detail
}

// Newcomer has somebody come.
func (b Board) Newcomer(now time.Time) { b.b.newcomer(now) }

// boundTrack returns a track whose packets go to a peer on loopback.
func boundTrack(t *testing.T, mime string) *lksdk.LocalTrack {
	t.Helper()
	track, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: mime, ClockRate: media.VideoClockRate})
	require.NoError(t, err)
	from, to := Peers(t)
	_, err = from.AddTrack(track)
	require.NoError(t, err)
	Connect(t, from, to)
	require.Eventually(t, track.IsBound, 20*time.Second, 5*time.Millisecond)
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
	return &VoiceTrack{inner: inner, log: zerolog.Nop()}
}

// PacketsPerStep is how many packets of a frame of n leave together.
func PacketsPerStep(n int) int { return packetsPerStep(n) }

// AnswerControl answers one message of the data topic of somebody who may steer, without a room. allowed is
// whether the sender has an identity that is listed.
func AnswerControl(bot Steered, payload []byte, allowed bool) (ok bool, code string, answer []byte) {
	c := &Control{cfg: ControlConfig{Identities: []string{"boss"}}, bot: bot, log: zerolog.Nop(), sup: &Supervisor{opts: Options{Room: "match"}}}
	var req request
	if decode(payload, &req) != nil {
		return false, "bad_request", nil
	}
	if !allowed {
		r := c.answer(inbound{payload: payload, from: "boss"}) // a name that the room does not show
		b, _ := json.Marshal(r)                                // nil is no JSON, and the test says so
		return r.OK, replyCode(r), b
	}
	var p params
	if len(bytes.TrimSpace(req.Params)) > 0 {
		if decode(req.Params, &p) != nil {
			return false, "bad_request", nil
		}
	}
	result, err := c.do(req.Method, p, "room: boss")
	if err != nil {
		return false, "bad_request", nil
	}
	b, _ := json.Marshal(reply{ID: req.ID, OK: true, Result: result})
	return true, "", b
}

func replyCode(r reply) string {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

// PublishUnanswered publishes a track in a room that does not answer, until interrupt is done; it returns how
// publishing ended.
func PublishUnanswered(room *lksdk.Room, interrupt func(gone func(), mending func())) error {
	v := newVisit(nil)
	v.room = room
	timer := time.AfterFunc(300*time.Millisecond, func() {
		interrupt(func() { close(v.gone) }, func() { v.setMending(true) })
	})
	defer timer.Stop()
	var t VoiceTrack
	return t.publish(v)
}
