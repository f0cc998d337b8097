package fanout

import (
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/delay"
)

const (
	// maxGroup and maxGroupBytes bound the frames kept since the last key frame, for readers that join.
	maxGroup, maxGroupBytes = 1500, 24 << 20
	// ringSize bounds a reader's backlog, in frames.
	ringSize = 128
	// askEvery is the shortest interval between two requests of Refresh to the source for a key frame.
	askEvery = 4 * time.Second
	// replayEvery is the shortest interval between two replays for a reader.
	replayEvery = time.Second
	// logEvery is the shortest time between two log lines about a reader's losses.
	logEvery = time.Second
)

// Options of Pictures.
type Options struct {
	// Room receives each frame first. Required.
	Room delay.Output
	// Before is called before the room receives a frame; may be nil.
	Before func(f delay.OutFrame)
	// AskKeyFrame requests a key frame of the source; may be nil.
	AskKeyFrame func()
}

// Pictures passes the frames of a delay line to the room, and then to its readers. It implements delay.Output. Its other
// methods are safe for concurrent use.
type Pictures struct {
	opts Options

	writing sync.Mutex // held while the room gets frames
	mu      sync.Mutex
	codec   media.Codec
	group   []delay.OutFrame // since the last key frame
	bytes   int
	keyAt   time.Time // when the last key frame was due
	askedAt time.Time
	readers map[*reader]struct{}
}

var _ delay.Output = (*Pictures)(nil)

// NewPictures returns Pictures without readers.
func NewPictures(o Options) *Pictures { return &Pictures{opts: o, readers: map[*reader]struct{}{}} }

// WriteFrame writes a frame that is due now to the room, and returns its result. Then it queues the frame for the
// readers, without waiting for them.
func (p *Pictures) WriteFrame(f delay.OutFrame) (time.Time, error) {
	if p.opts.Before != nil {
		p.opts.Before(f)
	}
	p.writing.Lock()
	at, err := p.opts.Room.WriteFrame(f)
	p.writing.Unlock()
	if p.push(f) {
		p.askKeyFrame()
	}
	return at, err
}

// Replay writes the frames since the last key frame to the room again, for a viewer that joins while the picture stands still.
func (p *Pictures) Replay(now time.Time) {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	group := slices.Clone(p.group)
	p.mu.Unlock()
	for i, f := range group {
		f.Due = now.Add(time.Duration(i+1-len(group)) * time.Millisecond)
		if _, err := p.opts.Room.WriteFrame(f); err != nil {
			return
		}
	}
}

// KeyFrame returns the newest key frame; ok is false without one.
func (p *Pictures) KeyFrame() (f delay.OutFrame, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.group) == 0 {
		return f, false
	}
	return p.group[0], true
}

// push queues a frame for all readers. It reports whether one of them needs a key frame now.
func (p *Pictures) push(f delay.OutFrame) (ask bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codec = f.Codec
	p.keep(f)
	for r := range p.readers {
		ask = r.push(f) || ask
	}
	return ask
}

// keep adds a frame to the group since the last key frame.
func (p *Pictures) keep(f delay.OutFrame) {
	switch {
	case f.KeyFrame:
		p.forget()
		p.keyAt = f.Due
	case len(p.group) == 0:
		return
	}
	p.group = append(p.group, f)
	for _, packet := range f.Packets {
		p.bytes += len(packet.Payload)
	}
	p.bytes += len(f.Data)
	if len(p.group) > maxGroup || p.bytes > maxGroupBytes || p.group[0].Epoch != f.Epoch {
		p.forget()
	}
}

func (p *Pictures) forget() {
	clear(p.group)
	p.group, p.bytes = p.group[:0], 0
}

func (p *Pictures) askKeyFrame() {
	if p.opts.AskKeyFrame != nil {
		p.opts.AskKeyFrame()
	}
}

// Refresh requests a key frame from the source, unless key frames come every few seconds anyway.
func (p *Pictures) Refresh(now time.Time) {
	p.mu.Lock()
	ask := now.Sub(p.keyAt) > askEvery && now.Sub(p.askedAt) > askEvery
	if ask {
		p.askedAt = now
	}
	p.mu.Unlock()
	if ask {
		p.askKeyFrame()
	}
}

// Codec returns the codec of the latest frame, unknown before the first one.
func (p *Pictures) Codec() media.Codec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.codec
}

// ReaderOptions describe a reader.
type ReaderOptions struct {
	// Log receives at most one line a second about lost frames.
	Log zerolog.Logger
	// Replay requests the frames since the last key frame again, at most once a second; may be nil.
	Replay <-chan struct{}
	// Fresh begins with the next key frame, which is requested, instead of the last one.
	Fresh bool
}

// Read passes frames to take, one at a time, until done is closed or take returns false. It first passes all frames since the
// last key frame at once, and again for each replay; without any it begins with the next key frame. A reader that falls behind
// loses frames up to the next key frame, and the source is asked for one.
//
// The caller's goroutine is the reader's; when Read returns, its ring is gone.
func (p *Pictures) Read(done <-chan struct{}, o ReaderOptions, take func(frames []delay.OutFrame) (more bool)) {
	r := &reader{log: o.Log, frames: make(chan delay.OutFrame, ringSize)}
	defer p.leave(r)
	began := time.Now()
	if group := p.begin(r, o.Fresh); len(group) > 0 && !take(group) {
		return
	}
	var replay <-chan time.Time // for a request within replayEvery
	for {
		select {
		case <-done:
			return
		case <-o.Replay:
			if replay == nil {
				replay = time.After(replayEvery - time.Since(began))
			}
		case <-replay:
			began, replay = time.Now(), nil
			if group := p.begin(r, false); len(group) > 0 && !take(group) {
				return
			}
		case f := <-r.frames:
			if !take([]delay.OutFrame{f}) {
				return
			}
		}
	}
}

// begin returns the frames since the last key frame, unless fresh ones are wanted; the next ones are queued for r.
func (p *Pictures) begin(r *reader, fresh bool) (group []delay.OutFrame) {
	p.mu.Lock()
	p.readers[r] = struct{}{}
	for len(r.frames) > 0 {
		<-r.frames
	}
	if !fresh {
		group = slices.Clone(p.group)
	}
	r.waits, r.gap = len(group) == 0, false
	p.mu.Unlock()
	if len(group) == 0 {
		p.askKeyFrame()
	}
	return group
}

func (p *Pictures) leave(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, r)
	r.report()
}

// reader is the ring of one reader, guarded by Pictures.mu.
type reader struct {
	log    zerolog.Logger
	frames chan delay.OutFrame
	waits  bool // for the next key frame
	gap    bool // as frames were lost
	lost   int  // since the last log line
	logged time.Time
}

// push queues a frame; what follows a lost one cannot be decoded up to the next key frame. It reports whether a gap begins.
func (r *reader) push(f delay.OutFrame) (begins bool) {
	if !r.waits || f.KeyFrame {
		select {
		case r.frames <- f:
			r.waits, r.gap = false, false
			return false
		default:
			begins = !r.waits
			r.waits, r.gap = true, true
		}
	}
	if r.gap {
		r.lost++
		if f.Due.Sub(r.logged) >= logEvery {
			r.report()
			r.logged = f.Due
		}
	}
	return begins
}

// report logs the losses.
func (r *reader) report() {
	if r.lost > 0 {
		r.log.Warn().Int("frames", r.lost).Msg("picture reader too slow, frames lost")
		r.lost = 0
	}
}
