//go:build integration

package whip_test

import (
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/signaling/signalingtest"
)

// RFC 9725 sections 4.2 and 4.3.3: the session of a disconnected sender ends when
// its consent expires (RFC 7675), long before the bound on silence.
func TestConsent(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	wire := signalingtest.NewCable(t)
	s := srv.connect(t, senderOptions{codec: vp8, setting: func(e *webrtc.SettingEngine) {
		e.SetICEUDPMux(webrtc.NewICEUDPMux(nil, wire))
	}})
	s.play(signalingtest.Clip(t, media.VP8))
	p := <-srv.opened
	p.next(t)
	wire.Cut()
	began := time.Now()
	select {
	case reason := <-p.closed:
		require.Equal(t, "the connection was lost", reason)
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on")
	}
	t.Logf("over after %v", time.Since(began).Round(time.Second))
	require.Empty(t, srv.Sessions())
	s.close()
}
