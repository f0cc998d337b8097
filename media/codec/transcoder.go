package codec

import (
	"cmp"
	"context"
	"errors"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec/wire"
)

// TranscodeOptions configure the encoder of a Transcoder.
type TranscodeOptions struct {
	// Codec is H264 (constrained baseline, Annex B; also when unset) or VP8. The other
	// one is used if the machine lacks the encoder; see the codec of each frame.
	Codec media.Codec
	// Choose returns the codec instead, for the next pictures. It must not block. May be nil.
	Choose func() media.Codec
	// FPS expected, 0 for 30.
	FPS int
	// BitRate in bit/s at 1280x720, 0 for 2.5 Mbit/s. It is scaled with the power 3/4
	// of the picture's area.
	BitRate int
	// OnFrame receives each encoded picture, with the times of its access unit, without
	// packets. It is called from Run's goroutine and must not block for long.
	OnFrame func(media.EncodedFrame)
}

func (o TranscodeOptions) check() (wire.Setup, error) {
	if o.Codec == media.CodecUnknown {
		o.Codec = media.H264
	}
	o.FPS = cmp.Or(o.FPS, 30)
	o.BitRate = cmp.Or(o.BitRate, 2_500_000)
	s, err := encodable(o.Codec, o.FPS, o.BitRate)
	s.Scaled = true
	return s, err
}

// TranscoderOptions of a Transcoder.
type TranscoderOptions struct {
	// To configures the encoder; its OnFrame is required.
	To TranscodeOptions
	// Path, OnRestart, OnUndecodable, Memory, Avoid and Log are as in Options.
	Path          string
	OnRestart     func()
	OnUndecodable func(error)
	Memory        *Memory
	Avoid         []string
	Log           zerolog.Logger
}

// Transcoder converts streams of any codec to one that every browser plays, at the
// source's size. A Decoder with SetTranscode also yields pictures, and decodes once.
type Transcoder struct {
	d *Decoder
}

// NewTranscoder checks the options and finds the codec program. It starts
// nothing.
func NewTranscoder(o TranscoderOptions) (*Transcoder, error) {
	if o.To.OnFrame == nil {
		return nil, errors.New("make a transcoder: OnFrame is not set")
	}
	d, err := New(Options{
		Path: o.Path, OnRestart: o.OnRestart, OnUndecodable: o.OnUndecodable, Transcode: o.To, Memory: o.Memory, Avoid: o.Avoid, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	d.SetTranscode(true)
	return &Transcoder{d: d}, nil
}

// Run keeps the codec process running until ctx ends, and then returns nil.
func (t *Transcoder) Run(ctx context.Context) error { return t.d.Run(ctx) }

// Transcode queues one access unit, as Decoder.Decode does, with the same errors.
func (t *Transcoder) Transcode(f media.EncodedFrame) error { return t.d.Decode(f, false) }

// ForceKeyFrame makes the next picture a key frame.
func (t *Transcoder) ForceKeyFrame() { t.d.ForceKeyFrame() }
