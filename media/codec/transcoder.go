package codec

import (
	"cmp"

	"touchline/media"
	"touchline/media/codec/wire"
)

// TranscodeOptions configure the encoder of a Decoder.
type TranscodeOptions struct {
	// Codec is H264 (constrained baseline, Annex B; also when unset) or VP8. The other
	// one is used if the machine lacks the encoder; see the codec of each frame.
	Codec media.Codec
	// Choose returns the codec instead, for the next pictures. It must not block. May be nil.
	Choose func() media.Codec
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
	o.BitRate = cmp.Or(o.BitRate, 2_500_000)
	s, err := encodable(o.Codec, 30, o.BitRate)
	s.Scaled = true
	return s, err
}
