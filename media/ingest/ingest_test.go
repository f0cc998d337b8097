package ingest_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// delivery is one packet on the wire.
type delivery struct {
	at    time.Time
	pkt   *rtp.Packet
	frame int
}

// TestRandomNetwork sends generated VP8 through a network that loses, doubles, delays and
// reorders packets, with padding in between, and compares the output with the expected
// units.
func TestRandomNetwork(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		loss := []float64{0, 0, 0.001, 0.01, 0.05}[seed%5]
		paddingShare := []float64{0, 0.05, 0.3}[seed%3]
		units := fakeVP8(r, 400, 20, 4000)
		frames := packetise(media.VP8, units, uint16(65000+seed*37), uint32(0xffff_ff00-seed*90000), 700)

		// Padding has its own sequence numbers.
		shift := uint16(0)
		var wire []delivery
		broken := make([]bool, len(frames)+1)
		for i := range frames {
			sent := start().Add(time.Duration(i) * time.Second / 30)
			add := func(p *rtp.Packet) {
				if r.Float64() < loss {
					broken[i] = true
					return
				}
				at := sent.Add(time.Duration(r.Int64N(int64(60 * time.Millisecond))))
				wire = append(wire, delivery{at, p, i})
				if r.Float64() < 0.02 {
					wire = append(wire, delivery{at.Add(time.Duration(r.Int64N(int64(80 * time.Millisecond)))), clone(p), i})
				}
			}
			for _, p := range frames[i].packets {
				if i > 0 && r.Float64() < paddingShare {
					pad := clone(p)
					pad.SequenceNumber += shift
					pad.Timestamp = frames[i-1].ts
					pad.Marker, pad.Padding, pad.Payload = r.IntN(2) == 0, true, nil
					if r.IntN(2) == 0 {
						pad.Payload = append(make([]byte, 254), 255)
					}
					shift++
					add(pad)
				}
				p.SequenceNumber += shift
				add(clone(p))
			}
		}
		slices.SortStableFunc(wire, func(a, b delivery) int { return a.at.Compare(b.at) })

		// The first packet to come must be the first one sent, as earlier ones are
		// unknown.
		first := slices.IndexFunc(wire, func(d delivery) bool { return d.frame == 0 && !d.pkt.Padding })
		wire[0], wire[first] = wire[first], wire[0]
		if wire[0].pkt.SequenceNumber != frames[0].packets[0].SequenceNumber {
			broken[0] = true
		}

		a := ingest.New(ingest.Options{Codec: media.VP8})
		var out []media.EncodedFrame
		for _, d := range wire {
			out = append(out, a.Push(d.pkt, d.at)...)
			out = append(out, a.Tick(d.at)...)
		}
		out = append(out, a.Tick(wire[len(wire)-1].at.Add(time.Second))...)

		var want []int
		clean := false
		for i := range frames {
			switch {
			case broken[i]:
				clean = false
			case i%20 == 0:
				clean = true
			}
			if clean {
				want = append(want, i)
			}
		}
		if broken[0] {
			// Whether the first group survives depends on what came first.
			cut := func(i int) bool { return i < 20 }
			want = slices.DeleteFunc(want, cut)
			out = slices.DeleteFunc(out, func(f media.EncodedFrame) bool { return f.PTS < 19900*time.Millisecond/30 })
		}
		require.Len(t, out, len(want), "seed %d: %+v", seed, a.Stats())
		for k, f := range out {
			i := want[k]
			require.True(t, bytes.Equal(units[i], f.Data), "seed %d frame %d differs", seed, i)
			require.Equal(t, i%20 == 0, f.KeyFrame)
			require.Len(t, f.Packets, len(frames[i].packets))
			if k > 0 {
				require.InDelta(t, float64(time.Duration(i-want[k-1])*time.Second/30), float64(f.PTS-out[k-1].PTS), 1e3)
				require.True(t, f.Arrival.After(out[k-1].Arrival))
			}
		}
	}
}

// vp8Stream returns an assembler in mid-stream with its frames so far.
func vp8Stream(t *testing.T, n int) (*ingest.Assembler, []truth) {
	t.Helper()
	r := rand.New(rand.NewPCG(4, 4))
	frames := packetise(media.VP8, fakeVP8(r, 200, 50, 900), 100, 5000, 400)
	a := ingest.New(ingest.Options{Codec: media.VP8})
	require.Len(t, pushAll(a, frames[:n]), n)
	return a, frames
}

func at(i int) time.Time { return start().Add(time.Duration(i) * time.Second / 30) }

func pushFrame(a *ingest.Assembler, f truth, when time.Time, change func(*rtp.Packet)) []media.EncodedFrame {
	var out []media.EncodedFrame
	for _, p := range f.packets {
		q := clone(p)
		if change != nil {
			change(q)
		}
		out = append(out, a.Push(q, when)...)
	}
	return out
}

func TestPaddingIsReceivedWithoutMedia(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		size    byte
		payload []byte
	}{
		{"empty payload", 255, nil},
		{"zeros and a count", 255, append(make([]byte, 254), 255)},
		{"zeros and a count, header without size", 0, append(make([]byte, 254), 255)},
		{"one byte", 1, []byte{1}},
		{"random bytes as long as announced", 20, append(bytes.Repeat([]byte{0x55}, 19), 20)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, frames := vp8Stream(t, 10)
			pad := clone(frames[10].packets[0])
			pad.Padding, pad.Header.PaddingSize, pad.Payload = true, tt.size, tt.payload
			require.Empty(t, a.Push(pad, at(10)))
			out := pushFrame(a, frames[10], at(10), func(p *rtp.Packet) { p.SequenceNumber++ })
			require.Len(t, out, 1, "nothing is waited for")
			require.Equal(t, frames[10].data, out[0].Data)
			require.Equal(t, uint64(1), a.Stats().Padding)
			require.Zero(t, a.Stats().Gaps)
		})
	}
}

func TestPaddedMediaIsMedia(t *testing.T) {
	t.Parallel()
	a, frames := vp8Stream(t, 10)
	out := pushFrame(a, frames[10], at(10), func(p *rtp.Packet) { p.Padding, p.Header.PaddingSize = true, byte(len(p.Payload)) })
	require.Len(t, out, 1)
	require.Equal(t, frames[10].data, out[0].Data)
	for _, p := range out[0].Packets {
		require.False(t, p.Padding)
		require.Zero(t, p.Header.PaddingSize)
		require.Equal(t, p.MarshalSize(), p.Header.MarshalSize()+len(p.Payload))
	}
}

func TestPaddingBeforeTheFirstKeyFrame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4))
	frames := packetise(media.VP8, fakeVP8(r, 3, 50, 900), 100, 5000, 400)
	a := ingest.New(ingest.Options{Codec: media.VP8})
	for i := range 16 {
		pad := &rtp.Packet{
			Header:  rtp.Header{SequenceNumber: uint16(84 + i), Timestamp: 77, SSRC: 7, Padding: true, Marker: true},
			Payload: append(make([]byte, 254), 255),
		}
		require.Empty(t, a.Push(pad, at(0)))
	}
	require.Len(t, pushAll(a, frames), 3)
}

func TestWaitsForTheKeyFrame(t *testing.T) {
	t.Parallel()
	a, frames := vp8Stream(t, 60)
	require.False(t, a.WantsKeyFrame(at(60)), "a clean stream wants nothing")

	// One packet is lost: the gap is given up after 150 ms.
	require.Empty(t, pushFrame(a, truth{packets: frames[60].packets[1:]}, at(60), nil))
	require.Empty(t, pushFrame(a, frames[61], at(61), nil))
	require.False(t, a.WantsKeyFrame(at(61)))
	require.Empty(t, a.Tick(at(64)))
	require.False(t, a.WantsKeyFrame(at(64)), "the hole is still waited for")
	require.Empty(t, a.Tick(at(66)))
	require.True(t, a.WantsKeyFrame(at(66)))
	require.False(t, a.WantsKeyFrame(at(80)), "once a second")
	require.True(t, a.WantsKeyFrame(at(96)))
	for i := 62; i < 100; i++ {
		require.Empty(t, pushFrame(a, frames[i], at(i), nil))
	}
	out := pushFrame(a, frames[100], at(100), nil)
	require.Len(t, out, 1)
	require.True(t, out[0].KeyFrame)
	require.False(t, a.WantsKeyFrame(at(200)))
	s := a.Stats()
	require.Equal(t, uint64(1), s.Gaps)
	require.Equal(t, uint64(1), s.Lost)
	require.Equal(t, uint64(39), s.Waiting)
}

func TestRetransmissionFillsTheHole(t *testing.T) {
	t.Parallel()
	a, frames := vp8Stream(t, 60)
	missing := clone(frames[60].packets[0])
	require.Empty(t, pushFrame(a, truth{packets: frames[60].packets[1:]}, at(60), nil))
	require.Empty(t, pushFrame(a, frames[61], at(61), nil))
	out := a.Push(missing, at(64))
	require.Len(t, out, 2)
	require.Equal(t, frames[60].data, out[0].Data)
	require.Equal(t, frames[61].data, out[1].Data)
	require.Equal(t, at(64), out[0].Received)
	require.WithinDuration(t, at(60), out[0].Arrival, 2*time.Millisecond, "the hole is not in the arrival")
	require.Empty(t, a.Push(clone(frames[61].packets[0]), at(64)))
	require.Equal(t, uint64(1), a.Stats().Late)
}

func TestBlankFramesAreDropped(t *testing.T) {
	t.Parallel()
	a, frames := vp8Stream(t, 20)
	// The SFU closes the track with 8x8 key frames on the same SSRC.
	blank := append([]byte{0x10, 0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 8, 0, 8, 0}, make([]byte, 20)...)
	seq := frames[20].packets[0].SequenceNumber
	for i := range 6 {
		out := a.Push(&rtp.Packet{
			Header:  rtp.Header{SequenceNumber: seq, Timestamp: frames[20].ts + uint32(i)*3000, SSRC: 7, Marker: true},
			Payload: blank,
		}, at(20+i))
		require.Empty(t, out)
		seq++
	}
	require.Equal(t, uint64(6), a.Stats().Blanks)
	require.True(t, a.WantsKeyFrame(at(26)))
	for i := 26; i < 50; i++ {
		require.Empty(t, pushFrame(a, frames[i], at(i), func(p *rtp.Packet) {
			p.SequenceNumber = seq
			seq++
		}), "a delta frame after a blank one refers to nothing")
	}
	out := pushFrame(a, frames[50], at(50), func(p *rtp.Packet) {
		p.SequenceNumber = seq
		seq++
	})
	require.Len(t, out, 1)
	require.Equal(t, 320, out[0].Width)
	require.Equal(t, uint32(0), out[0].Epoch)
}

func TestNewEpochs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*rtp.Packet)
		later  time.Duration
		epoch  uint32
	}{
		{"SSRC change", func(p *rtp.Packet) {
			p.SSRC, p.SequenceNumber, p.Timestamp = 8, p.SequenceNumber+999, p.Timestamp+12345
		}, 0, 1},
		{"timestamp 11 s back", func(p *rtp.Packet) { p.Timestamp -= 11 * 90000 }, 0, 1},
		{"timestamp 11 s ahead", func(p *rtp.Packet) { p.Timestamp += 11 * 90000 }, 0, 1},
		{"timestamp 5 s ahead", func(p *rtp.Packet) { p.Timestamp += 5 * 90000 }, 0, 0},
		{"pause of 60 s", func(p *rtp.Packet) { p.Timestamp += 60 * 90000 }, time.Minute, 0},
		{"network stalled 15 s", func(*rtp.Packet) {}, 15 * time.Second, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, frames := vp8Stream(t, 40)
			var out []media.EncodedFrame
			for i := 40; i < 60; i++ {
				out = append(out, pushFrame(a, frames[i], at(i).Add(tt.later), tt.change)...)
			}
			if tt.epoch == 0 {
				require.Len(t, out, 20)
				require.Zero(t, out[0].Epoch)
				return
			}
			require.Len(t, out, 10, "from the key frame on")
			require.True(t, out[0].KeyFrame)
			require.Equal(t, uint32(1), out[0].Epoch)
			require.InDelta(t, float64(10*time.Second/30), float64(out[0].PTS), 1e3)
			require.WithinDuration(t, at(50).Add(tt.later), out[0].Arrival, 5*time.Millisecond)
		})
	}
}

func TestLongPauseWrapsTheTimestamp(t *testing.T) {
	t.Parallel()
	a, frames := vp8Stream(t, 40)
	pause := 20 * time.Hour // the 32-bit timestamp wraps after 13.3 h
	out := pushFrame(a, frames[40], at(40).Add(pause), func(p *rtp.Packet) {
		p.Timestamp += uint32(uint64(pause/time.Second) * 90000 & 0xffffffff)
	})
	require.Len(t, out, 1)
	require.Zero(t, out[0].Epoch)
	require.InDelta(t, float64(pause+at(40).Sub(start())), float64(out[0].PTS), float64(time.Millisecond))
}

func TestSequenceRestart(t *testing.T) {
	t.Parallel()
	a, frames := vp8Stream(t, 40)
	// A stray packet with a far sequence number is ignored.
	stray := clone(frames[0].packets[0])
	stray.SequenceNumber += 20000
	require.Empty(t, a.Push(stray, at(40)))
	require.Len(t, pushFrame(a, frames[40], at(40), nil), 1)
	// A restarted source continues with its next key frame.
	var out []media.EncodedFrame
	for i := 41; i < 60; i++ {
		out = append(out, pushFrame(a, frames[i], at(i), func(p *rtp.Packet) { p.SequenceNumber += 30000 })...)
	}
	require.Len(t, out, 10)
	require.True(t, out[0].KeyFrame)
	require.Zero(t, out[0].Epoch)
}

func TestNoMarkers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4))
	frames := packetise(media.VP8, fakeVP8(r, 30, 50, 900), 100, 5000, 400)
	a := ingest.New(ingest.Options{Codec: media.VP8})
	var out []media.EncodedFrame
	for i, f := range frames {
		out = append(out, pushFrame(a, f, at(i), func(p *rtp.Packet) { p.Marker = false })...)
	}
	require.Len(t, out, 29, "each is finished by the next timestamp")
}

func TestSenderReports(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4))
	frames := packetise(media.VP8, fakeVP8(r, 100, 50, 900), 100, 0xfffff000, 400)
	a := ingest.New(ingest.Options{Codec: media.VP8})
	wall := start().Add(-time.Hour)
	a.SenderReport(wall, 0xfffff000-90000) // before any packet came
	out := pushAll(a, frames[:10])
	require.Equal(t, wall.Add(time.Second), out[0].NTP)
	require.Equal(t, out[9].PTS, out[9].NTP.Sub(out[0].NTP))
	a.SenderReport(wall.Add(10*time.Second), frames[9].ts)
	out = pushFrame(a, frames[10], at(10), nil)
	require.Equal(t, wall.Add(10*time.Second+time.Second/30), out[0].NTP)
}

func TestUnitsAreBounded(t *testing.T) {
	t.Parallel()
	a := ingest.New(ingest.Options{Codec: media.H264})
	for i := range 20000 {
		a.Push(&rtp.Packet{
			Header:  rtp.Header{SequenceNumber: uint16(i), SSRC: 1, Timestamp: 5},
			Payload: append([]byte{0x61}, make([]byte, 1000)...),
		}, start())
	}
	require.NotZero(t, a.Stats().Broken)
}
