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

// gatherTime bounds the search for own addresses; host addresses are there at once.
const gatherTime = 2 * time.Second

var (
	// ErrMalformed marks an offer that is not an SDP offer of WebRTC: answered with 400. Offers that are, but
	// cannot be met as a whole, are answered with 422.
	ErrMalformed = errors.New("malformed offer")

	errStale        = errors.New("expected the entity-tag of the ICE session under way")
	errNoTag        = errors.New("expected an If-Match header")
	errNotAnswering = errors.New("expected an offer that can be answered as a whole")
	errOver         = errors.New("the session is over")
)

// NewID is 128 bits that nobody guesses.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// PeerOptions make a Peer.
type PeerOptions struct {
	Offer *Offer
	// Local tells that the client is on this machine.
	Local bool
	// Media and Interceptors of the connection.
	Media        *webrtc.MediaEngine
	Interceptors *interceptor.Registry
	// Prepare is called with the connection before anything was negotiated.
	Prepare func(pc *webrtc.PeerConnection) error
	// Accept judges a section of the answer.
	Accept func(m *sdp.MediaDescription) bool
	// Ended is told once why the connection is of no more use; Connected when it is established.
	Ended     func(reason string)
	Connected func()
}

// Peer is the WebRTC side of a session: one connection that answers the
// client's offers.
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
			o.Ended("the connection broke off")
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

// Answer is the SDP that the offer was answered with, ETag the entity-tag of the ICE session under way.
func (x *Peer) Answer() string { return x.firstAnswer }

// ETag is the entity-tag of the ICE session under way.
func (x *Peer) ETag() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.etag
}

// Close closes the connection and waits for what the library does.
func (x *Peer) Close() error {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	return x.PC.GracefulClose()
}

// negotiate answers an offer, the first one or one with another ICE side.
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

// Patch adds candidates or restarts ICE. body and etag are for the answer, both
// empty when candidates were added. Only candidates of the ICE session under way
// may come without an entity-tag to match.
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
	case "*", `"*"`, x.etag: // RFC 9725 itself quotes the asterisk in its example
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

// trickle adds candidates. Those that are of no use are ignored.
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
