package sound

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/fanout"
	"touchline/media/speech"
)

const (
	// maxOpus is the largest Opus packet of one frame (RFC 6716, section 3.2.1).
	maxOpus = 1275
	// settled is the number of silent frames that are sent one by one; after it every keepAlive-th frame is sent.
	settled, keepAlive = 50, 20
	// mixBacklog bounds the packets that wait for a slow subscriber of the mix: one second.
	mixBacklog = 50
	// bitRate of the sound, in bit/s: more than for speech, as cameras record any sound.
	bitRate = 64000
)

// Voice is the part of a speech.Writer that a Player follows.
type Voice interface {
	// Frames returns the voice as it is sent, with the place of each frame in the schedule.
	Frames() (frames <-chan speech.Frame, cancel func())
	// Sounds reports whether speech is playing or begins before a given time.
	Sounds(before time.Time) bool
}

// PlayerOptions make a Player.
type PlayerOptions struct {
	// Voice sets the schedule.
	Voice Voice
	// Line is the camera's sound; without it the mix is the voice alone.
	Line *Line
	// Out receives the camera's sound from its first packet on; may be nil.
	Out speech.PacketWriter
}

// Packet is one packet of the mix.
type Packet struct {
	Payload   []byte // read only
	Timestamp uint32 // of RTP, at 48 kHz
	// At is the place of its first sample in the schedule.
	At time.Time
}

// PlayerStats are running totals.
type PlayerStats struct {
	Packets uint64 // of the camera's sound, written
	MixLost uint64 // packets that slow subscribers of the mix lost
}

// Player sends the camera's sound in the voice's schedule, and the mix of both to
// subscribers.
type Player struct {
	opts  PlayerOptions
	alone *opus.Encoder
	both  *opus.Encoder
	first uint32 // timestamp of the schedule's beginning
	began time.Time

	// Owned by Run.
	quiet, unsent int
	buf           [maxOpus]byte

	mixes fanout.Fanout[Packet]

	packets, lost atomic.Uint64
}

// NewPlayer checks the options and makes the encoders. It starts nothing.
func NewPlayer(o PlayerOptions) (*Player, error) {
	if o.Voice == nil {
		return nil, errors.New("sound.PlayerOptions.Voice is not set")
	}
	p := &Player{opts: o, first: rand.Uint32()}
	for _, enc := range []**opus.Encoder{&p.alone, &p.both} {
		var err error
		if *enc, err = speech.NewEncoder(opus.AppAudio, bitRate); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Run plays until ctx or the voice ends.
func (p *Player) Run(ctx context.Context) error {
	frames, cancel := p.opts.Voice.Frames()
	defer cancel()
	defer p.mixes.Close()
	pcm := make([]int16, Rate/50)
	for {
		select {
		case <-ctx.Done():
			return nil
		case f, ok := <-frames:
			if !ok {
				return nil
			}
			if len(f.PCM) != len(pcm) {
				return fmt.Errorf("expected voice frames of %d samples, got %d", len(pcm), len(f.PCM))
			}
			if err := p.frame(f, pcm); err != nil {
				return err
			}
		}
	}
}

// frame makes and sends the sound that plays with one frame of the voice.
func (p *Player) frame(f speech.Frame, pcm []int16) error {
	if p.began.IsZero() {
		p.began = f.Due
	}
	timestamp := p.first + uint32(count(f.Due.Sub(p.began)))
	clear(pcm)
	if l := p.opts.Line; l != nil {
		// The sound is lowered by the time the first word is audible.
		until := f.Due.Add(span(int64(len(pcm))) + attack)
		some := l.Read(f.Due.Add(speech.EncoderDelay), pcm, p.opts.Voice.Sounds(until))
		if err := p.send(pcm, timestamp, some, l.Heard()); err != nil {
			return err
		}
	}
	return p.mix(f, pcm, timestamp)
}

// send writes the camera's sound from its first packet on, and few packets while it is silent.
func (p *Player) send(pcm []int16, timestamp uint32, some, heard bool) error {
	p.unsent++
	p.quiet++
	if some {
		p.quiet = 0
	}
	if p.opts.Out == nil || !heard || p.quiet > settled && p.unsent < keepAlive {
		return nil
	}
	n, err := p.alone.Encode(pcm, p.buf[:])
	if err != nil {
		return fmt.Errorf("encode the camera's sound: %w", err)
	}
	if _, err = p.opts.Out.WriteOpus(slices.Clone(p.buf[:n]), timestamp, some && p.unsent > 1); err == nil { // logs errors
		p.packets.Add(1)
	}
	p.unsent = 0
	return nil
}

// mix sends voice and sound together to the subscribers.
func (p *Player) mix(f speech.Frame, pcm []int16, timestamp uint32) error {
	if p.mixes.Len() == 0 {
		return nil
	}
	for i, v := range f.PCM {
		pcm[i] = int16(max(-32768, min(32767, int32(v)+int32(pcm[i]))))
	}
	n, err := p.both.Encode(pcm, p.buf[:])
	if err != nil {
		return fmt.Errorf("encode voice and sound: %w", err)
	}
	p.lost.Add(p.mixes.Send(Packet{Payload: slices.Clone(p.buf[:n]), Timestamp: timestamp, At: f.Due}))
	return nil
}

// Mix returns voice and sound together, one packet in 20 ms, silence included. A
// subscriber more than a second behind loses packets. The channel is closed when
// Run returns.
func (p *Player) Mix() (packets <-chan Packet, cancel func()) { return p.mixes.Subscribe(mixBacklog) }

// Stats returns the totals so far.
func (p *Player) Stats() PlayerStats {
	return PlayerStats{Packets: p.packets.Load(), MixLost: p.lost.Load()}
}
