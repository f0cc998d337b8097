package whip

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/media"
)

const (
	// gatherTime bounds the search for own addresses; host addresses are there at once.
	gatherTime = 2 * time.Second
	// The library's figures, but for senders that check no consent and networks that change.
	disconnectTime, failTime, keepAlive = 7 * time.Second, 15 * time.Second, 2 * time.Second
	// keyFrameEvery is the least distance of requests for a key frame.
	keyFrameEvery = 500 * time.Millisecond
)

var (
	errStale        = errors.New("expected the entity-tag of the ICE session under way")
	errNoTag        = errors.New("expected an If-Match header")
	errNotAnswering = errors.New("expected an offer that can be answered as a whole")
	errOver         = errors.New("the session is over")
)

// Session is one sender.
type Session struct {
	// Room and Sender as they were accepted.
	Room   string
	Sender Sender
	// Began is when the offer came.
	Began time.Time

	id     string
	server *Server
	log    zerolog.Logger
	local  bool // the sender is on this machine
	pc     *webrtc.PeerConnection
	place  Place

	cancel context.CancelCauseFunc
	over   context.Context //nolint:containedctx // the session's own life
	done   chan struct{}
	wants  chan struct{} // a key frame

	patching     sync.Mutex
	offer, pwd   string
	ufrag, etag  string
	answer       string
	connected    atomic.Bool
	lastMedia    atomic.Int64 // Unix nanoseconds
	packets      atomic.Uint64
	closing      sync.Mutex
	closed       bool
	tracks       sync.WaitGroup
	emitting     sync.Mutex
	epoch        uint32
	last, active *reader
	readers      []*reader
}

// newID is 128 bits that nobody guesses.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// newSession answers an offer. It is not running yet.
func (s *Server) newSession(ctx context.Context, o *offer, room string, who Sender, from netip.Addr) (*Session, error) {
	x := &Session{
		Room: room, Sender: who, Began: s.opts.Now(), id: newID(), server: s, local: from.IsLoopback(),
		offer: o.text, ufrag: o.ufrag, pwd: o.pwd, etag: `"` + newID() + `"`,
		done: make(chan struct{}), wants: make(chan struct{}, 1),
		log: s.opts.Log.With().Str("room", room).Str("participant", who.Identity).Logger(),
	}
	x.over, x.cancel = context.WithCancelCause(context.Background())
	x.lastMedia.Store(x.Began.UnixNano())
	m, r, err := o.engines()
	if err != nil {
		return nil, err
	}
	settings, err := s.settings()
	if err != nil {
		return nil, err
	}
	api := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithInterceptorRegistry(r), webrtc.WithSettingEngine(settings))
	if x.pc, err = api.NewPeerConnection(webrtc.Configuration{ICEServers: s.stunOnly()}); err != nil {
		return nil, fmt.Errorf("make a WebRTC session: %w", err)
	}
	x.pc.OnTrack(x.onTrack)
	x.pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			x.connected.Store(true)
		case webrtc.PeerConnectionStateFailed:
			x.end("the connection broke off")
		case webrtc.PeerConnectionStateClosed:
			x.end("the sender closed the connection")
		default:
		}
	})
	if x.answer, err = x.negotiate(ctx, o.text); err != nil {
		x.cancel(err)
		_ = x.pc.GracefulClose()
		return nil, err
	}
	return x, nil
}

func (s *Server) settings() (webrtc.SettingEngine, error) {
	e := webrtc.SettingEngine{LoggerFactory: silent{}}
	s.mu.Lock()
	e.SetICEUDPMux(s.mux)
	s.mu.Unlock()
	e.SetIncludeLoopbackCandidate(true) // taken out of the answer where it is of no use
	e.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6})
	e.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled) // senders reach us; their own names do not matter
	e.SetICETimeouts(disconnectTime, failTime, keepAlive)
	if s.opts.LoopbackOnly {
		e.SetIPFilter(net.IP.IsLoopback)
	}
	if allow := s.opts.Remote; allow != nil {
		e.SetRemoteIPFilter(func(ip net.IP) bool {
			a, ok := netip.AddrFromSlice(ip)
			return ok && allow.Check(a) == nil
		})
	}
	if len(s.opts.ExternalIPs) > 0 {
		err := e.SetICEAddressRewriteRules(webrtc.ICEAddressRewriteRule{
			External: s.opts.ExternalIPs, AsCandidateType: webrtc.ICECandidateTypeHost,
		})
		if err != nil {
			return e, fmt.Errorf("announce the external addresses: %w", err)
		}
	}
	return e, nil
}

// stunOnly are the servers that tell our own address; relays are for senders.
func (s *Server) stunOnly() []webrtc.ICEServer {
	var out []webrtc.ICEServer
	for _, server := range s.opts.ICEServers {
		if server.Username == "" && !s.opts.LoopbackOnly {
			out = append(out, server)
		}
	}
	return out
}

// negotiate answers an offer, the first one or one with another ICE side.
func (x *Session) negotiate(ctx context.Context, text string) (answer string, err error) {
	if err := x.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: text}); err != nil {
		return "", fmt.Errorf("%w: %w", errMalformed, err)
	}
	made, err := x.pc.CreateAnswer(&webrtc.AnswerOptions{OfferAnswerOptions: webrtc.OfferAnswerOptions{ICETricklingSupported: true}})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotAnswering, err)
	}
	desc, err := made.Unmarshal()
	if err != nil {
		return "", err
	}
	for _, m := range desc.MediaDescriptions {
		if _, ok := m.Attribute("recvonly"); !ok || m.MediaName.Port.Value == 0 {
			return "", fmt.Errorf("%w, its %s cannot be taken", errNotAnswering, m.MediaName.Media)
		}
	}
	gathered := webrtc.GatheringCompletePromise(x.pc)
	if err := x.pc.SetLocalDescription(made); err != nil {
		return "", fmt.Errorf("answer the offer: %w", err)
	}
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	select {
	case <-gathered:
	case <-timer.C:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	return polished(x.pc.LocalDescription().SDP, x.local)
}

// slot is what may be there once only.
func (x *Session) slot() string { return x.Room + "\x00" + x.Sender.Key }

// Packets counts what came.
func (x *Session) Packets() uint64 { return x.packets.Load() }

// RequestKeyFrame asks the sender for a key frame. Some do not listen.
func (x *Session) RequestKeyFrame() {
	select {
	case x.wants <- struct{}{}:
	default:
	}
}

// End ends the session and returns when it is over.
func (x *Session) End(reason string) {
	x.end(reason)
	<-x.done
}

func (x *Session) end(reason string) { x.cancel(errors.New(reason)) }

// run is the session's life after the answer was made.
func (x *Session) run() {
	defer close(x.done)
	defer x.server.forget(x)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var asked time.Time
	var later <-chan time.Time
	for x.over.Err() == nil {
		select {
		case <-x.over.Done():
		case <-tick.C:
			x.check(x.server.opts.Now())
		case <-x.wants:
			if since := x.server.opts.Now().Sub(asked); since < keyFrameEvery {
				if later == nil {
					later = time.After(keyFrameEvery - since)
				}
				continue
			}
			asked, later = x.server.opts.Now(), nil
			x.askKeyFrame()
		case <-later:
			asked, later = x.server.opts.Now(), nil
			x.askKeyFrame()
		}
	}
	reason := context.Cause(x.over).Error()
	x.closing.Lock()
	x.closed = true
	x.closing.Unlock()
	if err := x.pc.GracefulClose(); err != nil {
		x.log.Debug().Err(err).Msg("close a WHIP session")
	}
	x.tracks.Wait()
	if x.place.Close != nil {
		x.place.Close(reason)
	}
	x.log.Info().Str("reason", reason).Uint64("packets", x.packets.Load()).Msg("WHIP session over")
}

func (x *Session) check(now time.Time) {
	o := x.server.opts
	switch quiet := now.Sub(time.Unix(0, x.lastMedia.Load())); {
	case !x.connected.Load() && now.Sub(x.Began) >= o.ConnectTime:
		x.end(fmt.Sprintf("no connection within %v; is UDP port %d open?", o.ConnectTime, x.server.UDPPort()))
	case x.connected.Load() && quiet >= o.Silence:
		x.end(fmt.Sprintf("nothing was sent for %v", o.Silence))
	}
}

// askKeyFrame sends a PLI (RFC 4585 section 6.3.1) for the picture in use, or all.
func (x *Session) askKeyFrame() {
	x.emitting.Lock()
	var packets []rtcp.Packet
	for _, r := range x.readers {
		if x.active == nil || x.active == r || r.wanted {
			packets = append(packets, &rtcp.PictureLossIndication{MediaSSRC: uint32(r.track.SSRC())})
			r.wanted = false
		}
	}
	x.emitting.Unlock()
	if len(packets) > 0 {
		_ = x.pc.WriteRTCP(packets) // a connection that is gone ends the session by itself
	}
}

// patch adds candidates or restarts ICE. body and etag are for the answer, both
// empty when candidates were added.
func (x *Session) patch(ctx context.Context, match string, f fragment) (body, etag string, err error) {
	x.patching.Lock()
	defer x.patching.Unlock()
	if x.over.Err() != nil {
		return "", "", errOver
	}
	switch match {
	case "":
		return "", "", errNoTag
	case "*", `"*"`, x.etag: // RFC 9725 itself quotes the asterisk in its example
	default:
		return "", "", errStale
	}
	if f.ufrag == x.ufrag && f.pwd == x.pwd {
		x.trickle(f)
		return "", "", nil
	}
	text, err := restarted(x.offer, f)
	if err != nil {
		return "", "", err
	}
	answer, err := x.negotiate(ctx, text)
	if err != nil {
		return "", "", err
	}
	if body, err = answerFragment(answer); err != nil {
		return "", "", err
	}
	x.offer, x.ufrag, x.pwd, x.etag, x.answer = text, f.ufrag, f.pwd, `"`+newID()+`"`, answer
	x.log.Info().Msg("WHIP session restarts ICE")
	return body, x.etag, nil
}

// trickle adds candidates. Those that are of no use are passed over in silence.
func (x *Session) trickle(f fragment) {
	index := uint16(0)
	for _, c := range f.candidates {
		init := webrtc.ICECandidateInit{Candidate: c, SDPMLineIndex: &index}
		if f.mid != "" {
			init.SDPMid = &f.mid
		}
		if err := x.pc.AddICECandidate(init); err != nil {
			x.log.Debug().Err(err).Msg("a candidate is of no use")
		}
	}
}

// emit hands on a frame of one reader, with an epoch of its own for each run of
// one reader. Of several layers the largest that is alive is used.
func (x *Session) emit(r *reader, f media.EncodedFrame) {
	x.emitting.Lock()
	defer x.emitting.Unlock()
	r.at, r.area = f.Received, f.Width*f.Height
	if a := x.active; a != r {
		better := a == nil || f.Received.Sub(a.at) > layerTime || r.area > a.area
		if !better {
			return
		}
		if !f.KeyFrame {
			if !r.wanted {
				r.wanted = true
				x.RequestKeyFrame()
			}
			return
		}
		x.active = r
	}
	if x.last != r || r.epoch != f.Epoch || x.epoch == 0 {
		x.epoch++
		x.last, r.epoch = r, f.Epoch
	}
	f.Epoch = x.epoch
	if x.place.Sink.Frame != nil {
		x.place.Sink.Frame(f)
	}
}
