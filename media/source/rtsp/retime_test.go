package rtsp_test

import (
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

// A stream whose clock is wrong is timed by arrival, one that is right by its clock.
func TestWrongClocks(t *testing.T) {
	const step = 40 * time.Millisecond
	for name, tt := range map[string]struct {
		ticks   func(n int) uint32
		arrives func(n int) time.Duration
		byClock bool
	}{
		"right":                         {ticks: func(n int) uint32 { return uint32(3600 * n) }, byClock: true},
		"10.5 times":                    {ticks: func(n int) uint32 { return uint32(37800 * n) }},
		"milliseconds":                  {ticks: func(n int) uint32 { return uint32(40 * n) }},
		"standing":                      {ticks: func(int) uint32 { return 1 }},
		"1.4 times":                     {ticks: func(n int) uint32 { return uint32(5040 * n) }},
		"whole seconds":                 {ticks: func(n int) uint32 { return uint32(90000 * (n / 25)) }},
		"a drift of 5 %":                {ticks: func(n int) uint32 { return uint32(3780 * n) }, byClock: true},
		"backwards":                     {ticks: func(n int) uint32 { return uint32(-3600 * n) }},
		"8 kHz":                         {ticks: func(n int) uint32 { return uint32(320 * n) }},
		"a second stands, then goes on": {ticks: func(n int) uint32 { return uint32(3600 * (n + n/40)) }, byClock: true},
		"a burst at the start": {
			ticks: func(n int) uint32 { return uint32(3600 * n) }, byClock: true,
			arrives: func(n int) time.Duration { return max(time.Duration(n)*step/100, time.Duration(n)*step-8*time.Second) },
		},
		"a hang of 6 s": {
			ticks: func(n int) uint32 { return uint32(3600 * n) }, byClock: true,
			arrives: func(n int) time.Duration {
				if at := time.Duration(n) * step; at < 10*time.Second || at > 16*time.Second {
					return at
				}
				return 16 * time.Second
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var frames []media.EncodedFrame
			r := rtsp.NewReader(&format.VP8{PayloadTyp: 96}, source.Sink{Frame: func(f media.EncodedFrame) { frames = append(frames, f) }})
			began := time.Unix(1000, 0)
			now := began
			r.SetNow(func() time.Time { return now })
			at := tt.arrives
			if at == nil {
				at = func(n int) time.Duration { return time.Duration(n) * step }
			}
			const pictures = 500
			for n := range pictures {
				now = began.Add(at(n))
				for k, part := range [][]byte{{0x10, 0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0, 1, 2}, {0, 3, 4}} {
					r.Packet(&rtp.Packet{
						Header:  rtp.Header{Version: 2, SequenceNumber: uint16(2*n + k), Timestamp: tt.ticks(n), Marker: k == 1},
						Payload: part,
					})
				}
			}
			require.Greater(t, len(frames), pictures-200)
			last := frames[len(frames)-1]
			for _, f := range frames[len(frames)-200:] {
				if tt.byClock {
					continue
				}
				require.Equal(t, last.Epoch, f.Epoch)
				require.InDelta(t, last.Received.Sub(f.Received), last.PTS-f.PTS, float64(2*time.Millisecond))
			}
			if tt.byClock {
				want := time.Duration(int64(tt.ticks(pictures-1)-tt.ticks(0))) * time.Second / media.VideoClockRate
				require.InDelta(t, want, last.PTS, float64(time.Millisecond))
			}
		})
	}
}

// A camera is opened again for a key frame four seconds after a request, once a minute, and never again if that is useless.
func TestReopeningForKeyFrames(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	var k rtsp.KeyRequests
	require.False(t, k.Overdue(at(0)), "nothing was asked")
	k.Ask(at(0))
	k.Ask(at(3))
	require.False(t, k.Overdue(at(3)))
	k.Came()
	require.False(t, k.Overdue(at(9)), "it was answered")
	k.Ask(at(10))
	require.True(t, k.Overdue(at(14)))
	k.Came()
	k.Ask(at(20))
	require.False(t, k.Overdue(at(30)), "within a minute")
	require.True(t, k.Overdue(at(80)))
	require.False(t, k.Overdue(at(85)), "the session began without one")
	k.Ask(at(200))
	require.False(t, k.Overdue(at(300)))
}

// TestWrongClockAfterDays: a stream that is timed by arrival stays so after 28.5 hours.
func TestWrongClockAfterDays(t *testing.T) {
	t.Parallel()
	var frames []media.EncodedFrame
	r := rtsp.NewReader(&format.VP8{PayloadTyp: 96}, source.Sink{Frame: func(f media.EncodedFrame) { frames = append(frames, f) }})
	now := time.Unix(1000, 0)
	r.SetNow(func() time.Time { return now })
	seq := uint16(0)
	pictures := func(number int, step time.Duration) {
		for range number {
			now = now.Add(step)
			for k, part := range [][]byte{{0x10, 0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0, 1, 2}, {0, 3, 4}} {
				r.Packet(&rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: seq, Timestamp: 1, Marker: k == 1}, Payload: part})
				seq++
			}
		}
	}
	pictures(100, 40*time.Millisecond) // the clock stands
	pictures(29, 59*time.Minute)       // 28.5 hours, at which a product of nanoseconds and 90 kHz overflows
	frames = nil
	pictures(100, 40*time.Millisecond)
	require.Greater(t, len(frames), 90)
	first, last := frames[0], frames[len(frames)-1]
	require.Equal(t, first.Epoch, last.Epoch)
	require.InDelta(t, last.Received.Sub(first.Received), last.PTS-first.PTS, float64(2*time.Millisecond))
}
