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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/media/source"
)

// Transport of the packets.
type Transport string

// The transports. Auto is TCP, with a fallback to UDP for cameras that refuse TCP.
const (
	Auto Transport = ""
	TCP  Transport = "tcp"
	UDP  Transport = "udp"
)

// answerTime bounds each response of the camera. It is short, as a camera that is off
// may come back at any time.
const answerTime = 5 * time.Second

// Options of a Camera.
type Options struct {
	// URL with the scheme rtsp or rtsps, and a user and password if the camera requires them.
	URL *url.URL
	// Transport of the packets. With rtsps and TCP everything is inside TLS.
	Transport Transport
	// Insecure accepts any certificate: most cameras have self-signed ones.
	Insecure bool
	// Allow selects the addresses that may be dialled and sent to.
	Allow source.Allow
	Now   func() time.Time
	Log   zerolog.Logger
}

// Camera is an RTSP address.
type Camera struct {
	opts Options
}

// New checks the options and opens nothing.
func New(o Options) (*Camera, error) {
	if o.URL == nil || o.URL.Scheme != "rtsp" && o.URL.Scheme != "rtsps" || o.URL.Hostname() == "" {
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
	return &Camera{opts: o}, nil
}

// Pull implements source.Puller.
func (c *Camera) Pull(ctx context.Context, out source.Sink) error {
	protocol := gortsplib.ProtocolTCP
	if c.opts.Transport == UDP {
		protocol = gortsplib.ProtocolUDP
	}
	err := c.pull(ctx, protocol, false, out)
	if _, ok := errors.AsType[setupError](err); ok && c.opts.URL.Scheme == "rtsps" && protocol == gortsplib.ProtocolTCP {
		c.opts.Log.Info().Msg("RTP inside TLS refused, trying SRTP")
		err = c.pull(ctx, protocol, true, out)
	}
	if status, ok := errors.AsType[liberrors.ErrClientBadStatusCode](err); ok && c.opts.Transport == Auto &&
		status.Code == base.StatusUnsupportedTransport {
		c.opts.Log.Info().Msg("TCP refused, trying UDP")
		err = c.pull(ctx, gortsplib.ProtocolUDP, true, out)
	}
	return c.explain(err)
}

// setupError is a camera's refusal of a transport.
type setupError struct{ error }

func (e setupError) Unwrap() error { return e.error }

// pull reads from the camera by one transport. srtp uses the profile of the camera's
// SDP; otherwise it is plain RTP, which is enough inside TLS, where some servers and
// clients have incompatible SRTP keys.
func (c *Camera) pull(ctx context.Context, protocol gortsplib.Protocol, srtp bool, out source.Sink) error {
	address := *c.opts.URL
	address.Path = cmp.Or(address.Path, "/")
	u := (*base.URL)(&address)
	var dialled error // the library replaces some dial errors by its own
	client := c.client(ctx, u, protocol, &dialled)
	if err := client.Start(); err != nil {
		return fmt.Errorf("start the RTSP client: %w", err)
	}
	ctx, crashed := context.WithCancelCause(ctx)
	defer crashed(nil)
	// Close ends requests and waits, and returns when all goroutines have ended.
	stop := context.AfterFunc(ctx, client.Close)
	defer func() {
		stop()
		client.Close()
	}()

	desc, _, err := client.Describe(u)
	if err != nil {
		return errors.Join(fmt.Errorf("describe the camera's streams: %w", err), dialled)
	}
	s := &session{client: client, out: out, now: c.opts.Now, log: c.opts.Log, crashed: crashed}
	medias, err := s.choose(desc)
	if err != nil {
		return err
	}
	for _, m := range medias {
		if !srtp && protocol == gortsplib.ProtocolTCP {
			m.Profile = headers.TransportProfileAVP
		}
		if _, err := client.Setup(desc.BaseURL, m, 0, 0); err != nil {
			return setupError{fmt.Errorf("set up the camera's %s: %w", m.Type, err)}
		}
	}
	s.listen()
	if s.aac != nil {
		defer c.encode(ctx, s)()
	}
	if _, err := client.Play(nil); err != nil {
		return fmt.Errorf("start the camera's streams: %w", err)
	}
	err = client.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("read from the camera: %w", err)
}

// client returns the library's client for u. The last dial error is stored in dialled.
func (c *Camera) client(ctx context.Context, u *base.URL, protocol gortsplib.Protocol, dialled *error) *gortsplib.Client {
	home := hostOf(u.Host)
	return &gortsplib.Client{
		Scheme: u.Scheme, Host: u.Host, Protocol: &protocol, UserAgent: "touchline",
		ReadTimeout: answerTime, WriteTimeout: answerTime,
		TLSConfig: &tls.Config{
			InsecureSkipVerify: c.opts.Insecure, //nolint:gosec // the user's choice, off by default
		},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if u.User != nil && hostOf(address) != home {
				// The library would send the password.
				*dialled = source.Permanent(errors.New("the camera redirects to another host, which must not receive its password"))
				return nil, *dialled
			}
			conn, err := c.opts.Allow.Dialer().DialContext(ctx, network, address)
			*dialled = err
			return conn, err
		},
		ListenPacket: func(network, address string) (net.PacketConn, error) {
			conn, err := (&net.ListenConfig{}).ListenPacket(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return c.opts.Allow.PacketConn(conn), nil
		},
		ResolveIPAddr: func(network, address string) (*net.IPAddr, error) {
			ip, err := net.ResolveIPAddr(network, address)
			if err == nil {
				a, _ := netip.AddrFromSlice(ip.IP)
				err = c.opts.Allow.Check(a)
			}
			return ip, err
		},
		OnPacketsLost: func(uint64) {}, // the assembler counts them
		OnDecodeError: func(err error) { c.opts.Log.Debug().Err(err).Msg("packet unreadable") },
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

// explain returns errors with a remedy, and marks permanent ones.
func (c *Camera) explain(err error) error {
	if err == nil {
		return nil
	}
	if status, ok := errors.AsType[liberrors.ErrClientBadStatusCode](err); ok {
		switch status.Code {
		case base.StatusUnauthorized:
			if c.opts.URL.User == nil {
				return source.Permanent(errors.New("the camera requires a user and a password: rtsp://USER:PASSWORD@HOST/PATH"))
			}
			return source.Permanent(errors.New("the camera refuses the user or the password"))
		case base.StatusNotFound:
			return errors.New("the camera has no stream at this path (404); see its manual for the path")
		default:
			return fmt.Errorf("the camera answers with status %d", status.Code)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the camera closed the connection")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("no server at the camera's address: connection refused")
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	if unverified || unknown {
		return source.Permanent(errors.New("this machine does not trust the camera's certificate; --insecure accepts it"))
	}
	return err
}

// offered lists the formats of a camera, for an error.
func offered(desc *description.Session) string {
	var names []string
	for _, m := range desc.Medias {
		for _, f := range m.Formats {
			if name, _, _ := strings.Cut(f.RTPMap(), "/"); name != "" {
				names = append(names, name)
			}
		}
	}
	return cmp.Or(strings.Join(names, ", "), "nothing")
}
