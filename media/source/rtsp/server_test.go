//go:build integration

package rtsp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/auth"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"
)

// camera is an RTSP server; ffmpeg or the test sends its picture.
type camera struct {
	server         *gortsplib.Server
	user, password string
	redirect       string // Location of the answer to DESCRIBE
	udpOnly        bool
	srtpOnly       bool

	mu        sync.Mutex
	stream    *gortsplib.ServerStream
	publisher *gortsplib.ServerSession
	protocols []gortsplib.Protocol // of the players
	ready     chan struct{}
}

type cameraOptions struct {
	tls            bool
	udpOnly        bool
	user, password string
	methods        []auth.VerifyMethod
	address        string // "" for a free port
}

// newCamera serves until the test ends.
func newCamera(t *testing.T, o cameraOptions) *camera {
	t.Helper()
	c := &camera{user: o.user, password: o.password, udpOnly: o.udpOnly, ready: make(chan struct{}, 8)}
	if o.address == "" {
		o.address = "127.0.0.1:0"
	}
	var ln net.Listener
	err := error(syscall.EADDRINUSE)
	for tries := 10; tries > 0 && errors.Is(err, syscall.EADDRINUSE); tries-- { // another program may take a port that was free
		c.server = &gortsplib.Server{Handler: c, RTSPAddress: o.address, AuthMethods: o.methods}
		c.server.Listen = func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			ln = l
			return l, err
		}
		if o.tls {
			c.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
		} else {
			port := freePair(t)
			c.server.UDPRTPAddress = "127.0.0.1:" + strconv.Itoa(port)
			c.server.UDPRTCPAddress = "127.0.0.1:" + strconv.Itoa(port+1)
		}
		err = c.server.Start()
	}
	require.NoError(t, err)
	t.Cleanup(c.server.Close)
	c.server.RTSPAddress = ln.Addr().String()
	return c
}

// freePair finds an even UDP port whose successor is free as well.
func freePair(t *testing.T) int {
	t.Helper()
	for range 100 {
		a, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		port := a.LocalAddr().(*net.UDPAddr).Port
		b, err := net.ListenPacket("udp4", "127.0.0.1:"+strconv.Itoa(port+1))
		a.Close()
		if err != nil {
			continue
		}
		b.Close()
		if port%2 == 0 {
			return port
		}
	}
	t.Fatal("no pair of free ports")
	return 0
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (c *camera) url() string {
	scheme, who := "rtsp", ""
	if c.server.TLSConfig != nil {
		scheme = "rtsps"
	}
	if c.user != "" {
		who = c.user + ":" + c.password + "@"
	}
	return scheme + "://" + who + c.server.RTSPAddress + "/cam"
}

// film sends a test picture with ffmpeg until the returned function is called.
func (c *camera) film(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	all := append([]string{
		"-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-threads", "1",
	}, args...)
	all = append(all, "-f", "rtsp", "-rtsp_transport", "tcp", "rtsp://"+c.server.RTSPAddress+"/cam")
	cmd := exec.CommandContext(t.Context(), "ffmpeg", all...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start(), "apt-get install ffmpeg")
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	select {
	case <-c.ready:
	case <-time.After(2 * time.Minute):
		stop()
		t.Fatal("ffmpeg sends nothing: ", complaints.String())
	}
	return stop
}

// publish makes the camera send what the test writes to the returned stream.
func (c *camera) publish(t *testing.T, f format.Format) (write func(*rtp.Packet)) {
	t.Helper()
	medi := &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{f}}
	stream := &gortsplib.ServerStream{Server: c.server, Desc: &description.Session{Medias: []*description.Media{medi}}}
	require.NoError(t, stream.Initialize())
	c.mu.Lock()
	c.stream = stream
	c.mu.Unlock()
	t.Cleanup(stream.Close)
	return func(p *rtp.Packet) { _ = stream.WritePacketRTP(medi, p) }
}

func (c *camera) current() *gortsplib.ServerStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream
}

// OnSessionClose implements the library's handler.
func (c *camera) OnSessionClose(ctx *gortsplib.ServerHandlerOnSessionCloseCtx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != nil && ctx.Session == c.publisher {
		c.stream.Close()
		c.stream = nil
	}
}

// OnDescribe implements the library's handler.
func (c *camera) OnDescribe(ctx *gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	switch {
	case c.redirect != "":
		return &base.Response{StatusCode: base.StatusMovedPermanently, Header: base.Header{"Location": {c.redirect}}}, nil, nil
	case c.user != "" && !ctx.Conn.VerifyCredentials(ctx.Request, c.user, c.password):
		return &base.Response{StatusCode: base.StatusUnauthorized}, nil, liberrors.ErrServerAuth{}
	case c.current() == nil:
		return &base.Response{StatusCode: base.StatusNotFound}, nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, c.current(), nil
}

// OnAnnounce implements the library's handler.
func (c *camera) OnAnnounce(ctx *gortsplib.ServerHandlerOnAnnounceCtx) (*base.Response, error) {
	stream := &gortsplib.ServerStream{Server: c.server, Desc: ctx.Description}
	if err := stream.Initialize(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.stream, c.publisher = stream, ctx.Session
	c.mu.Unlock()
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// OnSetup implements the library's handler.
func (c *camera) OnSetup(ctx *gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if ctx.Session.State() == gortsplib.ServerSessionStatePreRecord {
		return &base.Response{StatusCode: base.StatusOK}, nil, nil
	}
	if c.user != "" && !ctx.Conn.VerifyCredentials(ctx.Request, c.user, c.password) {
		return &base.Response{StatusCode: base.StatusUnauthorized}, nil, liberrors.ErrServerAuth{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == nil {
		return &base.Response{StatusCode: base.StatusNotFound}, nil, nil
	}
	if c.udpOnly && ctx.Transport.Protocol == gortsplib.ProtocolTCP {
		return &base.Response{StatusCode: base.StatusUnsupportedTransport}, nil, nil
	}
	if c.srtpOnly && ctx.Transport.Profile != headers.TransportProfileSAVP {
		return &base.Response{StatusCode: base.StatusUnsupportedTransport}, nil, nil
	}
	c.protocols = append(c.protocols, ctx.Transport.Protocol)
	return &base.Response{StatusCode: base.StatusOK}, c.stream, nil
}

// OnPlay implements the library's handler.
func (c *camera) OnPlay(*gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// OnRecord implements the library's handler.
func (c *camera) OnRecord(ctx *gortsplib.ServerHandlerOnRecordCtx) (*base.Response, error) {
	stream := c.current()
	ctx.Session.OnPacketRTPAny(func(m *description.Media, _ format.Format, p *rtp.Packet) { _ = stream.WritePacketRTP(m, p) })
	select {
	case c.ready <- struct{}{}:
	default:
	}
	return &base.Response{StatusCode: base.StatusOK}, nil
}
