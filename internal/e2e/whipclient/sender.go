// Package whipclient is a WHIP client (RFC 9725) that sends an encoded clip in real
// time and in a loop: a cheap camera for tests and benchmarks.
//
// It owns the HTTP exchange and the connection of one sender. It does not encode.
package whipclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
	pionmedia "github.com/pion/webrtc/v4/pkg/media"

	"touchline/internal/wake"
	"touchline/media"
)

// connectTime bounds the time from the offer to the connection.
const connectTime = 20 * time.Second

// Options of a Sender.
type Options struct {
	// URL of the WHIP endpoint, with the bearer Token for it.
	URL, Token string
	Codec      media.Codec
	// Units are the clip's access units, the first one a key frame. FPS is their rate.
	Units [][]byte
	FPS   int
	// Number embeds the unit's number in each H264 access unit, for the function Number.
	Number bool
	// Client of HTTP; nil is http.DefaultClient.
	Client *http.Client
}

// Sender is one connection.
type Sender struct {
	opts    Options
	pc      *webrtc.PeerConnection
	track   *webrtc.TrackLocalStaticSample
	client  *http.Client
	session *url.URL
	wg      sync.WaitGroup
}

// Dial posts an offer and returns when the connection is established.
func Dial(ctx context.Context, o Options) (*Sender, error) {
	s := &Sender{opts: o, client: cmp.Or(o.Client, http.DefaultClient)}
	if len(o.Units) == 0 || o.FPS <= 0 {
		return nil, errors.New("WHIP client: Units or FPS is not set")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := s.dial(ctx); err != nil {
		s.hangUp()
		return nil, fmt.Errorf("send by WHIP: %w", err)
	}
	return s, nil
}

func (s *Sender) dial(ctx context.Context) error {
	m := &webrtc.MediaEngine{}
	c := webrtc.RTPCodecCapability{MimeType: "video/" + s.opts.Codec.String(), ClockRate: media.VideoClockRate}
	if s.opts.Codec == media.H264 {
		c.SDPFmtpLine = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f"
	}
	err := m.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: c, PayloadType: 96}, webrtc.RTPCodecTypeVideo)
	if err != nil {
		return fmt.Errorf("offer %s: %w", c.MimeType, err)
	}
	registry := &interceptor.Registry{}
	if err := errors.Join(webrtc.ConfigureNack(m, registry), webrtc.ConfigureRTCPReports(registry)); err != nil {
		return err
	}
	e := webrtc.SettingEngine{LoggerFactory: &logging.DefaultLoggerFactory{Writer: io.Discard}}
	e.SetIncludeLoopbackCandidate(true)
	e.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	e.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	api := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(e), webrtc.WithInterceptorRegistry(registry))
	if s.pc, err = api.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return err
	}
	up, down := wake.New(), wake.New()
	s.pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			up.Set()
		case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed:
			down.Set()
		default:
		}
	})
	if s.track, err = webrtc.NewTrackLocalStaticSample(c, "video", "stream"); err != nil {
		return err
	}
	t, err := s.pc.AddTransceiverFromTrack(s.track, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
	if err != nil {
		return err
	}
	s.wg.Go(func() { readRTCP(t.Sender()) })
	if err := s.offer(ctx); err != nil {
		return err
	}
	select {
	case <-up:
		return nil
	case <-down:
		return errors.New("the connection was lost")
	case <-ctx.Done():
		return fmt.Errorf("wait for the connection: %w", context.Cause(ctx))
	}
}

// offer is the exchange of RFC 9725 section 4.2.
func (s *Sender) offer(ctx context.Context) error {
	offer, err := s.pc.CreateOffer(nil)
	if err != nil {
		return err
	}
	gathered := webrtc.GatheringCompletePromise(s.pc)
	if err := s.pc.SetLocalDescription(offer); err != nil {
		return err
	}
	select {
	case <-gathered:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	resp, err := s.do(ctx, http.MethodPost, s.opts.URL, s.pc.LocalDescription().SDP)
	if err != nil {
		return err
	}
	if resp.status != http.StatusCreated {
		return fmt.Errorf("expected status 201, got %d: %s", resp.status, resp.body)
	}
	if s.session, err = resp.location(); err != nil {
		return fmt.Errorf("read where the session is: %w", err)
	}
	return s.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: resp.body})
}

type response struct {
	status   int
	body     string
	location func() (*url.URL, error)
}

func (s *Sender) do(ctx context.Context, method, address, body string) (response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/sdp")
	}
	if s.opts.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.opts.Token)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return response{resp.StatusCode, string(text), resp.Location}, err
}

// readRTCP passes feedback to the interceptors. Requests for a key frame have no effect: the clip does not change.
func readRTCP(from *webrtc.RTPSender) {
	for {
		if _, _, err := from.ReadRTCP(); err != nil {
			return
		}
	}
}

// Run sends the clip in a loop until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	step := time.Second / time.Duration(s.opts.FPS)
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := uint32(0); ; n++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if err := s.Send(n); err != nil {
			return err
		}
		timer.Reset(time.Until(start.Add(time.Duration(n+1) * step)))
	}
}

// Send sends the clip's next access unit, which is number n.
func (s *Sender) Send(n uint32) error {
	unit := s.opts.Units[int(n)%len(s.opts.Units)]
	if s.opts.Number {
		unit = append(numbered(n), unit...)
	}
	err := s.track.WriteSample(pionmedia.Sample{Data: unit, Duration: time.Second / time.Duration(s.opts.FPS)})
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("send access unit %d: %w", n, err)
	}
	return nil
}

// marker is the UUID of the user data with the number.
func marker() []byte { return bytes.Repeat([]byte{0xa5}, 16) }

// numbered returns a SEI of unregistered user data (H.264 section D.1.7) with a number.
func numbered(n uint32) []byte {
	sei := append([]byte{0, 0, 0, 1, 6, 5, 21}, marker()...)
	// Seven bits in a byte, each with its highest bit set: no three zeros, no start code.
	for shift := 28; shift >= 0; shift -= 7 {
		sei = append(sei, byte(n>>shift)|0x80)
	}
	return append(sei, 0x80)
}

// Number finds the number in an access unit in Annex B format; ok is false without one.
func Number(unit []byte) (n uint32, ok bool) {
	i := bytes.Index(unit, marker())
	if i < 0 || i+21 > len(unit) {
		return 0, false
	}
	for _, b := range unit[i+16 : i+21] {
		n = n<<7 | uint32(b&0x7f)
	}
	return n, true
}

// Close ends the session by DELETE and closes the connection.
func (s *Sender) Close(ctx context.Context) error {
	defer s.hangUp()
	resp, err := s.do(ctx, http.MethodDelete, s.session.String(), "")
	if err != nil {
		return fmt.Errorf("end the WHIP session: %w", err)
	}
	if resp.status != http.StatusOK {
		return fmt.Errorf("end the WHIP session: expected status 200, got %d: %s", resp.status, resp.body)
	}
	return nil
}

// Vanish closes the connection without a DELETE, as a program that crashes does.
func (s *Sender) Vanish() { s.hangUp() }

func (s *Sender) hangUp() {
	if s.pc != nil {
		_ = s.pc.GracefulClose() // its errors no longer matter
	}
	s.wg.Wait()
}

// SplitH264 cuts an Annex B stream with access unit delimiters into access units without them.
func SplitH264(stream []byte) [][]byte {
	var units [][]byte
	for _, u := range bytes.Split(stream, []byte{0, 0, 0, 1, 9})[1:] {
		if len(u) > 1 {
			units = append(units, u[1:]) // the delimiter's own byte
		}
	}
	return units
}

// SplitIVF cuts a file of libvpx's format into frames.
func SplitIVF(file []byte) [][]byte {
	const header, frameHeader = 32, 12
	var units [][]byte
	for rest := file[min(header, len(file)):]; len(rest) > frameHeader; {
		n := int(binary.LittleEndian.Uint32(rest))
		if n > len(rest)-frameHeader {
			break
		}
		units = append(units, rest[frameHeader:frameHeader+n])
		rest = rest[frameHeader+n:]
	}
	return units
}
