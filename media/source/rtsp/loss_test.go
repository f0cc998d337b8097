//go:build integration

package rtsp_test

import (
	"context"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

// A camera over UDP with a key frame each second, most of them lost: its key frames come
// 4 s apart, and the status reports loss, not a slow camera. Without loss it reports
// the camera.
func TestLossOverUDP(t *testing.T) {
	const step, length = 40 * time.Millisecond, 16 * time.Second
	for _, tt := range []struct {
		name        string
		gop         time.Duration
		lose        bool
		slow, lossy bool
	}{
		{"key frames lost", time.Second, true, false, true},
		{"key frames too far apart", 4 * time.Second, false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCamera(t, cameraOptions{})
			write := c.publish(t, &format.VP8{PayloadTyp: 96})
			u, err := url.Parse(c.url())
			require.NoError(t, err)
			// The clock follows the pictures, so that the test takes no time.
			began := time.Unix(1000, 0)
			var clock, received atomic.Int64
			now := func() time.Time { return began.Add(time.Duration(clock.Load())) }
			cam, err := rtsp.New(rtsp.Options{
				Access:    source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: func() time.Time { received.Add(1); return now() }},
				Transport: rtsp.UDP,
			})
			require.NoError(t, err)
			var keys atomic.Int64
			sup, err := source.NewSupervisor(source.Options{
				Puller: cam, Now: now, Random: func() float64 { return 0 },
				Sink: source.Sink{Frame: func(f media.EncodedFrame) {
					if f.KeyFrame {
						keys.Add(1)
					}
				}},
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- sup.Run(ctx) }()
			defer func() {
				stop()
				require.NoError(t, <-done)
			}()

			packetizer := rtp.NewPacketizer(300, 96, 7, &codecs.VP8Payloader{}, rtp.NewRandomSequencer(), 90000)
			send := func(key, lose bool) (sent int64) {
				// A frame's header (RFC 6386 section 9.1) and random data, in eight packets.
				head := []byte{0x11, 0, 0}
				if key {
					head = []byte{0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0}
				}
				picture := slices.Concat(head, make([]byte, 2200))
				for i, p := range packetizer.Packetize(picture, uint32(90000*step/time.Second)) {
					if lose && i == 1 {
						continue
					}
					write(p)
					sent++
				}
				return sent
			}
			require.Eventually(t, func() bool {
				send(true, false)
				return keys.Load() > 0
			}, 2*time.Minute, 50*time.Millisecond, "the first key frame")
			// After a gap the library holds up to 64 packets until the missing one comes.
			held := int64(0)
			if tt.lose {
				held = 70
			}
			sent, before := int64(0), received.Load()
			for at := step; at < length; at += step {
				clock.Store(int64(at))
				if at%time.Second == 0 {
					sup.KeyFrameAsked()
				}
				key := at%tt.gop == 0
				sent += send(key, tt.lose && key && at%(4*time.Second) != 0)
				require.Eventually(t, func() bool { return received.Load() >= before+sent-held }, 2*time.Minute, time.Millisecond)
			}
			s := sup.Status()
			require.Equal(t, [2]bool{tt.slow, tt.lossy}, [2]bool{s.Slow, s.Lossy}, "%+v", s)
			if tt.lose {
				require.InDelta(t, 12, s.Missing, 1)
			} else {
				require.Equal(t, tt.gop, s.KeyEvery)
			}
		})
	}
}
