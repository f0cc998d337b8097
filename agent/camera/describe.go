package camera

import (
	"fmt"
	"math"
	"strings"

	"touchline/internal/redact"
	"touchline/media/codec"
	"touchline/media/source"
)

// whipKind is the kind of WHIP senders.
const whipKind source.Kind = "whip"

func describe(f *Feed, s source.Status, kind source.Kind) source.Info {
	out := source.Info{
		Kind: string(kind), Identity: f.opts.Identity, State: s.State.String(), Since: s.Since, Reason: redact.Addresses(s.Reason),
		Width: s.Width, Height: s.Height, FPS: math.Round(10*s.FPS) / 10,
		BitRate: s.BitRate / 1000 * 1000, KeyFrameInterval: s.KeyEvery.Seconds(),
		Sound: s.Sound, Transcoded: f.Reason(),
	}
	if s.Width > 0 {
		out.Codec = CodecName(s)
	}
	out.Advice = advice(kind, s)
	if text := f.fit.Trouble(); text != "" {
		out.Advice = strings.TrimSpace("It cannot be transcoded: " + text + ". " + out.Advice)
	}
	return out
}

// CodecName returns the display name of a source's codec.
func CodecName(s source.Status) string {
	if name := s.Codec.String(); name != "unknown" {
		return name
	}
	return "JPEG"
}

// advice returns the source's own advice, and the advice against lost packets and against key frames that are too far apart.
func advice(kind source.Kind, s source.Status) string {
	var words []string
	if s.Advice != "" {
		words = append(words, s.Advice)
	}
	if s.Width*s.Height > codec.MaxPixels {
		words = append(words, fmt.Sprintf("Its picture has %d x %d pixels; at most 8192 x 4320 are decoded. Set a smaller size at the source.",
			s.Width, s.Height))
	}
	if s.Lossy {
		words = append(words, lossAdvice(kind, s))
	}
	if s.Slow && s.Codec != codec.MJPEG { // all its pictures are key frames
		words = append(words, keyFrameAdvice(kind, s))
	}
	return strings.Join(words, " ")
}

// lossAdvice returns the advice against lost packets.
func lossAdvice(kind source.Kind, s source.Status) string {
	lost := fmt.Sprintf("The network loses packets of its picture (%d so far). After each loss the picture freezes until "+
		"the next key frame.", s.Missing)
	if kind == source.RTSP {
		return lost + " Open it over TCP (“transport”: TCP), which retransmits lost packets."
	}
	return lost + " Use a cable instead of Wi-Fi, or a lower bit rate at the sender."
}

// keyFrameAdvice returns the advice for a source whose key frames are too far apart.
func keyFrameAdvice(kind source.Kind, s source.Status) string {
	apart := "Its key frames are more than 2 s apart"
	if s.KeyEvery > source.KeyFrameLimit {
		apart = fmt.Sprintf("Its key frames are %.1f s apart", s.KeyEvery.Seconds())
	}
	switch kind {
	case source.RTSP:
		return apart + ", and an RTSP camera cannot be asked for one. Set “I-frame interval” (or “GOP”) at the " +
			"camera to one second’s worth of frames, 25 or 30, and “smart codec”, “H.264+” or “Zipstream” off."
	case whipKind:
		return apart + ", and it ignores requests for one. In OBS: Settings, Output, “Keyframe interval” 1 s. With ffmpeg: -g 30."
	case source.HTTP, source.File, source.Webcam:
	}
	return apart + ". With ffmpeg: -g 30. In other encoders: “keyframe interval” or “GOP” of one second."
}
