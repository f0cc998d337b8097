// Package transcode converts the stream of a source to one that browsers play: access
// units pass unchanged where possible, and are transcoded otherwise.
//
// Transcoded are JPEG pictures, H265 (unless a setting lets it pass), H264 with B
// frames, key frames that are no IDR pictures, more than 8 bits or another format
// than 4:2:0, and spatial layers. The package owns the transcoder, which starts when
// it is first needed. It opens no source.
package transcode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec"
)

// Bounds of the access units held to find out whether a source sends B frames.
const (
	maxHeld      = 64
	maxHeldBytes = 16 << 20
)

// Mode selects when pictures are transcoded.
type Mode string

// The modes.
const (
	// Auto transcodes streams that common browsers cannot play, and sources whose key frames are too far apart.
	Auto Mode = "auto"
	// Off transcodes only JPEG pictures and spatial layers, which rooms cannot carry.
	Off Mode = "off"
	// Always transcodes everything.
	Always Mode = "always"
)

// Options of a Converter. Out is required.
type Options struct {
	// Out receives the converted stream, from one goroutine at a time. Epochs count up.
	Out func(media.EncodedFrame)
	// RequestKeyFrame asks the source for a key frame; may be nil.
	RequestKeyFrame func()
	// OnReason is called with the reason why pictures are transcoded, "" when they pass. May be nil. It must not block.
	OnReason func(reason string)
	// Mode selects when to transcode; "" is Auto.
	Mode Mode
	// H265 lets H265 pass, for viewers that can play it.
	H265 bool
	// Carries reports whether the room takes pictures in a codec; nil for all. Others are transcoded in every mode.
	Carries func(media.Codec) bool
	// To sets the codec to transcode to; its OnFrame is not used.
	To codec.TranscodeOptions
	// Path of the codec program; "" searches for it.
	Path string
	// Memory is shared by all decoders of the program; nil for no bound.
	Memory *codec.Memory
	Log    zerolog.Logger
}

// Converter converts one source's stream. All methods are safe for concurrent use.
type Converter struct {
	opts  Options
	coder *codec.Decoder
	wake  chan struct{}

	out     sync.Mutex // held while Out runs
	coding  sync.Mutex
	waiting []media.EncodedFrame // for the transcoder to start

	mu        sync.Mutex
	began     bool
	in        uint32 // epoch of the source
	epoch     uint32 // of the output
	reason    string // why it is transcoded
	reordered bool   // B frames were seen, in any epoch
	deep      bool   // H264 that browsers cannot play
	open      bool   // H264 key frames that are no IDR pictures were seen, in any epoch
	slow      bool   // key frames are too far apart
	slowNow   bool   // slow as of the newest key frame
	lastPTS   int64
	held      []media.EncodedFrame // since the newest key frame, while B frames are possible
	heldBytes int
	needKey   bool
}

// New checks the options and finds the codec program. It starts nothing.
func New(o Options) (*Converter, error) {
	if o.Out == nil {
		return nil, errors.New("transcode.Options.Out is not set")
	}
	switch o.Mode {
	case "":
		o.Mode = Auto
	case Auto, Off, Always:
	default:
		return nil, fmt.Errorf("transcode %q: unknown mode; use auto, off or always", o.Mode)
	}
	c := &Converter{opts: o, wake: make(chan struct{}, 1)}
	o.To.OnFrame = c.coded
	var err error
	c.coder, err = codec.New(codec.Options{
		Transcode: o.To, Path: o.Path, Memory: o.Memory, OnRestart: c.askSource, OnUndecodable: func(error) { c.askSource() }, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the transcoder: %w", err)
	}
	c.coder.SetTranscode(true)
	return c, nil
}

// Run runs the codec process from when it is needed until ctx ends.
func (c *Converter) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.wake:
	}
	if err := c.coder.Run(ctx); err != nil {
		return fmt.Errorf("transcode the source: %w", err)
	}
	return nil
}

// RequestKeyFrame requests a key frame soon.
func (c *Converter) RequestKeyFrame() {
	c.mu.Lock()
	transcodes := c.reason != ""
	c.mu.Unlock()
	if transcodes {
		c.coder.ForceKeyFrame()
		return
	}
	c.askSource()
}

// Reason returns why pictures are transcoded, "" when they pass.
func (c *Converter) Reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Trouble returns why pictures cannot be transcoded, "" if they can.
func (c *Converter) Trouble() string {
	if c.Reason() == "" {
		return ""
	}
	return c.coder.Trouble()
}

// Forget prepares for another camera.
func (c *Converter) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reordered, c.deep, c.open, c.slow, c.slowNow = false, false, false, false, false
	c.held, c.heldBytes = nil, 0
}

// SetSlow sets whether the source's key frames are too far apart. It takes effect at
// the next key frame, so that the picture does not freeze until then.
func (c *Converter) SetSlow(slow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow = slow
}

func (c *Converter) askSource() {
	if c.opts.RequestKeyFrame != nil {
		c.opts.RequestKeyFrame()
	}
}

// Frame converts an access unit of the source. Calls are in decoding order.
func (c *Converter) Frame(f media.EncodedFrame) {
	c.mu.Lock()
	if !c.began || f.Epoch != c.in {
		c.began, c.in = true, f.Epoch
		c.epoch++
		c.needKey = true
		c.held, c.heldBytes = nil, 0
	}
	if f.KeyFrame {
		c.slowNow = c.slow
		if f.Codec == media.H264 {
			var open bool
			c.deep, open = inspect(f.Data)
			c.open = c.open || open
		}
	}
	back := f.Codec != codec.MJPEG && !f.KeyFrame && int64(f.PTS) < c.lastPTS && !c.needKey
	c.lastPTS = int64(f.PTS)
	replay := c.hold(f, back)
	reason := c.obstacle(f)
	changed := reason != c.reason
	if changed {
		c.reason = reason
		if !c.needKey {
			c.epoch++ // the output restarts with a key frame
			c.needKey = true
		}
	}
	switch {
	case len(replay) > 0 && reason != "":
	case c.needKey && !f.KeyFrame:
		replay = nil
	default:
		replay = []media.EncodedFrame{f}
	}
	if len(replay) > 0 {
		c.needKey = false
	}
	epoch := c.epoch
	c.mu.Unlock()

	if changed {
		c.opts.Log.Info().Str("reason", reason).Msg("transcoding changed")
		if c.opts.OnReason != nil {
			c.opts.OnReason(reason)
		}
	}
	for _, f := range replay {
		f.Epoch = epoch
		if reason == "" {
			c.emit(f)
		} else {
			c.code(f)
		}
	}
	if len(replay) == 0 {
		c.askSource()
	}
}

// hold keeps the access units since the newest key frame. At the first B frame it
// returns them, so that transcoding begins there and not at the next key frame.
func (c *Converter) hold(f media.EncodedFrame, back bool) (replay []media.EncodedFrame) {
	if c.reordered || f.Codec != media.H264 && f.Codec != media.H265 {
		c.held, c.heldBytes = nil, 0
		return nil
	}
	if f.KeyFrame {
		c.held, c.heldBytes = c.held[:0:0], 0
	}
	if f.KeyFrame || len(c.held) > 0 {
		c.held = append(c.held, f)
		c.heldBytes += len(f.Data)
	}
	if back {
		c.reordered = true
		replay, c.held, c.heldBytes = c.held, nil, 0
		return replay
	}
	if len(c.held) > maxHeld || c.heldBytes > maxHeldBytes {
		c.held, c.heldBytes = nil, 0
	}
	return nil
}

// obstacle returns why an access unit does not pass, "" if it does.
func (c *Converter) obstacle(f media.EncodedFrame) string {
	switch {
	case f.Codec == codec.MJPEG:
		return "browsers do not play JPEG pictures"
	case f.SpatialLayers > 1:
		return "pictures in spatial layers"
	case c.opts.Carries != nil && !c.opts.Carries(f.Codec):
		return "the room does not allow pictures in " + f.Codec.String()
	case c.opts.Mode == Off:
		return ""
	case f.Codec == media.H265 && !c.opts.H265:
		return "common browsers do not play H265"
	case c.reordered && (f.Codec == media.H264 || f.Codec == media.H265):
		return "WebRTC does not support B frames; switch them off at the source to avoid this"
	case c.deep && f.Codec == media.H264:
		return "browsers play H264 with 8 bits and 4:2:0 only"
	case c.open && f.Codec == media.H264:
		return "browsers start H264 at IDR pictures only; switch off open GOP and intra refresh at the source to avoid this"
	case f.Turn != 0:
		return "browsers do not turn pictures; switch off the rotation at the source to avoid this"
	case c.slowNow:
		return "its key frames are too far apart; shorten their interval at the source to avoid this"
	case c.opts.Mode == Always:
		return "forced by sources.transcode"
	}
	return ""
}

// inspect reports whether the profile of a key frame's sequence parameter set (H.264 section 7.3.2.1.1) is beyond 8 bits and 4:2:0, and
// whether the frame is no IDR picture.
func inspect(annexB []byte) (deep, open bool) {
	for i := 0; i+4 < len(annexB); i++ {
		if annexB[i] != 0 || annexB[i+1] != 0 || annexB[i+2] != 1 {
			continue
		}
		switch annexB[i+3] & 0x1f {
		case 7:
			deep = slices.Contains([]byte{110, 122, 244, 44}, annexB[i+4]) // High 10, High 4:2:2, High 4:4:4, CAVLC 4:4:4 Intra
		case 1, 2:
			return deep, true
		case 5:
			return deep, false
		}
	}
	return deep, false
}

// code passes an access unit to the transcoder. While it starts, access units are
// kept from the newest key frame on: the next one may be ten seconds away.
func (c *Converter) code(f media.EncodedFrame) {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	c.coding.Lock()
	defer c.coding.Unlock()
	if f.KeyFrame || len(c.waiting) >= maxHeld {
		c.waiting = c.waiting[:0:0]
	}
	c.waiting = append(c.waiting, f)
	for len(c.waiting) > 0 {
		err := c.coder.Decode(c.waiting[0], false)
		if errors.Is(err, codec.ErrNotRunning) {
			return
		}
		if err != nil {
			c.askSource()
		}
		c.waiting = c.waiting[1:]
	}
}

// coded forwards the transcoder's output, unless its epoch is over.
func (c *Converter) coded(f media.EncodedFrame) {
	c.mu.Lock()
	current := f.Epoch == c.epoch && c.reason != ""
	c.mu.Unlock()
	if current {
		c.emit(f)
	}
}

func (c *Converter) emit(f media.EncodedFrame) {
	c.out.Lock()
	defer c.out.Unlock()
	c.opts.Out(f)
}
