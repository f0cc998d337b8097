package file

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"

	"touchline/internal/ticks"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/source"
)

const (
	// jump is a step of a stream's clock that starts a new epoch. A file waits for its next picture.
	jump = 10 * time.Second
	// repeat is how often a key frame is shown again while its successor is not due.
	repeat = time.Second
	// late is how far the clip may fall behind before its clock is reset.
	late = 500 * time.Millisecond
	// rounding is the tolerance for times of sound packets: Matroska counts in milliseconds.
	rounding = 5 * 48 // samples
	// preSkip is the delay of an Opus encoder (RFC 7845 section 4.2), in samples. Container times refer to the decoded sound, RTP times to
	// the encoder's input.
	preSkip = 312
)

// pacer emits access units when they are due: by DTS, as some are decoded before
// they are shown. Pictures and sound come from a goroutine each.
type pacer struct {
	now   func() time.Time
	out   source.Sink
	file  bool
	first chan struct{} // closed after the first picture, or when none will come
	once  sync.Once
	shown media.EncodedFrame // the newest picture; used by emit only

	mu     sync.Mutex
	began  bool
	anchor time.Time     // time of media time zero
	zero   time.Duration // PTS of the epoch's first unit
	last   time.Duration // DTS
	epoch  uint32
	heard  bool          // the epoch had sound
	lost   time.Duration // by which resets of the clock put off what followed, without jumps
	next   int64         // position of the next sound, in samples since zero
}

func newPacer(now func() time.Time, out source.Sink) *pacer {
	return &pacer{now: now, out: out, first: make(chan struct{})}
}

// reopen prepares for another opening, whose first picture begins an epoch. The pictures of a file wait for their time, however late it is.
func (p *pacer) reopen(file bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.file, p.last = file, math.MaxInt64
}

// showed reports whether there was a picture.
func (p *pacer) showed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began
}

// behind returns by how much the clip has fallen behind its own clock, in all.
func (p *pacer) behind() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// until returns the time until a unit of the present opening is due, 0 before its first one.
func (p *pacer) until(dts time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began || dts < p.last {
		return 0
	}
	return p.anchor.Add(dts).Sub(p.now())
}

// advise passes the advice on.
func (p *pacer) advise(text string) {
	if p.out.Advice != nil {
		p.out.Advice(text)
	}
}

// end is called after the last picture.
func (p *pacer) end() { p.once.Do(func() { close(p.first) }) }

// emit emits an access unit when it is due. Until then the newest one is repeated, if it is a key frame.
func (p *pacer) emit(ctx context.Context, u unit) error {
	at := p.now().Add(p.due(u))
	if p.out.Due != nil && at.Sub(p.now()) > repeat {
		p.out.Due(at)
	}
	for p.shown.KeyFrame && at.Sub(p.now()) > repeat+repeat/2 {
		if err := wake.Sleep(ctx, repeat); err != nil {
			return err
		}
		p.shown.PTS += repeat
		p.shown.Arrival, p.shown.Received = p.shown.Arrival.Add(repeat), p.now()
		p.out.Frame(p.shown)
	}
	if err := wake.Sleep(ctx, at.Sub(p.now())); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := u.frame
	f.Epoch, f.PTS = p.epoch, u.pts-p.zero
	f.Received = p.now()
	p.anchor = f.Received.Add(p.anchor.Sub(f.Received)) // the same moment as the wall clock shows it now, which may have been set
	f.Arrival = p.anchor.Add(u.pts)
	p.shown = f
	p.out.Frame(f)
	p.end() // sound may begin
	return nil
}

// due returns the time until a unit is due.
func (p *pacer) due(u unit) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.began || u.dts < p.last || !p.file && u.dts > p.last+jump {
		if p.began {
			p.epoch++
		}
		p.began, p.zero, p.heard = true, u.pts, false
		p.anchor = now.Add(-u.dts)
	}
	p.last = u.dts
	wait := p.anchor.Add(u.dts).Sub(now)
	if wait < -late {
		// The source stalled: later units keep their intervals.
		p.anchor = now.Add(-u.dts)
		if -wait < jump { // a machine that slept loses more
			p.lost -= wait
		}
	}
	return wait
}

// sound emits Opus packets when they are due, on the clock of the pictures. Those
// before the first picture are dropped.
func (p *pacer) sound(ctx context.Context, pts time.Duration, packets [][]byte) error {
	select {
	case <-p.first:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	began, wait := p.began && pts >= p.zero && (p.file || pts <= p.last+jump), p.anchor.Add(pts).Sub(p.now())
	p.mu.Unlock()
	if !began {
		return nil
	}
	if err := wake.Sleep(ctx, wait); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := ticks.Count(pts-p.zero, 48000) + preSkip
	switch off := at - p.next; {
	case !p.heard, off > rounding, off < -48*int64(jump/time.Millisecond):
		p.heard, p.next = true, at
	case off < -rounding:
		return nil // overlaps earlier sound
	}
	for _, packet := range packets {
		p.out.Opus(source.Opus{
			Payload: packet, Timestamp: uint32(p.next), Received: p.now(), //nolint:gosec // modulo 2^32
			Arrival: p.anchor.Add(p.zero + ticks.Duration(p.next, 48000)),
		})
		p.next += opus.PacketDuration2(packet)
	}
	return nil
}
