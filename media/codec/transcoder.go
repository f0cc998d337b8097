package codec

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec/wire"
)

// TranscodeOptions say what to encode to.
type TranscodeOptions struct {
	// Codec is H264 (constrained baseline, Annex B; also when unset) or VP8.
	// When the machine lacks the encoder the other one is used; each frame names its own.
	Codec media.Codec
	// FPS expected, 0 for 30.
	FPS int
	// BitRate in bit/s at 1280x720, 0 for 2.5 Mbit/s. Other sizes follow
	// with the power 3/4 of their area.
	BitRate int
	// OnFrame gets every encoded picture, with the times of its access unit, without
	// packets. It is called by Run's goroutine and must not block for long.
	OnFrame func(media.EncodedFrame)
}

func (o TranscodeOptions) check() (wire.Setup, error) {
	if o.Codec == media.CodecUnknown {
		o.Codec = media.H264
	}
	if o.FPS == 0 {
		o.FPS = 30
	}
	if o.BitRate == 0 {
		o.BitRate = 2_500_000
	}
	s, err := encodable(o.Codec, o.FPS, o.BitRate)
	s.Scaled = true
	return s, err
}

// TranscoderOptions of a Transcoder.
type TranscoderOptions struct {
	// To says what to encode to; its OnFrame must be set.
	To TranscodeOptions
	// Path, OnRestart, OnUndecodable, Avoid and Log are as in Options.
	Path          string
	OnRestart     func()
	OnUndecodable func(error)
	Avoid         []string
	Log           zerolog.Logger
}

// Transcoder turns streams of any codec into one that every browser plays,
// picture by picture at the source's size. Where pictures are wanted as well, a
// Decoder with SetTranscode does both and decodes once.
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
		Path: o.Path, OnRestart: o.OnRestart, OnUndecodable: o.OnUndecodable, Transcode: o.To, Avoid: o.Avoid, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	d.SetTranscode(true)
	return &Transcoder{d: d}, nil
}

// Run keeps the codec process running until ctx ends; then it returns nil.
func (t *Transcoder) Run(ctx context.Context) error { return t.d.Run(ctx) }

// Transcode queues one access unit, as Decoder.Decode does, with the same errors.
func (t *Transcoder) Transcode(f media.EncodedFrame) error { return t.d.Decode(f, false) }

// ForceKeyFrame makes the next picture a key frame.
func (t *Transcoder) ForceKeyFrame() { t.d.ForceKeyFrame() }

// Stats returns the counts so far.
func (t *Transcoder) Stats() Stats { return t.d.Stats() }
