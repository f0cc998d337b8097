package publish_test

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/publish"
)

// TestBigFramesAreSpread: never more steps of a millisecond than the ten there are, however big the frame.
func TestBigFramesAreSpread(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 16, 17, 100, 500, 5000} {
		per := publish.PacketsPerStep(n)
		waits := (n - 1) / per
		require.LessOrEqual(t, waits, 9, "%d packets", n)
		require.GreaterOrEqual(t, per, 16)
	}
}

// TestVoicePackets checks the sent packets, between two peers without a server: LiveKit's clears the marker bit.
func TestVoicePackets(t *testing.T) {
	t.Parallel()
	inner, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2})
	require.NoError(t, err)
	voice := publish.VoiceTo(inner)
	written, err := voice.WriteOpus([]byte{1, 2, 3, 4}, 0, true)
	require.NoError(t, err)
	require.True(t, written.IsZero(), "nothing is sent before the track is bound")
	require.EqualValues(t, 1, voice.Stats().Dropped)

	got := make(chan *rtp.Packet, 100)
	from, to := publish.Peers(t)
	to.OnTrack(func(tr *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			p, _, err := tr.ReadRTP()
			if err != nil {
				return
			}
			select {
			case got <- p:
			default:
			}
		}
	})
	_, err = from.AddTrack(inner)
	require.NoError(t, err)
	publish.Connect(t, from, to)
	require.Eventually(t, inner.IsBound, 2*time.Minute, 5*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var err error
		for n := uint32(0); err == nil && ctx.Err() == nil; n++ {
			<-tick.C
			_, err = voice.WriteOpus(binary.BigEndian.AppendUint32([]byte{0x78}, n), n*960, n%10 == 0)
		}
		ended <- err
	}()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	var last *rtp.Packet
	for range 25 {
		p := <-got
		n := binary.BigEndian.Uint32(p.Payload[1:])
		require.Equal(t, n*960, p.Timestamp)
		require.Equal(t, n%10 == 0, p.Marker)
		if last != nil {
			require.Equal(t, last.SequenceNumber+1, p.SequenceNumber)
		}
		last = p
	}
}

// TestVoiceNeverBlocks: writing without a room costs nothing and waits for nothing.
func TestVoiceNeverBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		voice := publish.VoiceTo(nil)
		for n := range uint32(1000) {
			_, err := voice.WriteOpus([]byte{1}, n*960, false)
			require.NoError(t, err)
		}
		require.Equal(t, began, time.Now())
		require.Empty(t, voice.SID())
	})
}
