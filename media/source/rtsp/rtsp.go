// Package rtsp pulls pictures from an IP camera (RFC 2326, RFC 7826): over one
// TCP connection, over UDP, or over TLS, with basic and digest authentication.
//
// It owns the session with the camera and its sockets. It yields H264, H265, VP8,
// VP9 and AV1 as assembled by package ingest, with the parameter sets of the SDP
// before key frames that lack them; MJPEG as JPEG pictures; Opus as packets. It
// does not decode and does not retry.
package rtsp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/login"
)

// Transport of the packets.
type Transport string

// The transports. Auto is TCP, with a fallback to UDP for cameras that refuse TCP. UDP falls back to TCP where the camera
// refuses UDP or no packet comes.
const (
	Auto Transport = ""
	TCP  Transport = "tcp"
	UDP  Transport = "udp"
)

// leaveTime bounds the farewell to a camera.
const leaveTime = 300 * time.Millisecond

// answerTime bounds each response of the camera. It is short, as a camera that is off
// may come back at any time.
const answerTime = 5 * time.Second

// Options of a Camera.
type Options struct {
	source.Access // with the scheme rtsp or rtsps

	// Transport of the packets. With rtsps and TCP everything is inside TLS.
	Transport Transport
}

// Camera is an RTSP address.
type Camera struct {
	opts   Options
	login  *login.Login
	worked *way // nil before the first picture
	keys   keyRequests
	// noOptions leaves out OPTIONS, as it got no answer.
	noOptions bool
	// payload is the picture's payload type where it is not the SDP's, else 0.
	payload uint8
}

// New checks the options and opens nothing.
func New(o Options) (*Camera, error) {
	u := o.Address.URL
	if u == nil || u.Scheme != "rtsp" && u.Scheme != "rtsps" || u.Hostname() == "" {
		return nil, errors.New("the address is not rtsp://HOST/PATH or rtsps://HOST/PATH")
	}
	switch o.Transport {
	case Auto, TCP, UDP:
	default:
		return nil, fmt.Errorf("transport %q: unknown; use tcp, udp or leave it empty", o.Transport)
	}
	if o.Now == nil {
		return nil, errors.New("rtsp.Options.Now is not set")
	}
	return &Camera{opts: o, login: login.New(u.User, o.Address.Literal, rand.Text)}, nil
}

// way is one way of receiving packets. srtp uses the profile of the camera's SDP; otherwise it is plain RTP, which is
// enough inside TLS, where some servers and clients have incompatible SRTP keys.
type way struct {
	protocol gortsplib.Protocol
	srtp     bool
}

func (w way) String() string {
	name := "TCP"
	if w.protocol == gortsplib.ProtocolUDP {
		name = "UDP"
	}
	if w.srtp {
		name += " with SRTP"
	}
	return name
}

// ways returns what to try, in order; the way that worked last is the first.
func (c *Camera) ways() []way {
	tcp, udp := []way{{protocol: gortsplib.ProtocolTCP}}, []way{{protocol: gortsplib.ProtocolUDP}}
	if c.opts.Address.URL.Scheme == "rtsps" {
		tcp = append(tcp, way{gortsplib.ProtocolTCP, true})
		udp = []way{{gortsplib.ProtocolUDP, true}}
	}
	var all []way
	switch c.opts.Transport {
	case TCP:
		all = tcp
	case UDP:
		all = slices.Concat(udp, tcp)
	case Auto:
		all = slices.Concat(tcp, udp)
	}
	if w := c.worked; w != nil {
		all = append([]way{*w}, slices.DeleteFunc(all, func(x way) bool { return x == *w })...)
	}
	return all
}

// RequestKeyFrame implements source.KeyFramer. Without a key frame in the next seconds, the camera is opened again.
func (c *Camera) RequestKeyFrame() { c.keys.ask(c.opts.Now()) }

// Pull implements source.Puller.
func (c *Camera) Pull(ctx context.Context, out source.Sink) error {
	var refused []error
	for _, w := range c.ways() {
		err := c.pullAll(ctx, w, out)
		if _, ok := errors.AsType[wayError](err); !ok || ctx.Err() != nil {
			return err
		}
		refused = append(refused, err)
		c.opts.Log.Info().Stringer("transport", w).Msg("camera refused transport")
	}
	return errors.Join(refused...)
}

// pullAll pulls sessions by one way, with epochs of their own, until one ends for another reason than to be opened again.
func (c *Camera) pullAll(ctx context.Context, w way, out source.Sink) error {
	var epoch, first uint32 // of the newest frame, and of the session
	next := out
	next.Frame = func(f media.EncodedFrame) {
		f.Epoch += first
		epoch = f.Epoch
		out.Frame(f)
	}
	for {
		err := c.pull(ctx, w, next)
		strange, ok := errors.AsType[payloadError](err)
		switch {
		case ctx.Err() != nil:
			return err
		case ok:
			c.opts.Log.Warn().Uint8("payload_type", uint8(strange)).Msg("camera sends another payload type than it describes")
			c.payload = uint8(strange)
		case !errors.Is(err, errReopen):
			return err
		}
		first = epoch + 1
	}
}

// wayError is a camera's refusal of a way.
type wayError struct{ error }

func (e wayError) Unwrap() error { return e.error }

// pull reads from the camera by one way.
func (c *Camera) pull(ctx context.Context, w way, out source.Sink) error {
	address := *c.opts.Address.URL
	address.Path, address.User = cmp.Or(address.Path, "/"), nil // the dialogue signs the requests
	u := (*base.URL)(&address)
	c.login.Forget()
	d := &dialogue{camera: c, pending: map[string]exchange{}}
	ctx, crashed := context.WithCancelCause(ctx)
	defer crashed(nil)
	client := c.client(ctx, u, w.protocol, d)
	s := &session{client: client, out: out, now: c.opts.Now, log: c.opts.Log, crashed: crashed, keys: &c.keys}
	client.OnDecodeError = s.undecodable
	if err := client.Start(); err != nil {
		return source.Errorf("start the RTSP client: %w", err)
	}
	// Close ends requests and waits, and returns when all goroutines have ended. A camera that does not read must not
	// delay it.
	end := func() {
		defer time.AfterFunc(leaveTime, d.hangUp).Stop()
		client.Close()
	}
	stop := context.AfterFunc(ctx, end)
	defer func() {
		stop()
		end()
	}()
	err := c.play(ctx, u, w, s, d)
	if ctx.Err() != nil {
		return s.explain(context.Cause(ctx))
	}
	if d.refusal != nil {
		return d.refusal
	}
	if s.playing && s.received.Load() == 0 {
		if w.protocol == gortsplib.ProtocolUDP {
			return wayError{source.Errorf("no packet came over UDP; a firewall may block it, or set the transport to tcp")}
		}
		if errors.Is(err, liberrors.ErrClientTCPTimeout{}) {
			err = wayError{err}
		}
	}
	if s.received.Load() > 0 {
		c.worked = &w
	}
	if d.count > 0 && !d.answered {
		c.noOptions = !c.noOptions
	}
	return c.explain(errors.Join(err, d.err), w, d.answered)
}

// play describes, chooses and plays the camera's streams until they end.
func (c *Camera) play(ctx context.Context, u *base.URL, w way, s *session, d *dialogue) error {
	desc, _, err := s.client.Describe(u)
	if err != nil {
		return source.Errorf("describe the camera's streams: %w", err)
	}
	s.upright = d.upright
	medias, err := s.choose(desc)
	if err != nil {
		return err
	}
	if c.payload != 0 {
		s.accept(c.payload)
	}
	for _, m := range medias {
		if !w.srtp && w.protocol == gortsplib.ProtocolTCP {
			m.Profile = headers.TransportProfileAVP
		}
		if _, err := s.client.Setup(desc.BaseURL, m, 0, 0); err != nil {
			err = source.Errorf("set up the camera's %s: %w", []byte(m.Type), err)
			if status, ok := errors.AsType[liberrors.ErrClientBadStatusCode](err); ok && !refusesTransport(status.Code) {
				return err
			}
			return wayError{err}
		}
	}
	s.listen()
	if s.aac != nil {
		defer c.encode(ctx, s)()
	}
	if _, err := s.client.Play(nil); err != nil {
		err = source.Errorf("start the camera's streams: %w", err)
		if _, answered := errors.AsType[liberrors.ErrClientBadStatusCode](err); answered && w.protocol == gortsplib.ProtocolUDP {
			return wayError{err}
		}
		return err
	}
	s.playing = true
	return source.Errorf("read from the camera: %w", s.client.Wait())
}

// refusesTransport returns false for a status that has another cause than the transport.
func refusesTransport(code base.StatusCode) bool {
	switch code {
	case base.StatusUnauthorized, base.StatusForbidden, base.StatusNotFound, base.StatusNotEnoughBandwidth, base.StatusSessionNotFound,
		base.StatusServiceUnavailable:
		return false
	default:
		return true
	}
}

// client returns the library's client for u.
func (c *Camera) client(ctx context.Context, u *base.URL, protocol gortsplib.Protocol, d *dialogue) *gortsplib.Client {
	return &gortsplib.Client{
		Scheme: u.Scheme, Host: u.Host, Protocol: &protocol, UserAgent: "touchline",
		ReadTimeout: answerTime, WriteTimeout: answerTime,
		AnyPortEnable: true, // many cameras leave out server_port
		DialContext:   d.dial, DialTLSContext: d.dialTLS, OnRequest: d.onRequest, OnResponse: d.onResponse,
		OnServerRequest: func(r *base.Request) { r.Method = base.Options }, // the library would end at any other
		ListenPacket: func(network, address string) (net.PacketConn, error) {
			conn, err := (&net.ListenConfig{}).ListenPacket(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return c.opts.Allow.PacketConn(conn.(*net.UDPConn)), nil //nolint:forcetypeassert // the library listens on UDP
		},
		ResolveIPAddr: func(network, address string) (*net.IPAddr, error) { return d.resolve(ctx, network, address) },
		OnPacketsLost: func(uint64) {}, // the assembler counts them
	}
}

// encode starts the transcoder of AAC sound. The returned function ends it and the
// client.
func (c *Camera) encode(ctx context.Context, s *session) (stop func()) {
	var coding sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	coding.Go(func() {
		if err := rescue.Call(func() error { return s.aac.Run(ctx) }); err != nil && ctx.Err() == nil {
			c.opts.Log.Warn().Err(err).Msg("camera sound dropped")
		}
	})
	return func() {
		s.client.Close() // ends the callbacks first
		cancel()
		coding.Wait()
	}
}

// hostOf returns the host of an address with or without a port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// explain returns errors with a remedy, and marks refusals. answered is set when the camera sent a response.
func (c *Camera) explain(err error, w way, answered bool) error {
	if refused, ok := errors.AsType[wayError](err); ok {
		return wayError{c.explain(refused.error, w, answered)}
	}
	if status, ok := errors.AsType[liberrors.ErrClientBadStatusCode](err); ok {
		switch status.Code {
		case base.StatusNotFound:
			return source.Errorf("the camera has no stream at this path (404); see its manual for the path")
		case base.StatusUnsupportedTransport:
			return source.Errorf("the camera refuses %s (status 461); set the transport to auto", []byte(w.String()))
		case base.StatusForbidden:
			return source.Refused(source.Errorf("the camera forbids this stream (403)"))
		default:
			return source.Errorf("the camera answers with status %d", status.Code)
		}
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	timeout, _ := errors.AsType[net.Error](err)
	switch {
	case unverified, unknown:
		return source.Refused(source.Errorf("this machine does not trust the camera's certificate; --insecure accepts it"))
	case plain:
		return source.Errorf("the camera's port does not speak TLS; use rtsp://, or the port of its TLS server (often 322)")
	case errors.Is(err, syscall.ECONNREFUSED):
		return source.Errorf("no server at the camera's address: connection refused")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return source.Errorf("the camera's address cannot be reached from this machine")
	case errors.Is(err, liberrors.ErrClientTCPTimeout{}), errors.Is(err, liberrors.ErrClientUDPTimeout{}):
		return source.Errorf("the camera plays, but sends nothing")
	case errors.Is(err, liberrors.ErrClientRequestTimedOut{}), timeout != nil && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return source.Errorf("the camera does not answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		if !answered {
			return source.Errorf("the server at the camera's address closed the connection without an answer; see its manual for the port")
		}
		return source.Errorf("the camera closed the connection")
	}
	return err
}

// offered lists the formats of a camera, for an error.
func offered(desc *description.Session) string {
	var names []string
	for _, m := range desc.Medias {
		for _, f := range m.Formats {
			name, _, _ := strings.Cut(f.RTPMap(), "/")
			names = append(names, cmp.Or(name, f.Codec())) //nolint:staticcheck // a static payload type may have no rtpmap
		}
	}
	return cmp.Or(strings.Join(names, ", "), "nothing")
}
