package control

import (
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"google.golang.org/protobuf/proto"

	"touchline/agent/room/conn"
	"touchline/internal/limit"
	"touchline/internal/rescue"
)

const (
	// floodRate and floodBurst bound the RPC requests of one participant that reach the client library, which
	// acknowledges and answers each, even for unknown methods.
	floodRate, floodBurst = 10, 30
	// linkFlood is how many times as many those of all participants by one link may be, of each kind.
	linkFlood = 4
	// sealedRate and sealedBurst are the bounds of encrypted packets, which may be such requests or parts of texts and files.
	sealedRate, sealedBurst = 100, 300
	// floodPending bounds the bytes queued for the data channel; beyond it, requests of strangers are dropped.
	floodPending = 1 << 20
)

// pendingBytes returns the bytes queued for the reliable data channel of a room.
func pendingBytes(room *lksdk.Room) uint64 {
	if engine := conn.EngineOf(room); engine != nil {
		if dc := engine.GetDataChannel(livekit.DataPacket_RELIABLE); dc != nil {
			return dc.BufferedAmount()
		}
	}
	return 0
}

// floodLimiter drops the RPC requests of participants that send too many, before they
// reach the client library: it would send an acknowledgement and an answer for each
// and queue them without a bound. In an encrypted room it cannot tell requests from
// other packets, and all of them have a higher bound. It also drops packets that the library would only log.
type floodLimiter struct {
	requests, sealed floodRates
	link             func(room *lksdk.Room, identity string) string // of a participant; "" for none
	trusted          func(room *lksdk.Room, identity string) bool
	fail             func(err error) // takes a panic
	encrypted        func() bool     // whether the library has a key

	limited [2]*webrtc.DataChannel // reliable, lossy
	dropped atomic.Uint64
}

// floodRates are the bounds of a kind of packet.
type floodRates struct{ perCaller, perLink *limit.Limiter[string] }

func newFloodRates(perSecond float64, burst int) floodRates {
	return floodRates{limit.New[string](perSecond, burst), limit.New[string](linkFlood*perSecond, linkFlood*burst)}
}

// check puts itself before the handlers of the present data channels; a reconnect makes new ones.
func (l *floodLimiter) check(room *lksdk.Room) {
	engine := conn.EngineOf(room)
	if engine == nil {
		return
	}
	for i, kind := range []livekit.DataPacket_Kind{livekit.DataPacket_RELIABLE, livekit.DataPacket_LOSSY} {
		dc := engine.GetDataChannelSub(kind)
		if dc == nil || dc == l.limited[i] {
			continue
		}
		l.limited[i] = dc
		next := handlerOf(dc)
		if next == nil {
			continue
		}
		dc.OnMessage(func(msg webrtc.DataChannelMessage) {
			defer rescue.Guard(l.fail)
			if l.passes(room, msg.Data) {
				next(msg)
			}
		})
	}
}

func (l *floodLimiter) passes(room *lksdk.Room, data []byte) bool {
	var packet livekit.DataPacket
	if proto.Unmarshal(data, &packet) != nil {
		return true
	}
	rates := l.requests
	switch packet.GetValue().(type) {
	case *livekit.DataPacket_RpcRequest:
	case *livekit.DataPacket_RpcAck, *livekit.DataPacket_RpcResponse: // the bot makes no calls
		l.dropped.Add(1)
		return false
	case *livekit.DataPacket_EncryptedPacket:
		if !l.encrypted() {
			l.dropped.Add(1)
			return false
		}
		rates = l.sealed
	default:
		return true
	}
	from, now := packet.GetParticipantIdentity(), time.Now()
	_, ok := rates.perCaller.Allow(from, now)
	if ok { // a refused packet costs little
		if link := l.link(room, from); link != "" {
			_, ok = rates.perLink.Allow(link, now)
		}
	}
	if ok && (pendingBytes(room) <= floodPending || l.trusted(room, from)) {
		return true
	}
	l.dropped.Add(1)
	return false
}

// handlerOf returns the function that was passed to dc.OnMessage; nil if a later
// version of the library has no such field.
func handlerOf(dc *webrtc.DataChannel) func(webrtc.DataChannelMessage) {
	return conn.Unexported[func(webrtc.DataChannelMessage)](dc, "onMessageHandler")
}
