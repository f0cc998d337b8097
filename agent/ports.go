// Package agent is the bot in one room: a Session watches, thinks and speaks.
//
// It owns the lifetime and the wiring of the room's parts (steering, looks, speech), and its status, records and announcements. It uses the
// room, the codecs, the voice and the page only through the small interfaces in ports.go, and reads the clock only at its edges, so that an
// hour of video runs in a synctest bubble in seconds. Session.Run owns all its goroutines.
package agent

import (
	"context"
	"time"

	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/internal/polygon"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/window"
)

// VideoInput is the watched track. It outlives its connections: a reconnect or
// another camera begins a new Epoch in the frames.
type VideoInput interface {
	// ReadFrame blocks for the next access unit in decoding order. After a
	// gap it returns nothing until the next key frame. It ends with ctx.
	ReadFrame(ctx context.Context) (media.EncodedFrame, error)
	// RequestKeyFrame requests a key frame of the source (PLI). It never blocks;
	// the implementation limits the rate.
	RequestKeyFrame()
}

// VideoOutput publishes the delayed picture. Only the delay line's goroutine calls it.
type VideoOutput interface {
	// WriteFrame sends one access unit at once, packets renumbered and stamped by f.Due,
	// and returns when its last packet was handed to the network.
	WriteFrame(f delay.OutFrame) (written time.Time, err error)
}

// Decoder turns access units into pictures, and into other access units where
// the source's own cannot be relayed. Implementations run it in another process.
type Decoder interface {
	// Run owns the decoder's process until ctx ends.
	Run(ctx context.Context) error
	// Decode queues one access unit; with sample set its picture is handed to
	// the sink. It never blocks for long: a decoder that falls behind drops up to
	// the next key frame and returns an error.
	Decode(f media.EncodedFrame, sample bool) error
	// Latest returns the newest decoded picture, or an error before the first.
	Latest(ctx context.Context) (media.VideoFrame, error)
	// SetTranscode turns encoding of all pictures on or off.
	SetTranscode(on bool)
	// SetLongSide bounds the longer edge of the pictures from the next one on, in pixels.
	SetLongSide(pixels int) error
	// SetMasks covers parts of all pictures, which comes into force at once; see codec.Decoder.
	SetMasks(m polygon.Masks)
	// ForceKeyFrame makes the next encoded picture a key frame.
	ForceKeyFrame()
}

// DecoderSinks take the output of a Decoder. They are called from its goroutine
// and do not block for long.
type DecoderSinks struct {
	// Picture takes each sampled picture.
	Picture func(media.VideoFrame)
	// Encoded takes each transcoded access unit, with the times of its source's.
	Encoded func(media.EncodedFrame)
	// Encoded takes each transcoded access unit, with the times of the original.
	NeedKeyFrame func()
}

// Caption is one step of an utterance's text, which is the concatenated Deltas of
// its Segment.
type Caption struct {
	Segment string `json:"segment"` // one per utterance
	Cycle   uint64 `json:"cycle"`
	Delta   string `json:"delta"` // new text, may be "" in the final step
	Text    string `json:"text"`  // all so far
	Final   bool   `json:"final"`
	Spoken  bool   `json:"spoken"` // the words follow the voice
	// Language is the BCP 47 tag of the text.
	Language string `json:"language,omitempty"`
}

// AlertOutput is an optional interface of a TextOutput: it receives each phase of an
// alert, with the frame of a new one. It must not block.
type AlertOutput interface {
	Alert(a alert.Alert, frame *window.Frame)
}

// TextOutput receives captions, records and states. Implementations must not
// block for long; a slow reader loses items and receives their number.
type TextOutput interface {
	Caption(c Caption)
	Record(r look.Record)
	State(s Status)
}
