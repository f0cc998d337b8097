package conn

import (
	"slices"
	"strings"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/livekit/server-sdk-go/v2/signalling"
	"github.com/pion/webrtc/v4"
	"google.golang.org/protobuf/proto"

	"touchline/internal/rescue"
)

// signalTap shows the server's signalling messages to see before the library handles them. The library has no callbacks for some of them.
type signalTap struct {
	signalling.SignalHandler

	see func(*livekit.SignalResponse)
}

// HandleMessage implements signalling.SignalHandler.
func (t signalTap) HandleMessage(m proto.Message) error {
	if r, ok := m.(*livekit.SignalResponse); ok {
		t.see(r)
	}
	return t.SignalHandler.HandleMessage(m)
}

// tapSignals makes ses see the messages to its room. It has no effect if a later version of the library lacks the unexported field.
func (ses *Session) tapSignals(room *lksdk.Room, fail func(error)) {
	engine := EngineOf(room)
	if engine == nil {
		return
	}
	if handler := field[signalling.SignalHandler](engine, "signalHandler"); handler != nil { // each join hands it to a new transport
		*handler = signalTap{*handler, func(r *livekit.SignalResponse) {
			defer rescue.Guard(fail)
			ses.signal(r)
		}}
	}
}

// signal notes the codecs of the room, and the tracks whose publishers do not let the bot subscribe.
func (ses *Session) signal(r *livekit.SignalResponse) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if join := r.GetJoin(); join != nil {
		ses.codecs = nil
		for _, c := range join.GetEnabledPublishCodecs() {
			ses.codecs = append(ses.codecs, strings.ToLower(c.GetMime()))
		}
	}
	if p := r.GetSubscriptionPermissionUpdate(); p != nil {
		ses.denied[p.GetTrackSid()] = !p.GetAllowed()
		ses.Wake.Set()
	}
}

// Resize declares the size of a published picture, for which the library has no method.
func (ses *Session) Resize(sid string, width, height int) {
	engine := EngineOf(ses.Room)
	if engine == nil {
		return
	}
	if transport := Unexported[signalling.SignalTransport](engine, "signalTransport"); transport != nil {
		_ = transport.SendMessage(&livekit.SignalRequest{Message: &livekit.SignalRequest_UpdateVideoTrack{ // fails without a connection
			UpdateVideoTrack: &livekit.UpdateLocalVideoTrack{
				TrackSid: sid, Width: uint32(width), Height: uint32(height),
			},
		}})
	}
}

// Denied reports whether the publisher of a track does not let this participant subscribe to it.
func (ses *Session) Denied(sid string) bool {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.denied[sid]
}

// Enables reports whether the room lets participants publish pictures of a MIME type. It does if its codecs are not known; with end-to-end
// encryption only those in H264 are.
func (ses *Session) Enables(mime string) bool {
	if ses.encryption != nil && mime != webrtc.MimeTypeH264 {
		return false
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return len(ses.codecs) == 0 || slices.Contains(ses.codecs, strings.ToLower(mime))
}
