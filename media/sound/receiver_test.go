package sound_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/sound"
)

// packets returns a tone of some seconds as sent by a camera.
func packets(tb testing.TB, seconds int) []*rtp.Packet {
	tb.Helper()
	enc, err := opus.NewEncoder(sound.Rate, 1, opus.AppVoIP)
	require.NoError(tb, err)
	require.NoError(tb, enc.SetInBandFEC(true))
	require.NoError(tb, enc.SetPacketLossPerc(20))
	require.NoError(tb, enc.SetBitrate(32000))
	var out []*rtp.Packet
	for n := range int64(seconds * 50) {
		pcm := make([]int16, frame)
		for i := range pcm {
			pcm[i] = sine(n*frame + int64(i))
		}
		buf := make([]byte, 1275)
		size, err := enc.Encode(pcm, buf)
		require.NoError(tb, err)
		out = append(out, &rtp.Packet{
			Header: rtp.Header{
				Version: 2, SSRC: 5, SequenceNumber: uint16(65000 + n), Timestamp: uint32(1<<32 - 100*frame + n*frame),
			},
			Payload: buf[:size],
		})
	}
	return out
}

// hear reads the output of a receiver every 20 ms.
func hear(l *sound.Line, n int64) []int16 {
	out := make([]int16, frame)
	l.Picture(at(n), time.Time{}, at(n).Add(time.Second))
	l.Read(at(n), out, false)
	return out
}

// TestLossAndDisorder loses one packet in ten, swaps some, doubles some: the tone continues.
func TestLossAndDisorder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	line := sound.NewLine(30*time.Second, 12)
	r, err := sound.NewReceiver(line, sound.Rate)
	require.NoError(t, err)
	all := packets(t, 20)
	lost := 0
	var heard []int16
	for n := 0; n < len(all); n++ {
		switch {
		case n > 0 && n%10 == 9:
			lost++
		case n%10 == 3: // after the one behind it
			r.WriteRTP(all[n+1], at(int64(n)))
			r.WriteRTP(all[n], at(int64(n)).Add(15*time.Millisecond))
			heard = append(heard, hear(line, int64(n))...)
			n++
		default:
			r.WriteRTP(all[n], at(int64(n)).Add(time.Duration(random.IntN(15))*time.Millisecond))
			if random.IntN(5) == 0 {
				r.WriteRTP(all[n], at(int64(n)).Add(16*time.Millisecond))
			}
		}
		heard = append(heard, hear(line, int64(n))...)
	}
	s := r.Stats()
	require.InDelta(t, lost, s.Lost, 2) // the last hole is still waited for
	require.InDelta(t, lost*frame, s.Concealed, 2*frame)
	require.Zero(t, s.Bad)
	require.Zero(t, line.Stats().Jumps)
	// No frame is missing.
	body := heard[3*sound.Rate/2 : 19*sound.Rate]
	for i := 0; i+frame <= len(body); i += frame {
		// Concealment of a steady tone is much softer than the tone, but not silent.
		require.Greater(t, rms(body[i:i+frame]), 500.0, "at %d ms", 1500+i/48)
	}
}

// TestPause leaves out packets without a gap in the sequence numbers, as DTX does: there is silence at that time.
func TestPause(t *testing.T) {
	line := sound.NewLine(30*time.Second, 12)
	r, err := sound.NewReceiver(line, sound.Rate)
	require.NoError(t, err)
	all := packets(t, 10)
	var heard []int16
	sequence := all[0].SequenceNumber
	for n, p := range all {
		if n < 150 || n >= 250 {
			p.SequenceNumber = sequence
			sequence++
			r.WriteRTP(p, at(int64(n)))
		}
		heard = append(heard, hear(line, int64(n))...)
	}
	require.Zero(t, r.Stats().Lost)
	require.Greater(t, rms(heard[150*frame:199*frame]), 4000.0)
	require.Less(t, rms(heard[202*frame:299*frame]), 1.0)
	require.Greater(t, rms(heard[302*frame:400*frame]), 4000.0)
}

// TestRestart changes the SSRC in the middle.
func TestRestart(t *testing.T) {
	line := sound.NewLine(30*time.Second, 12)
	r, err := sound.NewReceiver(line, sound.Rate)
	require.NoError(t, err)
	var heard []int16
	for n, p := range packets(t, 10) {
		if n >= 250 {
			p.SSRC, p.SequenceNumber, p.Timestamp = 6, uint16(n), uint32(n*frame+99)
		}
		r.SenderReport(start(), p.Timestamp)
		r.WriteRTP(p, at(int64(n)))
		heard = append(heard, hear(line, int64(n))...)
	}
	require.Zero(t, r.Stats().Lost)
	require.Greater(t, rms(heard[310*frame:]), 4000.0)
}

func FuzzReceiver(f *testing.F) {
	for _, p := range packets(f, 1)[:5] {
		f.Add(append([]byte{0, byte(p.SequenceNumber), 0, 20}, p.Payload[:min(40, len(p.Payload))]...))
	}
	f.Add([]byte{1, 2})
	line := sound.NewLine(30*time.Second, 12)
	r, err := sound.NewReceiver(line, sound.Rate)
	require.NoError(f, err)
	n := int64(0)
	f.Fuzz(func(_ *testing.T, data []byte) {
		for len(data) > 4 {
			size := min(int(data[3]), len(data)-4)
			r.WriteRTP(&rtp.Packet{
				Header:  rtp.Header{SequenceNumber: binary.BigEndian.Uint16(data), Timestamp: uint32(data[2]) << 24, SSRC: uint32(data[2] & 1)},
				Payload: data[4 : 4+size],
			}, at(n))
			r.SenderReport(start(), uint32(data[3]))
			data = data[4+size:]
			hear(line, n)
			n++
		}
	})
}

// TestFutureTimestamp: one packet from hours ahead, then another camera. Its sound is heard from the start.
func TestFutureTimestamp(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{9 * time.Second, 6 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			line := sound.NewLine(30*time.Second, 12)
			r, err := sound.NewReceiver(line, sound.Rate)
			require.NoError(t, err)
			all := packets(t, 12)
			n := int64(0)
			play := func(change func(*rtp.Packet), frames int64) []int16 {
				var heard []int16
				for range frames {
					p := *all[n]
					change(&p)
					r.WriteRTP(&p, at(n))
					heard = append(heard, hear(line, n)...)
					n++
				}
				return heard
			}
			play(func(*rtp.Packet) {}, 50)
			play(func(p *rtp.Packet) { p.Timestamp += uint32(ahead.Seconds() * sound.Rate) }, 1)
			heard := play(func(*rtp.Packet) {}, 200)
			require.Greater(t, rms(heard[150*frame:]), 5000.0, "the camera itself goes on")
			r.Begin()
			play(func(p *rtp.Packet) { p.SSRC, p.Timestamp = 6, p.Timestamp+12345 }, 150)
			heard = play(func(p *rtp.Packet) { p.SSRC, p.Timestamp = 6, p.Timestamp+12345 }, 150)
			for i := range 150 {
				require.Greater(t, rms(heard[i*frame:(i+1)*frame]), 5000.0, "frame %d of another camera", i)
			}
		})
	}
}

// TestFutureStream: a stream that ends far ahead of the present does not silence the next one.
func TestFutureStream(t *testing.T) {
	t.Parallel()
	line := sound.NewLine(30*time.Second, 12)
	loud := make([]int16, frame)
	for i := range loud {
		loud[i] = sine(int64(i))
	}
	line.Push(sound.Piece{Stream: 1, Arrival: at(0), PCM: loud})
	line.Push(sound.Piece{Stream: 1, Media: 9 * 3600 * sound.Rate, Arrival: at(0).Add(6 * time.Hour), PCM: loud})
	for n := range int64(200) {
		line.Push(sound.Piece{Stream: 2, Media: n * frame, Arrival: at(n), PCM: loud})
		got := hear(line, n)
		if n > 60 {
			require.Greater(t, rms(got), 5000.0, "frame %d", n)
		}
	}
}
