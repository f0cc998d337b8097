package sound

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/speech"
)

const (
	// maxOpus is the largest Opus packet of one frame (RFC 6716, section 3.2.1).
	maxOpus = 1275
	// settled is how many silent frames are sent in full, keepAlive every how many-th one after them.
	settled, keepAlive = 50, 20
	// mixQueue bounds what a listener to the mix may be behind: one second.
	mixQueue = 50
)

// DefaultBitRate of the sound, in bit/s: more than speech needs, as a camera hears anything.
const DefaultBitRate = 64000

// Voice is the part of a speech.Writer that a Player follows.
type Voice interface {
	// Frames taps the voice as it is sent, with the place of each frame in the schedule.
	Frames() (frames <-chan speech.Frame, cancel func())
	// Sounds reports whether speech is under way or begins before a moment.
	Sounds(before time.Time) bool
}

// PlayerOptions make a Player.
type PlayerOptions struct {
	// Voice keeps the time.
	Voice Voice
	// Line is the camera's sound; nil when there is none, and the mix is the voice alone.
	Line *Line
	// Out takes the camera's sound, from its first packet on; may be nil.
	Out speech.PacketWriter
	// BitRate in bit/s and Complexity (1 to 10) of the encoders; 0 for DefaultBitRate and speech's.
	BitRate, Complexity int
	Log                 zerolog.Logger
}

// Packet is one packet of the mix.
type Packet struct {
	Payload   []byte // read only
	Timestamp uint32 // of RTP, at 48 kHz
	// At is the moment that its first sample stands for.
	At time.Time
}

// PlayerStats are running totals.
type PlayerStats struct {
	Packets     uint64 // of the camera's sound, written
	WriteErrors uint64
	Mixed       uint64 // packets of the mix
	MixDrops    uint64 // packets that slow listeners to the mix lost
}

// Player sends the camera's sound in the voice's schedule, and the mix of both
// to the listeners. New, then Run.
type Player struct {
	opts  PlayerOptions
	alone *opus.Encoder
	both  *opus.Encoder
	first uint32 // timestamp of the schedule's beginning
	began time.Time

	// Owned by Run.
	quiet, unsent int
	buf           [maxOpus]byte

	mu   sync.Mutex
	taps []chan Packet
	over bool

	packets, errors, mixed, drops atomic.Uint64
}

// NewPlayer checks the options and makes the encoders. It starts nothing.
func NewPlayer(o PlayerOptions) (*Player, error) {
	if o.Voice == nil {
		return nil, errors.New("sound.PlayerOptions needs a voice whose schedule the sound follows")
	}
	if o.BitRate == 0 {
		o.BitRate = DefaultBitRate
	}
	if o.Complexity == 0 {
		o.Complexity = speech.DefaultComplexity
	}
	p := &Player{opts: o, first: rand.Uint32()}
	var err error
	if p.alone, err = newEncoder(o); err != nil {
		return nil, err
	}
	p.both, err = newEncoder(o)
	return p, err
}

func newEncoder(o PlayerOptions) (*opus.Encoder, error) {
	enc, err := opus.NewEncoder(Rate, 1, opus.AppAudio)
	if err != nil {
		return nil, fmt.Errorf("make the Opus encoder: %w", err)
	}
	if err := enc.SetBitrate(o.BitRate); err != nil {
		return nil, fmt.Errorf("set the bit rate to %d bit/s (expected 6000 to 510000): %w", o.BitRate, err)
	}
	if err := enc.SetComplexity(o.Complexity); err != nil {
		return nil, fmt.Errorf("set the complexity to %d (expected 1 to 10): %w", o.Complexity, err)
	}
	return enc, nil
}

// Run plays until ctx ends or the voice does.
func (p *Player) Run(ctx context.Context) error {
	frames, cancel := p.opts.Voice.Frames()
	defer cancel()
	defer p.close()
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

// frame makes and sends what is heard with one frame of the voice.
func (p *Player) frame(f speech.Frame, pcm []int16) error {
	if p.began.IsZero() {
		p.began = f.Due
	}
	timestamp := p.first + uint32(count(f.Due.Sub(p.began)))
	clear(pcm)
	if l := p.opts.Line; l != nil {
		// The lowering is complete when the first word is heard.
		until := f.Due.Add(span(int64(len(pcm))) + attack)
		some := l.Read(f.Due.Add(speech.EncoderDelay), pcm, p.opts.Voice.Sounds(until))
		if err := p.send(pcm, timestamp, some, l.Heard()); err != nil {
			return err
		}
	}
	return p.mix(f, pcm, timestamp)
}

// send writes the camera's sound. Before the first of it nothing is sent, and little while it is silent.
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
	if _, err = p.opts.Out.WriteOpus(slices.Clone(p.buf[:n]), timestamp, some && p.unsent > 1); err != nil {
		p.errors.Add(1) // the writer logs it
	} else {
		p.packets.Add(1)
	}
	p.unsent = 0
	return nil
}

// mix sends voice and sound together to the listeners.
func (p *Player) mix(f speech.Frame, pcm []int16, timestamp uint32) error {
	p.mu.Lock()
	listened := len(p.taps) > 0
	p.mu.Unlock()
	if !listened {
		return nil
	}
	for i, v := range f.PCM {
		pcm[i] = int16(max(-32768, min(32767, int32(v)+int32(pcm[i]))))
	}
	n, err := p.both.Encode(pcm, p.buf[:])
	if err != nil {
		return fmt.Errorf("encode voice and sound: %w", err)
	}
	p.mixed.Add(1)
	packet := Packet{Payload: slices.Clone(p.buf[:n]), Timestamp: timestamp, At: f.Due}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.taps {
		select {
		case t <- packet:
		default:
			p.drops.Add(1)
		}
	}
	return nil
}

// Mix taps voice and sound together, one packet in 20 ms, silence included. A
// listener more than a second behind loses packets (counted). The channel is
// closed when Run returns; cancel ends it without closing.
func (p *Player) Mix() (packets <-chan Packet, cancel func()) {
	t := make(chan Packet, mixQueue)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		close(t)
		return t, func() {}
	}
	p.taps = append(p.taps, t)
	return t, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taps = slices.DeleteFunc(p.taps, func(o chan Packet) bool { return o == t })
	}
}

// Stats returns the totals so far.
func (p *Player) Stats() PlayerStats {
	return PlayerStats{
		Packets: p.packets.Load(), WriteErrors: p.errors.Load(), Mixed: p.mixed.Load(), MixDrops: p.drops.Load(),
	}
}

// close ends the taps.
func (p *Player) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, t := range p.taps {
		close(t)
	}
	p.taps = nil
}
