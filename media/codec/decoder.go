package codec

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/polygon"
	"touchline/media"
	"touchline/media/codec/wire"
)

const (
	// maxUnits and maxBytes bound the units that are queued or not yet acknowledged.
	maxUnits = 60
	maxBytes = wire.MaxUnit
	// maxHeld, maxHeldBytes and maxHeldTime, of media, bound the units held while
	// no picture is needed: somewhat more than the second between key frames while
	// the room has viewers.
	maxHeld      = 45
	maxHeldBytes = 1 << 20
	maxHeldTime  = 2 * time.Second
	// maxAsked bounds concurrent calls of Latest.
	maxAsked = 32
	// remembered is the number of access units whose times are kept; more than can
	// be queued, unacknowledged and delayed by a decoder.
	remembered = 256
	// troubleTime is the time without a picture that is more than a lost packet.
	troubleTime = 2 * time.Second
	// keepBuffer is the largest write buffer kept for the next write.
	keepBuffer = 1 << 20
)

// Options of a Decoder. The zero value decodes only.
type Options struct {
	// Path of the codec program; "" searches for it as Find does.
	Path string
	// LongSide bounds the longer edge of pictures, in pixels; 0 keeps the source's
	// size.
	LongSide int
	// OnPicture receives the scaled picture of each sampled access unit. It is called
	// from Run's goroutine and must not block for long.
	OnPicture func(media.VideoFrame)
	// OnRestart is called after a restart of the process, to ask the source for a
	// key frame. It must not block.
	OnRestart func()
	// OnUndecodable is called, at most once a second, when access units could not be
	// decoded, to ask the source for a key frame. It must not block.
	OnUndecodable func(error)

	// Transcode configures the encoder for SetTranscode.
	Transcode TranscodeOptions

	// Memory is shared by all decoders of the program; nil for no bound.
	Memory *Memory
	// Avoid lists the libav decoders and encoders to skip.
	Avoid []string
	Log   zerolog.Logger
}

// Stats are the running totals of a Decoder.
type Stats struct {
	Units       uint64 // passed to Decode
	Dropped     uint64 // of these not decoded: behind, no key frame, invalid
	Skipped     uint64 // of these not decoded: no picture needed them
	Bursts      uint64 // writes of the others to the process
	Pictures    uint64 // decoded
	Undecodable uint64 // reported by the process; it reports only some of a series
	Restarts    uint64 // of the process
}

// Decoder decodes the access units of one track. All methods are safe for concurrent
// use.
type Decoder struct {
	opts  Options
	setup wire.Setup
	proc  *process

	longSide  atomic.Int32
	transcode atomic.Bool
	forceKey  atomic.Bool

	mu      sync.Mutex
	running bool
	need    error // why a key frame is needed, nil if it is not
	codec   wire.Codec
	epoch   uint32
	lastID  uint64
	queue   []wire.Unit // not yet sent
	out     []sent      // not yet acknowledged
	bytes   int         // of both
	held    int64       // of Options.Memory
	since   time.Time   // of the latest acknowledgement
	done    uint64      // the latest unit processed
	owed    uint64      // the newest sampled unit sent, 0 after its picture
	may     mayCome
	times   [remembered]unitTimes
	newest  unitTimes // of the newest decoded picture
	asked   map[uint32]*question
	toAsk   []wire.Latest
	lastSeq uint32
	greeted bool // the setup was sent
	masks   wire.Masks
	masked  bool // the masks were sent
	buf     []byte
	stats   Stats

	trouble  string    // why no picture is decoded, "" if some is
	troubled time.Time // its begin

	// passing is held while a picture is passed on, so that none with earlier masks is after SetMasks.
	passing sync.Mutex

	reported time.Time // latest problem; used by problem only
}

// sent is an access unit that was sent.
type sent struct {
	id    uint64
	bytes int
}

// mayCome counts the answers that the process may still send. Units without an answer, such as a sample that could not
// be decoded, stay in the counts, which are bounded by maxUnits.
type mayCome struct{ samples, answers, encoded int }

// unitTimes keeps the times of an access unit.
type unitTimes struct {
	id    uint64
	frame media.EncodedFrame // without data and packets
}

// question is a pending call of Latest.
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

// Run keeps the codec process running until ctx ends, and then returns nil. A second
// concurrent call fails.
func (d *Decoder) Run(ctx context.Context) error {
	return d.proc.runOnce(ctx, &d.mu, &d.running, func() {
		d.forget(ErrNotRunning)
		d.queue, d.bytes, d.need = nil, 0, ErrNeedKeyFrame
		d.opts.Memory.free(d.held)
		d.held = 0
	})
}

// SetLongSide changes the size of pictures from the next one on; 0 is the source's
// size.
func (d *Decoder) SetLongSide(pixels int) error {
	if pixels < 0 || pixels > wire.MaxSide {
		return fmt.Errorf("long side %d: must be between 0 and %d pixels", pixels, wire.MaxSide)
	}
	d.longSide.Store(int32(pixels))
	return nil
}

// SetMasks covers parts of all pictures, before they are scaled or encoded. Once it has returned, no picture without these masks is
// passed on; access units that were encoded earlier may follow.
func (d *Decoder) SetMasks(m polygon.Masks) {
	d.passing.Lock()
	defer d.passing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.Version != d.masks.Version {
		d.masks, d.masked = wire.Masks{Masks: m}, false
	}
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

// Stats returns the totals so far.
func (d *Decoder) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Decode queues one access unit, which must stay unchanged; with sample set its
// picture goes to OnPicture. It does not block. Access units are held until one of
// them is sampled or encoded, or Latest is called; units that no such picture needs
// are not decoded. Errors, except for an invalid access unit, wrap ErrBehind,
// ErrNeedKeyFrame or ErrNotRunning; the access unit was dropped, and the source
// should be asked for a key frame.
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
		d.proc.wake.Set()
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
	if err := d.reserve(f); err != nil {
		return false, err
	}
	transcode := d.transcode.Load()
	if f.Discardable && !key && !sample && !transcode {
		d.stats.Skipped++
		return false, nil
	}
	if key && c != wire.H265 { // H265 pictures may refer to earlier ones (RASL)
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
		ID: d.lastID, Epoch: f.Epoch, Codec: c, Turn: f.Turn & 3, PTS: f.PTS.Microseconds(), Data: f.Data,
		LongSide: uint16(d.longSide.Load()),
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

// reserve takes the memory that an access unit needs.
func (d *Decoder) reserve(f media.EncodedFrame) (err error) {
	d.held, err = d.opts.Memory.reserve(d.held, f.Width, f.Height)
	if err == nil {
		return nil
	}
	d.need = ErrNeedKeyFrame
	if d.trouble != err.Error() {
		d.proc.log.Warn().Err(err).Msg("picture not decoded")
	}
	d.fails(err.Error())
	return err
}

// fails records why a picture is not decoded. The lock is held.
func (d *Decoder) fails(why string) {
	if d.trouble == "" {
		d.troubled = time.Now()
	}
	d.trouble = why
}

// Trouble returns why no picture has been decoded for troubleTime; "" if one was, or none came.
func (d *Decoder) Trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trouble == "" || time.Since(d.troubled) < troubleTime {
		return ""
	}
	return d.trouble
}

// due reports whether to send the queue now.
func (d *Decoder) due() bool {
	first, last := d.queue[0], d.queue[len(d.queue)-1]
	switch {
	case last.Flags != 0:
		return true
	case d.owed != 0 && d.done >= d.owed:
		return true // the decoder delays pictures; later units bring the sampled one
	case len(d.queue) >= maxHeld || last.PTS-first.PTS >= maxHeldTime.Microseconds():
		return true
	}
	held := 0
	for _, u := range d.queue {
		held += len(u.Data)
	}
	return held >= maxHeldBytes
}

// skipHeld drops the units after the last one whose picture is needed, before a key
// frame.
func (d *Decoder) skipHeld() {
	from := len(d.queue)
	for from > 0 && d.queue[from-1].Flags == 0 {
		from--
	}
	d.stats.Skipped += uint64(len(d.queue) - from)
	d.cutQueue(from, len(d.queue))
}

// dropQueue drops the first n units of the queue.
func (d *Decoder) dropQueue(n int) {
	d.stats.Dropped += uint64(n)
	d.cutQueue(0, n)
}

func (d *Decoder) cutQueue(from, to int) {
	for _, u := range d.queue[from:to] {
		d.bytes -= len(u.Data)
	}
	d.queue = slices.Delete(d.queue, from, to)
}

// Latest returns the scaled picture of the newest access unit that was decoded. The
// error wraps ErrNoPicture before the first one.
func (d *Decoder) Latest(ctx context.Context) (media.VideoFrame, error) {
	frame, err := d.latest(ctx)
	if err != nil {
		return media.VideoFrame{}, fmt.Errorf("get the latest picture: %w", err)
	}
	return frame, nil
}

func (d *Decoder) latest(ctx context.Context) (media.VideoFrame, error) {
	q := &question{at: time.Now(), answer: make(chan answer, 1)}
	d.mu.Lock()
	if !d.running {
		d.mu.Unlock()
		return media.VideoFrame{}, ErrNotRunning
	}
	if len(d.asked) >= maxAsked {
		d.mu.Unlock()
		return media.VideoFrame{}, fmt.Errorf("more than %d concurrent calls", maxAsked)
	}
	d.lastSeq = max(1, d.lastSeq+1) // 0 is for samples
	seq := d.lastSeq
	d.asked[seq] = q
	d.toAsk = append(d.toAsk, wire.Latest{Seq: seq, LongSide: uint16(d.longSide.Load())})
	d.mu.Unlock()
	d.proc.wake.Set()

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
