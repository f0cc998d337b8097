package whep

import (
	"slices"
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

// FuzzReports feeds a player's RTCP: only a request for a key frame gets one, and only of the session's own stream a report counts.
func FuzzReports(f *testing.F) {
	for _, packets := range [][]rtcp.Packet{
		{&rtcp.PictureLossIndication{SenderSSRC: 1, MediaSSRC: 7}},
		{&rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{{SSRC: 7, FractionLost: 9}}}, &rtcp.PictureLossIndication{MediaSSRC: 7}},
		{&rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{{SSRC: 8, FractionLost: 9}}}, &rtcp.FullIntraRequest{MediaSSRC: 7}},
		{&rtcp.TransportLayerNack{MediaSSRC: 7, Nacks: []rtcp.NackPair{{PacketID: 1, LostPackets: 0xaa}}}},
		{&rtcp.ReceiverEstimatedMaximumBitrate{Bitrate: 1e6, SSRCs: []uint32{7}}},
	} {
		b, err := rtcp.Marshal(packets)
		require.NoError(f, err)
		f.Add(b, uint16(700))
	}
	f.Add([]byte{0x80, 201, 0, 1, 0, 0, 0, 1}, uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, ms uint16) {
		packets, err := rtcp.Unmarshal(b)
		if err != nil {
			return
		}
		r, now := reports{ours: 7}, time.Unix(1000, 0)
		for range 2 {
			for _, p := range packets {
				now = now.Add(time.Duration(ms) * time.Millisecond)
				got := r.read(p, now)
				switch p.(type) {
				case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
					require.NotEqual(t, noKeyFrame, got)
					require.Equal(t, now, r.last)
				default:
					require.Equal(t, noKeyFrame, got)
				}
				require.False(t, r.lossy && !slices.ContainsFunc(packets, lossOf(7)))
			}
		}
	})
}

// lossOf returns a check for reports of a loss.
func lossOf(ssrc uint32) func(rtcp.Packet) bool {
	return func(p rtcp.Packet) bool {
		r, ok := p.(*rtcp.ReceiverReport)
		return ok && slices.ContainsFunc(r.Reports, func(r rtcp.ReceptionReport) bool { return r.SSRC == ssrc && r.FractionLost > 0 })
	}
}
