//go:build integration

package room_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/agent/room/publish"
)

// lateness measures how much earlier packets of sound were captured, by the sender reports of their track, than by
// began and their number.
type lateness struct {
	began time.Time

	mu        sync.Mutex
	ntp       time.Time
	timestamp uint32
	late      []time.Duration
}

func (l *lateness) Begin() {}

func (l *lateness) WriteRTP(p *rtp.Packet, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p.Payload) > 3 && !l.ntp.IsZero() {
		captured := l.ntp.Add(time.Duration(int32(p.Timestamp-l.timestamp)) * time.Second / 48000)
		number := binary.BigEndian.Uint32(p.Payload[1:])
		l.late = append(l.late, l.began.Add(time.Duration(number)*20*time.Millisecond).Sub(captured))
	}
}

func (l *lateness) SenderReport(ntp time.Time, timestamp uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ntp, l.timestamp = ntp, timestamp
}

// What a camera's publisher knows about the time of capture is in the sender reports that reach the room: of
// pictures and of sound, by the local clock or by the camera's own.
func TestReportsTellTheCapture(t *testing.T) {
	t.Parallel()
	const picture, sound, near = 200 * time.Millisecond, 500 * time.Millisecond, 100 * time.Millisecond // later than their capture
	for name, clock := range map[string]time.Duration{"by arrival": 0, "by the camera's clock": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			c, err := newTestCamera(publish.CameraOptions{
				URL: s.URL(), Keys: s.keys(), Room: "match", Identity: "cam", LoopbackOnly: true, Log: testLog(t),
			})
			require.NoError(t, err)
			c.late, c.clock = picture, clock
			run(t, func(ctx context.Context) error { return c.run(ctx, 640, 360) })
			l := &lateness{began: time.Now()}
			run(t, pace(20*time.Millisecond, func(n uint32) error {
				sent := l.began.Add(time.Duration(n) * 20 * time.Millisecond)
				arrival, ntp := sent.Add(-sound), time.Time{}
				if clock != 0 { // then the local clock is less exact
					arrival, ntp = sent.Add(-sound/2), arrival.Add(clock)
				}
				_, err := c.WriteCaptured(binary.BigEndian.AppendUint32([]byte{0x78}, n), n*960, n == 0, arrival, ntp)
				return err
			}))
			bot := startBot(t, s, func(o *room.Options) { o.Sound = l })
			var pictures []time.Duration
			eventually(t, func() bool {
				if f := frame(t, bot); !f.NTP.IsZero() {
					pictures = append(pictures, f.Received.Sub(f.NTP))
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(pictures) >= 30 && len(l.late) >= 50 && slices.Min(pictures) < picture+near && slices.Min(l.late) < sound+near
			}, "sender reports of both tracks")
			l.mu.Lock()
			defer l.mu.Unlock()
			gotPicture, gotSound := slices.Min(pictures), slices.Min(l.late) // a busy machine makes the others later
			t.Log("picture", gotPicture, "sound", gotSound)
			require.Greater(t, gotPicture, picture-near)
			require.Greater(t, gotSound, sound-near)
		})
	}
}
