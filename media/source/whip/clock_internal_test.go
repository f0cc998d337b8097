package whip

import (
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/media/signaling"
)

// TestSilenceIsMonotonic: a step of the wall clock neither ends a sender nor hides that it is silent.
func TestSilenceIsMonotonic(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		began := time.Now()
		x := &Session{server: &Server{opts: Options{Silence: 30 * time.Second, Now: func() time.Time { return began }}}}
		pc, err := webrtc.NewPeerConnection(webrtc.Configuration{})
		require.NoError(t, err)
		require.NoError(t, x.prepare(&signaling.Session{PC: pc}))
		require.NoError(t, pc.Close())
		require.False(t, x.silent(clocktest.Step(began.Add(29*time.Second), step)), "%v before its first packet", step)
		x.received(began.Add(20 * time.Second))
		require.False(t, x.silent(clocktest.Step(began.Add(49*time.Second), step)), step)
		require.True(t, x.silent(clocktest.Step(began.Add(50*time.Second), step)), step)
		x.received(clocktest.Step(began.Add(51*time.Second), step))
		require.False(t, x.silent(clocktest.Step(began.Add(80*time.Second), step)), step)
	}
}
