// Package rtsptest is an RTSP camera for tests: a server (gortsplib) to which ffmpeg
// plays a clip repeatedly.
package rtsptest

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"
)

// patience bounds the start of ffmpeg on a busy machine.
const patience = 30 * time.Second

// Camera plays a clip. It can be switched off and on again at the same address.
type Camera struct {
	tb      testing.TB
	address string
	args    []string

	mu     sync.Mutex
	server *gortsplib.Server
	stream *gortsplib.ServerStream
	ready  chan struct{}
	cmd    *exec.Cmd
}

// New switches a camera on, at a free port of host, until the test ends. clip is
// copied unless args, ffmpeg's output options, transcode it.
func New(tb testing.TB, host, clip string, args ...string) *Camera {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(tb, err)
	c := &Camera{tb: tb, address: l.Addr().String(), ready: make(chan struct{}, 1)}
	require.NoError(tb, l.Close())
	if len(args) == 0 {
		args = []string{"-c", "copy"}
	}
	c.args = append([]string{"-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", clip}, args...)
	c.On()
	tb.Cleanup(c.Off)
	return c
}

// URL of the camera, with a user unless it is "". The camera requires no password.
func (c *Camera) URL(user string) string {
	if user != "" {
		user += "@"
	}
	return "rtsp://" + user + c.address + "/cam"
}

// On switches the camera on.
func (c *Camera) On() {
	c.tb.Helper()
	server := &gortsplib.Server{Handler: c, RTSPAddress: c.address}
	require.NoError(c.tb, server.Start())
	args := append(slices.Clone(c.args), "-f", "rtsp", "-rtsp_transport", "tcp", "rtsp://"+c.address+"/cam")
	cmd := exec.CommandContext(context.WithoutCancel(c.tb.Context()), "ffmpeg", args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	c.mu.Lock()
	c.server, c.cmd = server, cmd
	c.mu.Unlock()
	require.NoError(c.tb, cmd.Start(), "apt-get install ffmpeg")
	select {
	case <-c.ready:
	case <-time.After(patience):
		require.FailNow(c.tb, "ffmpeg sends nothing", complaints.String())
	}
}

// Off switches the camera off.
func (c *Camera) Off() {
	c.mu.Lock()
	server, cmd := c.server, c.cmd
	c.server, c.cmd = nil, nil
	c.mu.Unlock()
	if server == nil {
		return
	}
	server.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// OnDescribe implements the library's handler.
func (c *Camera) OnDescribe(*gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == nil || c.stream.Server != c.server {
		return &base.Response{StatusCode: base.StatusNotFound}, nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, c.stream, nil
}

// OnAnnounce implements the library's handler.
func (c *Camera) OnAnnounce(ctx *gortsplib.ServerHandlerOnAnnounceCtx) (*base.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = &gortsplib.ServerStream{Server: c.server, Desc: ctx.Description}
	return &base.Response{StatusCode: base.StatusOK}, c.stream.Initialize()
}

// OnSetup implements the library's handler.
func (c *Camera) OnSetup(ctx *gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if ctx.Session.State() == gortsplib.ServerSessionStatePreRecord {
		return &base.Response{StatusCode: base.StatusOK}, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &base.Response{StatusCode: base.StatusOK}, c.stream, nil
}

// OnPlay implements the library's handler.
func (c *Camera) OnPlay(*gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// OnRecord implements the library's handler.
func (c *Camera) OnRecord(ctx *gortsplib.ServerHandlerOnRecordCtx) (*base.Response, error) {
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	ctx.Session.OnPacketRTPAny(func(m *description.Media, _ format.Format, p *rtp.Packet) { _ = stream.WritePacketRTP(m, p) })
	c.ready <- struct{}{}
	return &base.Response{StatusCode: base.StatusOK}, nil
}
