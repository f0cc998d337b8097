package codec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec/wire"
)

const (
	// maxUnits and maxBytes bound what waits for the process and what it has
	// not finished.
	maxUnits = 60
	maxBytes = wire.MaxUnit
	// maxHeld, maxHeldBytes and maxHeldTime, of media, bound what is held back
	// while no picture is wanted: somewhat more than the second from one key
	// frame to the next while people watch.
	maxHeld      = 45
	maxHeldBytes = 1 << 20
	maxHeldTime  = 2 * time.Second
	// maxAsked bounds the calls of Latest under way.
	maxAsked = 32
	// remembered is how many access units' times are kept; more than can be
	// under way and held back by a decoder.
	remembered = 256
	// keepBuffer is the largest write buffer kept for the next turn.
	keepBuffer = 1 << 20
)

// Options of a Decoder. The zero value decodes only.
type Options struct {
	// Path of the codec program; "" looks for it as Find does.
	Path string
	// LongSide is the longer edge of pictures handed out, in pixels; smaller
	// ones stay as they are, 0 keeps all at the source's size.
	LongSide int
	// OnPicture gets the picture of each sampled access unit, scaled. It is called by
	// Run's goroutine and must not block for long.
	OnPicture func(media.VideoFrame)
	// OnRestart is called when a new process takes over from a dead one, so
	// that the source can be asked for a key frame. It must not block.
	OnRestart func()
	// OnUndecodable is called, at most once a second, when access units could
	// not be decoded, so that the source can be asked for a key frame. It must not block.
	OnUndecodable func(error)

	// Transcode sets what the pictures are encoded to while SetTranscode is on.
	Transcode TranscodeOptions

	// Avoid names libav decoders and encoders that are not to be used.
	Avoid []string
	Log   zerolog.Logger
}

// Stats counts since the decoder was made.
type Stats struct {
	Units       uint64 // handed to Decode
	Dropped     uint64 // of these not decoded: behind, no key frame, invalid
	Skipped     uint64 // of these not decoded: nothing that was wanted needed them
	Bursts      uint64 // in which the others went to the process
	Pictures    uint64 // handed out
	Undecodable uint64 // reported by the process; it reports only some of a row
	Restarts    uint64 // of the process
}

// Decoder turns the access units of one room into pictures. All methods are
// safe for concurrent use.
type Decoder struct {
	opts  Options
	setup wire.Setup
	proc  *process

	longSide  atomic.Int32
	transcode atomic.Bool
	forceKey  atomic.Bool

	mu      sync.Mutex
	running bool
	need    error // why a key frame is needed, nil when it is not
	codec   wire.Codec
	epoch   uint32
	lastID  uint64
	queue   []wire.Unit // not yet handed over
	out     []sent      // handed over, not yet done
	bytes   int         // of both
	since   time.Time   // when out was last seen to get shorter
	done    uint64      // the last unit that the process has worked on
	owed    uint64      // the newest sampled unit handed over, 0 when a picture came since
	may     mayCome
	times   [remembered]unitTimes
	newest  unitTimes // of the newest decoded picture
	asked   map[uint32]*question
	toAsk   []wire.Latest
	lastSeq uint32
	greeted bool // the process knows the setup
	buf     []byte
	stats   Stats

	complained time.Time // by handle only
}

// sent is an access unit that was handed over.
type sent struct {
	id    uint64
	bytes int
}

// mayCome is how many answers the process may still send. What never gets one, such as a sample
// that could not be decoded, stays in the count, which is bounded by maxUnits.
type mayCome struct{ samples, answers, encoded int }

// unitTimes is what is remembered of an access unit.
type unitTimes struct {
	id    uint64
	frame media.EncodedFrame // without data and packets
}

// question is a call of Latest that waits.
type question struct {
	at     time.Time
	answer chan answer
}

type answer struct {
	frame media.VideoFrame
	err   error
}

// New checks the options and finds the codec program. It starts nothing.
func New(o Options) (*Decoder, error) {
	setup, err := o.Transcode.check()
	if err != nil {
		return nil, fmt.Errorf("make a decoder: %w", err)
	}
	d := &Decoder{opts: o, setup: setup, need: ErrNeedKeyFrame, asked: map[uint32]*question{}}
	if err := d.SetLongSide(o.LongSide); err != nil {
		return nil, fmt.Errorf("make a decoder: %w", err)
	}
	d.proc, err = newProcess(o.Path, o.Avoid, o.Log, d)
	if err != nil {
		return nil, fmt.Errorf("make a decoder: %w", err)
	}
	return d, nil
}

// Run keeps the codec process running until ctx ends; then it returns nil. It
// may be called once at a time.
func (d *Decoder) Run(ctx context.Context) error {
	d.mu.Lock()
	if d.running {
		d.mu.Unlock()
		return errors.New("run the decoder: it is running already")
	}
	d.running = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running = false
		d.forget(ErrNotRunning)
		d.queue, d.bytes, d.need = nil, 0, ErrNeedKeyFrame
	}()
	return d.proc.run(ctx)
}

// SetLongSide changes the size of pictures from the next one on; 0 is the
// source's own size.
func (d *Decoder) SetLongSide(pixels int) error {
	if pixels < 0 || pixels > wire.MaxSide {
		return fmt.Errorf("set the long side: expected 0 to %d pixels, got %d", wire.MaxSide, pixels)
	}
	d.longSide.Store(int32(pixels)) //nolint:gosec // checked above
	return nil
}

// SetTranscode turns encoding of all pictures on or off. The first one is a
// key frame.
func (d *Decoder) SetTranscode(on bool) {
	if d.opts.Transcode.OnFrame != nil && d.transcode.Swap(on) != on && on {
		d.ForceKeyFrame()
	}
}

// ForceKeyFrame makes the next encoded picture a key frame.
func (d *Decoder) ForceKeyFrame() { d.forceKey.Store(true) }

// Stats returns the counts so far.
func (d *Decoder) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Decode queues one access unit, which must stay unchanged; with sample set
// its picture goes to OnPicture. It never waits. Access units are held back until
// one of them is sampled or encoded, or Latest is called; those that no such
// picture needs are not decoded at all. Errors, apart from those of an impossible
// access unit, wrap ErrBehind, ErrNeedKeyFrame or ErrNotRunning; the access unit
// was dropped and a key frame should be asked for.
func (d *Decoder) Decode(f media.EncodedFrame, sample bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Units++
	wake, err := d.enqueue(f, sample)
	if err != nil {
		d.stats.Dropped++
		return fmt.Errorf("decode %v access unit at %v: %w", f.Codec, f.PTS, err)
	}
	if wake {
		d.proc.poke()
	}
	return nil
}

func (d *Decoder) enqueue(f media.EncodedFrame, sample bool) (wake bool, err error) {
	c, err := toWire(f.Codec)
	if err != nil {
		return false, err
	}
	if len(f.Data) == 0 || len(f.Data) > wire.MaxUnit {
		return false, fmt.Errorf("expected 1 to %d bytes, got %d", wire.MaxUnit, len(f.Data))
	}
	if !d.running {
		return false, ErrNotRunning
	}
	key := f.KeyFrame || f.Codec == MJPEG
	if !key {
		if d.need != nil {
			return false, d.need
		}
		if c != d.codec || f.Epoch != d.epoch {
			return false, ErrNeedKeyFrame
		}
	}
	transcode := d.transcode.Load()
	if f.Discardable && !key && !sample && !transcode {
		d.stats.Skipped++
		return false, nil
	}
	if key && c != wire.H265 { // in H265 pictures may refer across one (RASL)
		d.skipHeld()
	}
	waiting := len(d.queue) + len(d.out)
	if waiting >= maxUnits || (waiting > 0 && d.bytes+len(f.Data) > maxBytes) {
		d.dropQueue(len(d.queue))
		d.need = ErrBehind
		return false, ErrBehind
	}
	d.need, d.codec, d.epoch = nil, c, f.Epoch

	d.lastID++
	u := wire.Unit{
		ID: d.lastID, Epoch: f.Epoch, Codec: c, PTS: f.PTS.Microseconds(), Data: f.Data,
		LongSide: uint16(d.longSide.Load()), //nolint:gosec // checked by SetLongSide
	}
	if sample {
		u.Flags |= wire.FlagSample
	}
	if transcode {
		u.Flags |= wire.FlagEncode
		if d.forceKey.Swap(false) {
			u.Flags |= wire.FlagForceKey
		}
	}
	f.Data, f.Packets = nil, nil
	d.times[u.ID%remembered] = unitTimes{id: u.ID, frame: f}
	d.queue = append(d.queue, u)
	d.bytes += len(u.Data)
	return d.due(), nil
}

// due reports whether the queue is to be handed over now.
func (d *Decoder) due() bool {
	first, last := d.queue[0], d.queue[len(d.queue)-1]
	switch {
	case last.Flags != 0:
		return true
	case d.owed != 0 && d.done >= d.owed:
		return true // the decoder gives pictures out late; what follows brings the sampled one
	case len(d.queue) >= maxHeld || last.PTS-first.PTS >= maxHeldTime.Microseconds():
		return true
	}
	held := 0
	for _, u := range d.queue {
		held += len(u.Data)
	}
	return held >= maxHeldBytes
}

// skipHeld drops the units after the last one whose picture is wanted: a key
// frame comes, and nothing after it needs them.
func (d *Decoder) skipHeld() {
	from := len(d.queue)
	for from > 0 && d.queue[from-1].Flags == 0 {
		from--
	}
	d.stats.Skipped += uint64(len(d.queue) - from) //nolint:gosec // a length
	d.cutQueue(from, len(d.queue))
}

// dropQueue drops the first n units that were not handed over yet.
func (d *Decoder) dropQueue(n int) {
	d.stats.Dropped += uint64(n) //nolint:gosec // a length
	d.cutQueue(0, n)
}

func (d *Decoder) cutQueue(from, to int) {
	for _, u := range d.queue[from:to] {
		d.bytes -= len(u.Data)
	}
	d.queue = slices.Delete(d.queue, from, to)
}

// Latest returns the picture of the newest access unit handed to Decode that
// could be decoded and was not skipped, scaled. The error wraps ErrNoPicture when there is none yet.
func (d *Decoder) Latest(ctx context.Context) (media.VideoFrame, error) {
	return d.LatestSized(ctx, int(d.longSide.Load()))
}

// LatestSized is Latest with another long side, in pixels; 0 is the source's own size.
func (d *Decoder) LatestSized(ctx context.Context, longSide int) (media.VideoFrame, error) {
	frame, err := d.latest(ctx, longSide)
	if err != nil {
		return media.VideoFrame{}, fmt.Errorf("get the latest picture: %w", err)
	}
	return frame, nil
}

func (d *Decoder) latest(ctx context.Context, longSide int) (media.VideoFrame, error) {
	if longSide < 0 || longSide > wire.MaxSide {
		return media.VideoFrame{}, fmt.Errorf("expected a long side of 0 to %d pixels, got %d", wire.MaxSide, longSide)
	}
	q := &question{at: time.Now(), answer: make(chan answer, 1)}
	d.mu.Lock()
	if !d.running {
		d.mu.Unlock()
		return media.VideoFrame{}, ErrNotRunning
	}
	if len(d.asked) >= maxAsked {
		d.mu.Unlock()
		return media.VideoFrame{}, fmt.Errorf("expected at most %d callers at once", maxAsked)
	}
	d.lastSeq = max(1, d.lastSeq+1) // 0 is for samples
	seq := d.lastSeq
	d.asked[seq] = q
	d.toAsk = append(d.toAsk, wire.Latest{Seq: seq, LongSide: uint16(longSide)}) //nolint:gosec // checked above
	d.mu.Unlock()
	d.proc.poke()

	select {
	case a := <-q.answer:
		return a.frame, a.err
	case <-ctx.Done():
		d.mu.Lock()
		delete(d.asked, seq)
		d.mu.Unlock()
		return media.VideoFrame{}, context.Cause(ctx)
	}
}
