package main

import (
	"cmp"
	"slices"
	"strings"

	"touchline/media/codec/wire"
)

// choice holds the selected libav codecs: the first available one of each list.
type choice struct {
	decoders map[wire.Codec]string
	encoders map[wire.Codec]string
	// fallback marks the codecs whose first choice is missing.
	fallback map[wire.Codec]bool
}

// decoderNames lists libav's decoders for a codec, the best first. The native VP9
// decoder is last because it shows only the lowest layer of a layered stream.
func decoderNames(c wire.Codec) []string {
	return map[wire.Codec][]string{
		wire.VP8: {"vp8", "libvpx"}, wire.VP9: {"libvpx-vp9", "vp9"}, wire.H264: {"h264", "libopenh264"},
		wire.H265: {"hevc"}, wire.AV1: {"libdav1d", "libaom-av1"}, wire.MJPEG: {"mjpeg"},
	}[c]
}

// encoderNames lists libav's encoders for a codec, the best first.
func encoderNames(c wire.Codec) []string {
	return map[wire.Codec][]string{wire.H264: {"libx264", "libopenh264"}, wire.VP8: {"libvpx"}}[c]
}

func newChoice(avoid []string) choice {
	c := choice{
		decoders: map[wire.Codec]string{}, encoders: map[wire.Codec]string{}, fallback: map[wire.Codec]bool{},
	}
	first := func(names []string, encoder bool) (string, bool) {
		for i, n := range names {
			if !slices.Contains(avoid, n) && has(n, encoder) {
				return n, i == 0
			}
		}
		return "", false
	}
	for codec := wire.VP8; codec.Known(); codec++ {
		if name, best := first(decoderNames(codec), false); name != "" {
			c.decoders[codec], c.fallback[codec] = name, !best
		}
		if name, _ := first(encoderNames(codec), true); name != "" {
			c.encoders[codec] = name
		}
	}
	return c
}

// encoder returns the encoder for a codec, or for the other supported codec if
// this libav lacks it.
func (c choice) encoder(want wire.Codec) (wire.Codec, string) {
	for _, codec := range []wire.Codec{want, wire.H264, wire.VP8} {
		if name := c.encoders[codec]; name != "" {
			return codec, name
		}
	}
	return want, ""
}

// String lists the codecs, with "none" for a missing one.
func (c choice) String() string {
	var b strings.Builder
	line := func(what string, codec wire.Codec, name string) {
		b.WriteString(what + " " + codec.String() + ": " + cmp.Or(name, "none") + "\n")
	}
	for codec := wire.VP8; codec.Known(); codec++ {
		line("decode", codec, c.decoders[codec])
	}
	for _, codec := range []wire.Codec{wire.H264, wire.VP8} {
		line("encode", codec, c.encoders[codec])
	}
	return strings.TrimSuffix(b.String(), "\n")
}
