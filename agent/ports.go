// Package agent is the bot in one room: a Session watches, thinks and speaks.
//
// It owns the cycle (when to look, what to ask, when the answer may be heard)
// and every piece of state of its room. It knows the room, the codecs, the
// voice and the page only by the small interfaces in ports.go, and reads the
// clock only at its edges, so that an hour of video runs in a synctest bubble
// in seconds. Whoever calls Session.Run owns all its goroutines.
package agent

import (
	"context"
	"time"

	"touchline/media"
	"touchline/media/delay"
)

// VideoInput is the watched track. It outlives any one connection: a
// reconnect or another camera shows as a new Epoch in the frames.
type VideoInput interface {
	// ReadFrame blocks for the next access unit in decoding order. After a
	// gap it returns nothing until the next key frame. It ends with ctx.
	ReadFrame(ctx context.Context) (media.EncodedFrame, error)
	// RequestKeyFrame asks the source for a key frame (PLI). It never blocks;
	// the implementation limits the rate.
	RequestKeyFrame()
}

// VideoOutput publishes the delayed picture.
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
	// the sink. It never blocks for long: when the decoder cannot keep up it
	// drops up to the next key frame and returns an error that says so.
	Decode(f media.EncodedFrame, sample bool) error
	// Latest returns the newest decoded picture, or an error when there is none yet.
	Latest(ctx context.Context) (media.VideoFrame, error)
	// SetTranscode turns encoding of all pictures on or off.
	SetTranscode(on bool)
	// ForceKeyFrame makes the next encoded picture a key frame.
	ForceKeyFrame()
}

// DecoderSinks take what a Decoder makes. They are called from its own
// goroutine and do not block for long.
type DecoderSinks struct {
	// Picture takes each sampled picture.
	Picture func(media.VideoFrame)
	// Encoded takes each transcoded access unit, with the times of its source's.
	Encoded func(media.EncodedFrame)
	// NeedKeyFrame is called when the decoder cannot go on without one.
	NeedKeyFrame func()
}

// SpeechEvents are told by an AudioOutput, from its own goroutine; they must not block.
type SpeechEvents struct {
	// Started: the packet with the first audible sample was written; onset is
	// the moment that sample's place in the schedule comes.
	Started func(onset time.Time)
	// Ended: the last audible sample's packet was written; end is when it has been played. cut is
	// set when the utterance was stopped before its end.
	Ended func(end time.Time, cut bool)
}

// AudioOutput is the voice in the room.
type AudioOutput interface {
	// NewUtterance prepares one. Audio may be written before it is started.
	NewUtterance(ev SpeechEvents) SpokenUtterance
}

// SpokenUtterance is one utterance on its way to the voice track. Utterances play in
// the order of Start; one that is started while another plays waits for it.
// All methods are safe for concurrent use and never block for long.
type SpokenUtterance interface {
	// Write appends audio (any rate; leading silence is trimmed) and returns
	// the audible time known so far. Trailing silence is held back until more sound follows.
	Write(pcm media.PCM) (audible time.Duration, err error)
	// LeadTrimmed tells how much of the audio written so far was cut off in front, so that word times can follow.
	LeadTrimmed() time.Duration
	// End says that no more audio will come, and returns the audible time of the whole.
	End() time.Duration
	// Start releases it: the first audible sample leaves at the given moment, or as soon as
	// possible after it.
	Start(at time.Time)
	// Cut stops it: silent within 40 ms. Ended follows if Started came.
	Cut()
}

// Caption is one step of an utterance's text. The Deltas of one Segment, put
// together, are the text.
type Caption struct {
	Segment string `json:"segment"` // one per utterance
	Cycle   uint64 `json:"cycle"`
	Delta   string `json:"delta"` // new text, may be "" in the final step
	Text    string `json:"text"`  // all so far
	Final   bool   `json:"final"`
	Spoken  bool   `json:"spoken"` // the words follow the voice
}

// TextOutput takes what is to be read. Implementations must not block for
// long; a slow reader loses items, and is told how many.
type TextOutput interface {
	Caption(c Caption)
	Record(r Record)
	State(s Status)
}
