package delay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/wake"
	"touchline/media"
)

const (
	defaultMaxBytes = 64 << 20
	defaultMaxAge   = 30 * time.Second
	maxSlew         = 0.1
	shownMax        = 16384       // frames remembered as shown: nine minutes at 30 fps
	ageSlack        = time.Second // how much longer than MaxAge a frame may be held
)

// ErrRunning is returned by Run while another Run is under way.
var ErrRunning = errors.New("the delay line runs already")

// Options configure a Line.
type Options struct {
	// MaxBytes bounds the frames held, bitstream and packets together; 0
	// means 64 MiB.
	MaxBytes int
	// MaxAge bounds D, and with a second more the time frames are held; 0
	// means 30 s.
	MaxAge time.Duration
	// Slew is how fast D may move, in seconds per second of media time; 0 or
	// more than 0.1 means 0.1.
	Slew float64
	// Initial is D before the first SetTarget.
	Initial time.Duration
	// Log takes a line when frames are dropped or cannot be written, at most
	// one a second. The zero value discards.
	Log zerolog.Logger
}

// Stats counts what a Line has done since it was made.
type Stats struct {
	Pushed    uint64 // frames given to Push
	Written   uint64 // frames that went out
	Unsent    uint64 // frames that were due but had nowhere to go
	Failed    uint64 // frames whose write failed
	Waiting   uint64 // dropped because a key frame was waited for
	OverBytes uint64 // dropped because MaxBytes was exceeded
	OverAge   uint64 // dropped because MaxAge was exceeded
	Overtaken uint64 // dropped because a new epoch's first picture is due earlier
	Late      uint64 // went out late by one frame interval or more
	Frames    int    // held now
	Bytes     int    // held now
}

// Output takes the frames that are due.
type Output interface {
	// WriteFrame shows a frame and says when it really went out; the zero
	// time when it had nowhere to go. An error is counted and logged, and the
	// next frame is tried.
	WriteFrame(f OutFrame) (time.Time, error)
}

// state is the point that the sliding of D has reached: after the frame that
// went out last, or in a prediction after any frame.
type state struct {
	started bool
	epoch   uint32
	pts     time.Duration
	arrival time.Time
	due     time.Time
	d       time.Duration
}

// shown is one frame that went out.
type shown struct {
	epoch  uint32
	pts    time.Duration
	at     time.Time // when it was due, if unsent
	unsent bool
}

// Line holds access units back until arrival + D. Every method may be called
// from any goroutine.
type Line struct {
	maxBytes int
	maxAge   time.Duration
	slew     float64
	log      zerolog.Logger

	mu      sync.Mutex
	running bool
	wake    wake.Signal

	target  time.Duration
	limit   time.Duration // most that D can be with MaxBytes
	queue   []media.EncodedFrame
	head    int // first live element of queue
	bytes   int
	needKey bool
	tail    media.EncodedFrame // newest frame given to Push, without its media
	out     state
	stats   Stats
	said    time.Time // last log line

	ring   []shown
	oldest int // index of the oldest element once the ring is full
}

// New returns an empty Line.
func New(o Options) *Line {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxAge <= 0 {
		o.MaxAge = defaultMaxAge
	}
	if o.Slew <= 0 || o.Slew > maxSlew {
		o.Slew = maxSlew
	}
	l := &Line{
		maxBytes: o.MaxBytes, maxAge: o.MaxAge, slew: o.Slew, log: o.Log,
		limit: o.MaxAge, needKey: true, wake: wake.New(),
	}
	l.target = l.clamp(o.Initial)
	return l
}

// clamp keeps a wish for D within 0 and MaxAge.
func (l *Line) clamp(d time.Duration) time.Duration { return max(0, min(d, l.maxAge)) }

// SetTarget sets what D moves to. While nothing has gone out yet, D starts
// there at once.
func (l *Line) SetTarget(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = l.clamp(d)
	l.wake.Set()
}

// Target returns what D moves to.
func (l *Line) Target() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

// Delay returns D in force: that of the frame that went out last, or the
// target while none has.
func (l *Line) Delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.out.started {
		return l.target
	}
	return l.out.d
}

// Stats returns the counters.
func (l *Line) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Frames, s.Bytes = len(l.queue)-l.head, l.bytes
	return s
}

// size is what a frame counts against MaxBytes.
func size(f *media.EncodedFrame) int {
	n := len(f.Data)
	for _, p := range f.Packets {
		n += len(p.Payload)
	}
	return n
}

// Push takes a frame. The first one, the first of an epoch or codec and the
// first after a drop must be key frames; others are dropped until one comes.
//
// When a bound is exceeded, the oldest frame goes and all behind it up to the
// next key frame. If the bound is MaxBytes, D is also held to what fits, or
// no frame would live to see its due time; it may grow again when the frames
// held take half of MaxBytes.
func (l *Line) Push(f media.EncodedFrame, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Pushed++
	if l.stats.Pushed > 1 && (f.Epoch != l.tail.Epoch || f.Codec != l.tail.Codec) {
		l.needKey = true
	}
	l.tail = media.EncodedFrame{Epoch: f.Epoch, Codec: f.Codec}
	if l.needKey && !f.KeyFrame {
		l.stats.Waiting++
		return
	}
	l.needKey = false
	l.overtake(f)
	wasEmpty := l.head == len(l.queue)
	l.queue = append(l.queue, f)
	l.bytes += size(&f)
	dropped := uint64(0)
	for l.bytes > l.maxBytes && l.head < len(l.queue) {
		n := l.dropGroup()
		l.stats.OverBytes += n
		dropped += n
		if l.head < len(l.queue) {
			l.limit = max(0, min(l.maxAge, f.Arrival.Sub(l.queue[l.head].Arrival)))
		}
	}
	if l.bytes < l.maxBytes/2 {
		l.limit = l.maxAge
	}
	for l.head < len(l.queue) && now.Sub(l.queue[l.head].Arrival) > l.maxAge+ageSlack {
		n := l.dropGroup()
		l.stats.OverAge += n
		dropped += n
	}
	if dropped > 0 {
		l.complain(now, "delay line full, frames dropped", nil)
	}
	if wasEmpty {
		l.wake.Set()
	}
}

// overtake drops what older epochs have due later than f, the first frame of its epoch.
func (l *Line) overtake(f media.EncodedFrame) {
	for n := len(l.queue) - 1; n >= l.head && l.queue[n].Epoch != f.Epoch && l.queue[n].Arrival.After(f.Arrival); n-- {
		l.bytes -= size(&l.queue[n])
		l.queue[n] = media.EncodedFrame{}
		l.queue = l.queue[:n]
		l.stats.Overtaken++
	}
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
}

// dropGroup drops the oldest frame and all up to the next key frame.
func (l *Line) dropGroup() uint64 {
	n := uint64(0)
	for l.head < len(l.queue) && (n == 0 || !l.queue[l.head].KeyFrame) {
		l.pop()
		n++
	}
	if l.head == len(l.queue) {
		l.needKey = true
	}
	return n
}

// pop removes the head of the queue.
func (l *Line) pop() media.EncodedFrame {
	f := l.queue[l.head]
	l.queue[l.head] = media.EncodedFrame{}
	l.head++
	l.bytes -= size(&f)
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	} else if l.head > 64 && l.head*2 > len(l.queue) {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	return f
}

// complain logs at most once a second what goes wrong.
func (l *Line) complain(now time.Time, msg string, err error) {
	if now.Sub(l.said) < time.Second {
		return
	}
	l.said = now
	l.log.Warn().Err(err).Uint64("over_bytes", l.stats.OverBytes).Uint64("over_age", l.stats.OverAge).
		Uint64("failed", l.stats.Failed).Int("bytes", l.bytes).Msg(msg)
}

// step moves the sliding D on by one frame and returns the state after it.
func (l *Line) step(s state, epoch uint32, pts time.Duration, arrival time.Time) state {
	target := min(l.target, l.limit)
	n := state{started: true, epoch: epoch, pts: pts, arrival: arrival, d: target}
	switch {
	case !s.started:
	case s.d > l.limit:
		n.d = l.limit // frames were dropped for MaxBytes: skip what they took
	case s.epoch != epoch:
		// A new source: the picture breaks anyway. Only frames already
		// promised a later moment hold D up.
		n.d = max(target, min(s.due.Sub(arrival), l.limit))
	default:
		most := time.Duration(l.slew * float64(max(0, arrival.Sub(s.arrival))))
		n.d = s.d + max(-most, min(most, target-s.d))
	}
	n.due = arrival.Add(n.d)
	if s.started && n.due.Before(s.due) {
		n.due = s.due
	}
	return n
}

// next returns the head frame if it is due. Otherwise wait is the time until
// it is, or negative when the line is empty.
//
// A frame that is taken late by less than one frame interval goes out as if
// nothing had happened; one that is later still goes out in order, counted as
// Late. Nothing is skipped for lateness: later frames need it, and its
// timestamp says when it should have been shown.
func (l *Line) next(now time.Time) (f OutFrame, ok bool, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == len(l.queue) {
		return OutFrame{}, false, -1
	}
	h := &l.queue[l.head]
	s := l.step(l.out, h.Epoch, h.PTS, h.Arrival)
	if wait = s.due.Sub(now); wait > 0 {
		return OutFrame{}, false, wait
	}
	interval := s.due.Sub(l.out.due)
	if l.out.started && -wait >= max(interval, time.Millisecond) {
		l.stats.Late++
	}
	l.out = s
	return OutFrame{EncodedFrame: l.pop(), Due: s.due}, true, 0
}

// Due predicts when the picture of a media time is shown: the newest frame of
// the epoch with a PTS of at most pts. For one that already went out it is
// when that happened. For one in the line, the sliding of D is simulated frame
// by frame, as it will be if the target stays. One that has not been pushed
// yet is taken to follow the newest frame of its epoch at its PTS distance, or
// to come at arrival if that is given. False means that nothing is known.
func (l *Line) Due(epoch uint32, pts time.Duration, now time.Time, arrival ...time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.shownAt(epoch, pts, false); ok {
		return r.at, true
	}
	s := l.out
	var before, after time.Time // due times on either side of pts
	for i := l.head; i < len(l.queue); i++ {
		f := &l.queue[i]
		s = l.step(s, f.Epoch, f.PTS, f.Arrival)
		switch {
		case f.Epoch != epoch:
		case f.PTS <= pts:
			before = s.due
		case after.IsZero():
			after = s.due
		}
		if f.Epoch == epoch && f.PTS == pts || !after.IsZero() {
			break
		}
	}
	var due time.Time
	ahead := s.started && s.epoch == epoch && s.pts < pts // newest known of the epoch, and older than pts
	switch {
	case ahead:
		at := s.arrival.Add(pts - s.pts)
		if len(arrival) > 0 {
			at = arrival[0]
		}
		due = l.step(s, epoch, pts, at).due
	case !before.IsZero():
		due = before
	default:
		if r, ok := l.shownAt(epoch, pts, true); ok {
			return r.at, true
		}
		due = after
		if due.IsZero() && len(arrival) > 0 {
			due = l.step(s, epoch, pts, arrival[0]).due
		}
	}
	if due.IsZero() {
		return time.Time{}, false
	}
	if due.Before(now) {
		due = now
	}
	return due, true
}

// wrote records when a frame really went out; the zero time says that it had
// nowhere to go.
func (l *Line) wrote(f OutFrame, at time.Time) {
	r := shown{epoch: f.Epoch, pts: f.PTS, at: at}
	if at.IsZero() {
		l.stats.Unsent++
		r.at, r.unsent = f.Due, true
	} else {
		l.stats.Written++
	}
	if len(l.ring) < shownMax {
		l.ring = append(l.ring, r)
	} else {
		l.ring[l.oldest] = r
		l.oldest = (l.oldest + 1) % shownMax
	}
}

// Shown returns when the copy really showed the picture of a media time: the
// newest frame with a PTS of at most pts. False means that it has not been
// shown yet, or so long ago that it is forgotten.
func (l *Line) Shown(epoch uint32, pts time.Duration) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.shownAt(epoch, pts, false); ok && !r.unsent {
		return r.at, true
	}
	return time.Time{}, false
}

// shownAt looks through the ring, newest first. The answer is final once a
// frame at or after pts, or one of another epoch, has gone out; latest takes
// what there is. If all that went out of the epoch is newer than pts, the
// oldest of it showed pts as well as anything did.
func (l *Line) shownAt(epoch uint32, pts time.Duration, latest bool) (shown, bool) {
	var after shown
	for i := range l.ring {
		r := l.ring[(l.oldest+len(l.ring)-1-i)%len(l.ring)]
		switch {
		case r.epoch != epoch:
			if !after.at.IsZero() {
				return after, true
			}
		case r.pts == pts:
			return r, true
		case r.pts < pts:
			return r, latest || i > 0
		default:
			after = r
		}
	}
	return after, !after.at.IsZero()
}

// Run writes each frame to out when it is due, until ctx ends, and returns
// why it ended. A write that fails does not end it. It starts no goroutine.
// One Run at a time; a second gets ErrRunning.
func (l *Line) Run(ctx context.Context, out Output) error {
	l.mu.Lock()
	if l.running {
		l.mu.Unlock()
		return ErrRunning
	}
	l.running = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.running = false
		l.mu.Unlock()
	}()

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f, ok, wait := l.next(time.Now())
		if ok {
			at, err := out.WriteFrame(f)
			l.note(f, at, err)
			continue
		}
		if wait < 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// note takes down what became of a frame.
func (l *Line) note(f OutFrame, at time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote(f, at)
	if err != nil {
		l.stats.Failed++
		l.complain(time.Now(), "delayed frame not written", err)
	}
}
