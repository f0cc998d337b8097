package codec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec/wire"
)

// PictureBytes returns the length of a raw picture of w x h pixels, as Picture.Pix has it.
func PictureBytes(w, h int) int { return wire.I420.Bytes(w, h) }

// Picture is a raw picture to encode.
type Picture struct {
	// Pix is the planes Y, U and V without padding, in limited range by BT.601; U and V have half the edges. It is not kept.
	Pix []byte
	// The times are copied to the encoded frame.
	PTS     time.Duration
	NTP     time.Time
	Arrival time.Time
	Epoch   uint32
}

// EncoderOptions of an Encoder.
type EncoderOptions struct {
	// Codec is H264 (constrained baseline, Annex B) or VP8.
	Codec media.Codec
	// Width and Height of the pictures, in pixels, even and at least 16.
	Width, Height int
	// FPS expected, 1/s.
	FPS int
	// BitRate in bit/s, also the cap.
	BitRate int
	// OnFrame receives each encoded picture, in order. It is called from Run's
	// goroutine and must not block for long.
	OnFrame func(media.EncodedFrame)

	// Path of the codec program; "" searches for it as Find does.
	Path string
	// Avoid lists the libav encoders to skip.
	Avoid []string
	Log   zerolog.Logger
}

// Encoder encodes raw pictures, in the order of the calls. All methods are safe for
// concurrent use.
type Encoder struct {
	opts  EncoderOptions
	setup wire.Setup
	proc  *process
	turn  chan struct{} // held by Encode

	mu      sync.Mutex
	running bool
	greeted bool
	lastID  uint64
	job     *job // offered or being written
	since   time.Time
	out     []unitTimes // sent, not yet acknowledged
	head    []byte

	reported time.Time // latest problem; used by problem only
}

// job is a picture for the process.
type job struct {
	msg   wire.Raw
	frame media.EncodedFrame
	taken bool
	done  chan error
}

// NewEncoder checks the options and finds the codec program. It starts
// nothing.
func NewEncoder(o EncoderOptions) (*Encoder, error) {
	setup, err := encodable(o.Codec, o.FPS, o.BitRate)
	if err != nil {
		return nil, fmt.Errorf("make an encoder: %w", err)
	}
	if o.Width < 16 || o.Height < 16 || o.Width%2 != 0 || o.Height%2 != 0 || o.Width > wire.MaxSide ||
		o.Height > wire.MaxSide || o.Width*o.Height > wire.MaxPicture {
		return nil, fmt.Errorf("make an encoder: size %d x %d: must have even edges of at least 16 pixels, and at most %d pixels",
			o.Width, o.Height, wire.MaxPicture)
	}
	if o.OnFrame == nil {
		return nil, errors.New("make an encoder: OnFrame is not set")
	}
	e := &Encoder{opts: o, setup: setup, turn: make(chan struct{}, 1)}
	if e.proc, err = newProcess(o.Path, o.Avoid, o.Log, e); err != nil {
		return nil, fmt.Errorf("make an encoder: %w", err)
	}
	return e, nil
}

// Run keeps the codec process running until ctx ends, and then returns nil. A second
// concurrent call fails.
func (e *Encoder) Run(ctx context.Context) error {
	return e.proc.runOnce(ctx, &e.mu, &e.running, func() { e.end(ErrNotRunning) })
}

// Encode sends a picture to the encoder and returns when p.Pix may be reused. It waits
// while the encoder is busy. After an error that wraps ErrRestarted this picture is
// lost and the next one will be a key frame.
func (e *Encoder) Encode(ctx context.Context, p Picture, forceKey bool) error {
	if err := e.encode(ctx, p, forceKey); err != nil {
		return fmt.Errorf("encode picture at %v: %w", p.PTS, err)
	}
	return nil
}

func (e *Encoder) encode(ctx context.Context, p Picture, forceKey bool) error {
	if want := PictureBytes(e.opts.Width, e.opts.Height); len(p.Pix) != want {
		return fmt.Errorf("expected %d bytes for %d x %d, got %d", want, e.opts.Width, e.opts.Height, len(p.Pix))
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j := &job{done: make(chan error, 1)}
	j.msg = wire.Raw{PTS: p.PTS.Microseconds(), Width: e.opts.Width, Height: e.opts.Height, Data: p.Pix}
	if forceKey {
		j.msg.Flags = wire.FlagForceKey
	}
	j.frame = media.EncodedFrame{PTS: p.PTS, NTP: p.NTP, Arrival: p.Arrival, Received: p.Arrival, Epoch: p.Epoch}

	e.mu.Lock()
	if !e.running {
		e.mu.Unlock()
		return ErrNotRunning
	}
	e.lastID++
	j.msg.ID = e.lastID
	e.job = j
	e.mu.Unlock()
	e.proc.wake.Set()

	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	}
	e.mu.Lock()
	if e.job == j && !j.taken {
		e.job = nil
		e.mu.Unlock()
		return context.Cause(ctx)
	}
	e.mu.Unlock()
	return <-j.done // the write ends at the latest with the process
}

func (e *Encoder) next() [][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.job
	if j != nil && j.taken {
		j.done <- nil
		e.job, j = nil, nil
	}
	if j == nil {
		return nil
	}
	j.taken = true
	b := e.head[:0]
	if !e.greeted {
		b = e.setup.Append(b)
		e.greeted = true
	}
	e.head = j.msg.AppendHead(b)
	if len(e.out) == 0 {
		e.since = time.Now()
	}
	e.out = append(e.out, unitTimes{j.msg.ID, j.frame})
	return [][]byte{e.head, j.msg.Data}
}

func (e *Encoder) picture(wire.Picture) error { return errUnexpected }

func (e *Encoder) acked(a wire.Ack) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(e.out) && e.out[n].id <= a.Done {
		n++
	}
	e.out = slices.Delete(e.out, 0, n)
	if n > 0 {
		e.since = time.Now()
	}
	return nil
}

func (e *Encoder) problem(p wire.Problem) error {
	if now := time.Now(); now.Sub(e.reported) >= time.Second {
		e.reported = now
		e.proc.log.Warn().Str("problem", p.Text).Msg("picture not encoded")
	}
	return nil
}

func (e *Encoder) encoded(u wire.Encoded) error {
	e.mu.Lock()
	i := slices.IndexFunc(e.out, func(t unitTimes) bool { return t.id == u.ID })
	if i < 0 {
		e.mu.Unlock()
		return fmt.Errorf("%w: answer for picture %d, which is not pending", wire.ErrMalformed, u.ID)
	}
	f := e.out[i].frame
	e.mu.Unlock()
	f.Codec, f.KeyFrame, f.Width, f.Height = fromWire(u.Codec), u.Key, u.Width, u.Height
	f.SpatialLayers, f.Data = 1, u.Data
	e.opts.OnFrame(f)
	return nil
}

func (e *Encoder) up(bool) {}

func (e *Encoder) lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.greeted = false
	e.out = e.out[:0]
	// A picture that was not taken waits for the next process.
	if e.job != nil && e.job.taken {
		e.end(ErrRestarted)
	}
}

// end drops the present job.
func (e *Encoder) end(why error) {
	if e.job != nil {
		e.job.done <- why
		e.job = nil
	}
}

func (e *Encoder) waitingSince() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.out) == 0 {
		return time.Time{}
	}
	return e.since
}
