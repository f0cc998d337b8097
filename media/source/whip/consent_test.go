package whip_test

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/media"
)

// cable is a network that can be cut: nothing comes, nothing goes, and nobody is told.
type cable struct {
	net.PacketConn
	cut atomic.Bool
}

// WriteTo implements net.PacketConn.
func (c *cable) WriteTo(p []byte, to net.Addr) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.PacketConn.WriteTo(p, to)
}

// ReadFrom implements net.PacketConn.
func (c *cable) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		if n, from, err = c.PacketConn.ReadFrom(p); err != nil || !c.cut.Load() {
			return n, from, err
		}
	}
}

// RFC 9725 sections 4.2 and 4.3.3: a sender that is cut off has its session ended
// when its consent has run out (RFC 7675), long before the bound on silence.
func TestConsent(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	wire := &cable{PacketConn: conn}
	s := srv.connect(t, senderOptions{codec: vp8, setting: func(e *webrtc.SettingEngine) {
		e.SetICEUDPMux(webrtc.NewICEUDPMux(nil, wire))
	}})
	s.play(clip(t, media.VP8))
	p := <-srv.opened
	p.next(t)
	wire.cut.Store(true)
	began := time.Now()
	select {
	case reason := <-p.closed:
		require.Equal(t, "the connection broke off", reason)
	case <-time.After(29 * time.Second):
		t.Fatal("the session goes on")
	}
	t.Logf("over after %v", time.Since(began).Round(time.Second))
	require.Empty(t, srv.Sessions())
	s.close()
	_ = conn.Close()
}

// RFC 9725 section 4.2: the end of DTLS ends the session at once, and a DELETE for it finds nothing.
func TestDTLSTeardown(t *testing.T) {
	srv := start(t, nil)
	s := srv.connect(t, senderOptions{codec: vp8})
	s.play(clip(t, media.VP8))
	p := <-srv.opened
	p.next(t)
	location := s.location
	s.close()
	select {
	case reason := <-p.closed:
		require.Equal(t, "the other side closed the connection", reason)
	case <-time.After(5 * time.Second):
		t.Fatal("the session goes on")
	}
	resp, _ := srv.request(t, http.MethodDelete, location, "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}
