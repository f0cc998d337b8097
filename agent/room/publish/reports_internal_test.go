package publish

import (
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/internal/clocktest"
	"touchline/media"
)

// TestReportsAndTheWallClock: over a step of the wall clock the sender reports tell the true age of picture and sound, and keep the lips.
func TestReportsAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range append([]time.Duration{time.Second, -time.Second}, clocktest.Steps...) {
		c, err := NewCameraPublisher(CameraOptions{
			URL: "ws://livekit.invalid", Keys: conn.Keys{APIKey: "key", APISecret: "secret"}, Room: "match", Identity: "cam",
		})
		require.NoError(t, err)
		c.sound.inner = boundTrack(t, webrtc.MimeTypeVP8) // its number counts only
		began, captured := time.Now(), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		after := func(d time.Duration) time.Time { return clocktest.Step(began.Add(d), step) }
		c.noteFrame(media.EncodedFrame{Arrival: began, NTP: captured}, 1, 90_000, began)
		// The sound came 120 ms after its picture, by the local clock, and belongs 100 ms after it.
		_, err = c.WriteCaptured([]byte{0xf8}, 48_000, false, after(120*time.Millisecond), captured.Add(100*time.Millisecond))
		require.NoError(t, err)
		for ssrc, want := range map[uint32]uint32{1: 90_000 + 2*90_000, uint32(c.sound.inner.SSRC()): 48_000 + 48*1900} {
			// Made after 2 s, corrected 30 ms later.
			sr := &rtcp.SenderReport{SSRC: ssrc, NTPTime: ntpOf(after(2 * time.Second))}
			c.reports.correct(sr, after(2030*time.Millisecond))
			require.InDelta(t, want, sr.RTPTime, 1, "%v of %d", step, ssrc)
		}
	}
}

// ntpOf returns the NTP timestamp of a time.
func ntpOf(at time.Time) uint64 {
	const to1970 = 2208988800
	return uint64(at.Unix()+to1970)<<32 | uint64(at.Nanosecond())<<32/uint64(time.Second)
}
