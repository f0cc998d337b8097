package signaling

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"

	"touchline/media/source"
)

// gatherTime bounds the gathering of candidates; host candidates are available at once.
const gatherTime = 2 * time.Second

// newID returns 128 random bits in base64.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// peer answers the offers of a client: the first one and the ones that restart ICE.
type peer struct {
	pc          *webrtc.PeerConnection
	direction   string
	local       bool
	firstAnswer string

	mu         sync.Mutex
	to         *destinations
	over       bool
	offer      string
	ufrag, pwd string
	etag       string
}

// newPeer answers the first offer. local is set if the client is on this machine.
func newPeer(ctx context.Context, pc *webrtc.PeerConnection, o *Offer, local bool, allow source.Allow) (p *peer, err error) {
	p = &peer{
		pc: pc, direction: o.direction, local: local, to: newDestinations(allow),
		offer: o.Text, ufrag: o.ufrag, pwd: o.pwd, etag: `"` + newID() + `"`,
	}
	p.firstAnswer, err = p.negotiate(ctx, o.Text)
	return p, err
}

// tag returns the entity-tag of the current ICE session.
func (p *peer) tag() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.etag
}

// close closes the connection and waits for the library's goroutines.
func (p *peer) close() error {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	return p.pc.GracefulClose()
}

// negotiate answers the first offer or one that restarts ICE.
func (p *peer) negotiate(ctx context.Context, text string) (answer string, err error) {
	text, alone := bundled(p.to.filter(text))
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: text}); err != nil {
		return "", fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	made, err := p.pc.CreateAnswer(&webrtc.AnswerOptions{OfferAnswerOptions: webrtc.OfferAnswerOptions{ICETricklingSupported: true}})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotAnswering, err)
	}
	desc, err := made.Unmarshal()
	if err != nil {
		return "", err
	}
	for _, m := range desc.MediaDescriptions {
		_, directed := m.Attribute(p.direction)
		if m.MediaName.Port.Value == 0 || !directed && m.MediaName.Media != "application" {
			return "", fmt.Errorf("%w, its %s section cannot be accepted", errNotAnswering, m.MediaName.Media)
		}
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(made); err != nil {
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
	answer = p.pc.LocalDescription().SDP
	if alone {
		answer = ungrouped(answer)
	}
	return polished(answer, p.local)
}

// patch adds candidates or restarts ICE. body and etag are for the HTTP answer of a
// restart, and empty otherwise. match is the If-Match header, which only
// candidates of the current ICE session may lack.
func (p *peer) patch(ctx context.Context, match string, f fragment) (body, etag string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return "", "", errOver
	}
	same := f.Ufrag == p.ufrag && f.Pwd == p.pwd
	switch match {
	case "":
		if !same {
			return "", "", errNoTag
		}
	case "*", `"*"`, p.etag: // the example of RFC 9725 quotes the asterisk
	default:
		return "", "", errStale
	}
	if same {
		p.trickle(f)
		return "", "", nil
	}
	text, err := restarted(p.offer, f)
	if err != nil {
		return "", "", err
	}
	clear(p.to.tried) // the new ICE session may try the known addresses again
	answer, err := p.negotiate(ctx, text)
	if err != nil {
		return "", "", err
	}
	if body, err = answerFragment(answer); err != nil {
		return "", "", err
	}
	p.offer, p.ufrag, p.pwd, p.etag = text, f.Ufrag, f.Pwd, `"`+newID()+`"`
	return body, p.etag, nil
}

// trickle adds the candidates that destinations accepts.
func (p *peer) trickle(f fragment) {
	index := uint16(0)
	for _, c := range f.Candidates {
		if !p.to.accept(c) {
			continue
		}
		init := webrtc.ICECandidateInit{Candidate: c, SDPMLineIndex: &index}
		if f.Mid != "" {
			init.SDPMid = &f.Mid
		}
		_ = p.pc.AddICECandidate(init)
	}
}
