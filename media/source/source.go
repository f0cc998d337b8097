// Package source defines sources of pictures, their supervision, and the addresses
// that may be opened.
//
// Each kind of source is a package below this one that implements [Puller]: it opens
// its camera once and yields access units until the connection ends. A
// [Supervisor] reopens it, reports its state and detects stalls. [Allow] checks the
// address that is really dialled, and [Address] keeps passwords out of texts.
//
// The package opens nothing, decodes nothing, and does not use LiveKit.
package source

import (
	"context"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
)

// Puller is a camera, file or stream that can be opened.
type Puller interface {
	// Pull opens the source and yields its access units until ctx or the source ends, or the source fails. It
	// returns soon after ctx ended, with everything released; its error may wrap the cause of ctx to add what came
	// so far. Pull may be called again, but not concurrently. ErrEnded, Permanent, Refused and Locked decide about retries.
	Pull(ctx context.Context, out Sink) error
}

// Access says what to open and how. Address and Now are required.
type Access struct {
	Address Address
	// Allow selects the addresses that may be dialled and sent to, and whether files may be read.
	Allow Allow
	// Insecure accepts any certificate: most cameras have self-signed ones.
	Insecure bool
	// Header is sent to the server of an HTTP address, and to no other host.
	Header http.Header
	Now    func() time.Time
	Log    zerolog.Logger
}

// KeyFramer is a Puller that can be asked for a key frame.
type KeyFramer interface {
	// RequestKeyFrame asks for a key frame soon. It must not block.
	RequestKeyFrame()
}

// Sink receives the frames of a source. A source calls its functions from one
// goroutine at a time; they must not block for long.
type Sink struct {
	// Frame receives an access unit. Its epoch counts within one Pull.
	Frame func(media.EncodedFrame)
	// Missing receives the number of video packets that were lost before the next frame, from sources with packet
	// numbers. May be nil.
	Missing func(packets uint64)
	// Due receives the time of the next picture from a source that waits for it for long: it is not stalled until then. May be nil.
	Due func(time.Time)
	// Advice receives what the source does not show as it should, and what to do; "" for nothing. May be nil.
	Advice func(string)
	// Started is called when a program of the machine starts for the source. May be nil.
	Started func()
	// Opus receives a packet of sound; nil for no sound.
	Opus func(Opus)
}

// Opus is a received packet of sound (RFC 6716).
type Opus struct {
	Payload   []byte
	Timestamp uint32 // in 48 kHz samples; it wraps
	Marker    bool   // begins a talk spurt
	Received  time.Time
	// Arrival and NTP are as in media.EncodedFrame; zero when unknown.
	Arrival, NTP time.Time
}
