package whep

import (
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/stretchr/testify/require"
)

// TestKeyFrameRequests: media servers request key frames every other second, and get the source's next one. A decoder that waits
// repeats its request, or has reported a loss: it gets a replay.
func TestKeyFrameRequests(t *testing.T) {
	t.Parallel()
	r, now := reports{ours: 7}, time.Unix(1000, 0)
	lost := func(ssrc uint32, share uint8) rtcp.Packet {
		return &rtcp.ReceiverReport{Reports: []rtcp.ReceptionReport{{SSRC: ssrc, FractionLost: share}}}
	}
	request := func(after time.Duration) keyFrame {
		now = now.Add(after)
		return r.read(&rtcp.PictureLossIndication{}, now)
	}
	for range 5 {
		require.Equal(t, sourceKeyFrame, request(2*time.Second))
	}
	require.Equal(t, replay, request(300*time.Millisecond))
	require.Equal(t, replay, request(300*time.Millisecond))
	require.Equal(t, sourceKeyFrame, request(1300*time.Millisecond))
	require.Equal(t, noKeyFrame, r.read(lost(8, 20), now))
	require.Equal(t, sourceKeyFrame, request(2*time.Second), "of another stream")
	require.Equal(t, noKeyFrame, r.read(lost(7, 20), now))
	require.Equal(t, replay, request(2*time.Second))
	require.Equal(t, noKeyFrame, r.read(lost(7, 0), now))
	require.Equal(t, sourceKeyFrame, request(2*time.Second))
}
