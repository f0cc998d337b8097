//go:build integration

package whep_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/media/signaling/signalingtest"
)

// TestConsent disconnects a player: its session ends when its consent expires (RFC 7675). Players counts it until
// its resources are released.
func TestConsent(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	wire := signalingtest.NewCable(t)
	p := newPlayerWith(t, playerOptions{mimes: []string{webrtc.MimeTypeH264}, setting: func(e *webrtc.SettingEngine) {
		e.SetICEUDPMux(webrtc.NewICEUDPMux(nil, wire))
	}})
	p.watch(t, s)
	require.Eventually(t, func() bool { pictures, _, sounds, _ := p.seen(); return pictures > 5 && sounds > 5 }, patience, 5*time.Millisecond)
	wire.Cut()
	began := time.Now()
	require.Eventually(t, func() bool { return s.Players("") == 0 }, patience, 10*time.Millisecond)
	t.Logf("over after %v", time.Since(began).Round(100*time.Millisecond))
	resp, _ := s.request(t, http.MethodDelete, p.location, "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	_ = p.pc.GracefulClose() // the other side may have closed first
}
