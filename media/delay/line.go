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
	shownMax        = 16384       // length of the history of shown frames: nine minutes at 30 fps
	ageSlack        = time.Second // how much longer than MaxAge a frame may be held
)

// ErrRunning is returned by Run while another Run is running.
var ErrRunning = errors.New("the delay line is running already")

// Options configure a Line.
type Options struct {
	// MaxBytes bounds the frames held, bitstream and packets together; 0
	// means 64 MiB.
	MaxBytes int
	// MaxAge bounds D, and plus one second the time frames are held; 0 means 30 s.
	MaxAge time.Duration
	// Slew bounds the change of D, in seconds per second of media time; 0 or
	// more than 0.1 means 0.1.
	Slew float64
	// Initial is D before the first SetTarget.
	Initial time.Duration
	// Log receives at most one line a second about frames that were dropped or
	// could not be written.
	Log zerolog.Logger
}

// counters are the running totals of a Line.
type counters struct {
	Pushed    uint64 // frames given to Push
	Written   uint64 // frames written
	Unsent    uint64 // due frames without a recipient
	Failed    uint64 // frames whose write failed
	Waiting   uint64 // dropped for lack of a key frame
	OverBytes uint64 // dropped because MaxBytes was exceeded
	OverAge   uint64 // dropped because MaxAge was exceeded
	Overtaken uint64 // dropped because a new epoch's first picture is due earlier
	Late      uint64 // written late by one frame interval or more
}

// Output receives the frames that are due.
type Output interface {
	// WriteFrame writes a frame and returns when it was really written; the zero
	// time if there is no recipient. An error is counted and logged, and the next
	// frame is tried.
	WriteFrame(f OutFrame) (time.Time, error)
}

// state of D after the latest written frame, or in a prediction after any frame.
type state struct {
	started bool
	epoch   uint32
	pts     time.Duration
	arrival time.Time
	due     time.Time
	d       time.Duration
}

// shown is a frame that left the line.
type shown struct {
	epoch  uint32
	pts    time.Duration
	at     time.Time // when it was due, if unsent
	unsent bool
}

// Line holds access units until arrival + D. All methods are safe for concurrent use.
type Line struct {
	maxBytes int
	maxAge   time.Duration
	slew     float64
	log      zerolog.Logger

	mu      sync.Mutex
	running bool
	wake    wake.Signal

	target  time.Duration
	limit   time.Duration // of D by MaxBytes
	queue   []media.EncodedFrame
	head    int // first live element of queue
	bytes   int
	needKey bool
	tail    media.EncodedFrame // epoch and codec of the newest frame given to Push
	out     state
	stats   counters
	logged  time.Time

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

// clamp limits D to 0 to MaxAge.
func (l *Line) clamp(d time.Duration) time.Duration { return max(0, min(d, l.maxAge)) }

// SetTarget sets the target of D. Before the first written frame, D is the target.
func (l *Line) SetTarget(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = l.clamp(d)
	l.wake.Set()
}

// Target returns the target of D.
func (l *Line) Target() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

// Delay returns the present D: the D of the latest written frame, or the target
// before the first one.
func (l *Line) Delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.out.started {
		return l.target
	}
	return l.out.d
}

// size of a frame for MaxBytes.
func size(f *media.EncodedFrame) int {
	n := len(f.Data)
	for _, p := range f.Packets {
		n += len(p.Payload)
	}
	return n
}

// Push adds a frame. The first one, the first of an epoch or codec and the first
// after a drop must be key frames; others are dropped until one comes.
//
// When a bound is exceeded, the oldest frame and all after it up to the next key
// frame are dropped. If the bound is MaxBytes, D is also limited to the time that
// fits, as otherwise no frame would reach its due time; the limit ends when the
// frames held take less than half of MaxBytes.
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
		l.warn(now, "delay line full, frames dropped", nil)
	}
	if wasEmpty {
		l.wake.Set()
	}
}

// overtake drops the frames of older epochs that are due later than f, the first frame of its epoch.
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

// warn logs at most once a second.
func (l *Line) warn(now time.Time, msg string, err error) {
	if now.Sub(l.logged) < time.Second {
		return
	}
	l.logged = now
	l.log.Warn().Err(err).Uint64("over_bytes", l.stats.OverBytes).Uint64("over_age", l.stats.OverAge).
		Uint64("failed", l.stats.Failed).Int("bytes", l.bytes).Msg(msg)
}

// step returns the state after one more frame.
func (l *Line) step(s state, epoch uint32, pts time.Duration, arrival time.Time) state {
	target := min(l.target, l.limit)
	n := state{started: true, epoch: epoch, pts: pts, arrival: arrival, d: target}
	switch {
	case !s.started:
	case s.d > l.limit:
		n.d = l.limit // frames were dropped for MaxBytes: skip their time
	case s.epoch != epoch:
		// A new source interrupts the picture, so D may jump. It is only kept
		// above the target where earlier frames are due later.
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
// A frame that is late by one frame interval or more is counted as Late. None is
// skipped for lateness: later frames depend on it, and its timestamp comes from
// its due time.
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

// Due predicts when the picture of a media time is shown: the newest frame of the
// epoch with a PTS of at most pts. For a written frame it is the time of the write.
// For a frame in the line, D is simulated frame by frame with the present target. A
// frame that was not pushed yet is assumed to follow the newest one of its epoch
// at its PTS distance. False means unknown.
func (l *Line) Due(epoch uint32, pts time.Duration, now time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.shownAt(epoch, pts, false); ok {
		return r.at, true
	}
	s := l.out
	var before, after time.Time // due times before and after pts
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
	ahead := s.started && s.epoch == epoch && s.pts < pts // pts is after the newest frame of the epoch
	switch {
	case ahead:
		due = l.step(s, epoch, pts, s.arrival.Add(pts-s.pts)).due
	case !before.IsZero():
		due = before
	default:
		if r, ok := l.shownAt(epoch, pts, true); ok {
			return r.at, true
		}
		due = after
	}
	if due.IsZero() {
		return time.Time{}, false
	}
	if due.Before(now) {
		due = now
	}
	return due, true
}

// wrote records when a frame was really written; the zero time means no recipient.
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

// Shown returns when the picture of a media time was really written: the newest
// frame with a PTS of at most pts. False means not yet, or too long ago.
func (l *Line) Shown(epoch uint32, pts time.Duration) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.shownAt(epoch, pts, false); ok && !r.unsent {
		return r.at, true
	}
	return time.Time{}, false
}

// shownAt searches the ring, newest first. The result is final once a frame at or
// after pts, or one of another epoch, was written; latest accepts an earlier one. If
// all written frames of the epoch are newer than pts, the oldest of them counts.
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

// Run writes each frame to out when it is due, until ctx ends, and returns its
// cause. A failed write does not end it. A second Run at the same time returns
// ErrRunning.
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
			l.finish(f, at, err)
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

// finish records the outcome of a write.
func (l *Line) finish(f OutFrame, at time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote(f, at)
	if err != nil {
		l.stats.Failed++
		l.warn(time.Now(), "delayed frame not written", err)
	}
}
