package signaling

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"
)

// gatherTime bounds the gathering of candidates; host candidates are there at once.
const gatherTime = 2 * time.Second

var (
	// ErrMalformed marks an offer that is no SDP offer of WebRTC; the answer is 400. A valid offer that cannot be
	// accepted as a whole is answered with 422.
	ErrMalformed = errors.New("malformed offer")

	errStale        = errors.New("expected the entity-tag of the present ICE session")
	errNoTag        = errors.New("expected an If-Match header")
	errNotAnswering = errors.New("expected an offer that can be answered as a whole")
	errOver         = errors.New("the session is over")
)

// NewID returns 128 random bits in base64.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// PeerOptions make a Peer.
type PeerOptions struct {
	Offer *Offer
	// Local is set if the client is on this machine.
	Local bool
	// Media and Interceptors of the connection.
	Media        *webrtc.MediaEngine
	Interceptors *interceptor.Registry
	// Prepare is called with the connection before the negotiation.
	Prepare func(pc *webrtc.PeerConnection) error
	// Accept returns whether a section of the answer is complete.
	Accept func(m *sdp.MediaDescription) bool
	// Connected is called when the connection is established; Ended when it failed or was closed.
	Ended     func(reason string)
	Connected func()
}

// Peer is the WebRTC connection of a session, which answers the client's offers.
type Peer struct {
	PC *webrtc.PeerConnection

	opts PeerOptions

	mu          sync.Mutex
	to          *destinations
	over        bool
	offer       string
	ufrag, pwd  string
	etag        string
	firstAnswer string
}

// NewPeer answers an offer.
func (p *Port) NewPeer(ctx context.Context, o PeerOptions) (*Peer, error) {
	pc, err := p.connection(o.Media, o.Interceptors)
	if err != nil {
		return nil, err
	}
	x := &Peer{
		PC: pc, opts: o, to: newDestinations(reach(p.opts, ownAddresses(), o.Local)),
		offer: o.Offer.Text, ufrag: o.Offer.ufrag, pwd: o.Offer.pwd, etag: `"` + NewID() + `"`,
	}
	if err := o.Prepare(pc); err != nil {
		_ = pc.GracefulClose()
		return nil, err
	}
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			o.Connected()
		case webrtc.PeerConnectionStateFailed:
			o.Ended("the connection was lost")
		case webrtc.PeerConnectionStateClosed:
			o.Ended("the other side closed the connection")
		default:
		}
	})
	if x.firstAnswer, err = x.negotiate(ctx, x.offer); err != nil {
		_ = pc.GracefulClose()
		return nil, err
	}
	return x, nil
}

// Answer returns the SDP answer to the first offer.
func (x *Peer) Answer() string { return x.firstAnswer }

// ETag returns the entity-tag of the present ICE session.
func (x *Peer) ETag() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.etag
}

// Close closes the connection and waits for the library's goroutines.
func (x *Peer) Close() error {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	return x.PC.GracefulClose()
}

// negotiate answers the first offer or one that restarts ICE.
func (x *Peer) negotiate(ctx context.Context, text string) (answer string, err error) {
	text, alone := bundled(x.to.filter(text))
	if err := x.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: text}); err != nil {
		return "", fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	made, err := x.PC.CreateAnswer(&webrtc.AnswerOptions{OfferAnswerOptions: webrtc.OfferAnswerOptions{ICETricklingSupported: true}})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotAnswering, err)
	}
	desc, err := made.Unmarshal()
	if err != nil {
		return "", err
	}
	for _, m := range desc.MediaDescriptions {
		if m.MediaName.Port.Value == 0 || !x.opts.Accept(m) {
			return "", fmt.Errorf("%w, its %s cannot be taken", errNotAnswering, m.MediaName.Media)
		}
	}
	gathered := webrtc.GatheringCompletePromise(x.PC)
	if err := x.PC.SetLocalDescription(made); err != nil {
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
	answer = x.PC.LocalDescription().SDP
	if alone {
		answer = ungrouped(answer)
	}
	return Polished(answer, x.opts.Local)
}

// Patch adds candidates or restarts ICE. body and etag are for the HTTP answer of a
// restart, and empty otherwise. match is the If-Match header, which only
// candidates of the present ICE session may lack.
func (x *Peer) Patch(ctx context.Context, match string, f Fragment) (body, etag string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return "", "", errOver
	}
	same := f.Ufrag == x.ufrag && f.Pwd == x.pwd
	switch match {
	case "":
		if !same {
			return "", "", errNoTag
		}
	case "*", `"*"`, x.etag: // the example of RFC 9725 quotes the asterisk
	default:
		return "", "", errStale
	}
	if same {
		x.trickle(f)
		return "", "", nil
	}
	text, err := Restarted(x.offer, f)
	if err != nil {
		return "", "", err
	}
	x.to.restart()
	answer, err := x.negotiate(ctx, text)
	if err != nil {
		return "", "", err
	}
	if body, err = AnswerFragment(answer); err != nil {
		return "", "", err
	}
	x.offer, x.ufrag, x.pwd, x.etag = text, f.Ufrag, f.Pwd, `"`+NewID()+`"`
	return body, x.etag, nil
}

// trickle adds the candidates that destinations accepts.
func (x *Peer) trickle(f Fragment) {
	index := uint16(0)
	for _, c := range f.Candidates {
		if !x.to.accept(c) {
			continue
		}
		init := webrtc.ICECandidateInit{Candidate: c, SDPMLineIndex: &index}
		if f.Mid != "" {
			init.SDPMid = &f.Mid
		}
		_ = x.PC.AddICECandidate(init)
	}
}
