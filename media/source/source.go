// Package source is the vocabulary of cameras: what a source of pictures is,
// how one is watched over, and which addresses may be opened.
//
// Each kind has a package of its own below this one and implements [Puller]: it
// opens its camera once and hands on access units until the camera breaks off.
// A [Supervisor] opens it again and again, reports its state, and
// notices pictures that stop coming. [Allow] judges the address that is really
// dialled, and [Address] keeps passwords out of everything that is shown.
//
// The package opens nothing itself, decodes nothing, and knows no room.
package source

import (
	"context"
	"errors"
	"time"

	"touchline/internal/rescue"
	"touchline/media"
)

// Puller is one camera, file or stream that can be opened.
type Puller interface {
	// Pull opens the source and hands on what comes until ctx ends or the source breaks or ends. It
	// returns when everything it started is gone, soon after ctx ended. The error says why it returned:
	// one that wraps ErrEnded or is Permanent is not worth another try. Pull may be called again, but not
	// twice at once.
	Pull(ctx context.Context, out Sink) error
}

// KeyFramer is a Puller that can be asked for a key frame.
type KeyFramer interface {
	// RequestKeyFrame asks for a key frame soon. It must not block.
	RequestKeyFrame()
}

// Sink takes what a source yields. A source calls its functions from one
// goroutine at a time; they must not block for long.
type Sink struct {
	// Frame takes an access unit. Its epoch counts within one Pull.
	Frame func(media.EncodedFrame)
	// Missing takes the number of the picture's packets that were lost before the next frame, from sources
	// that know it. May be nil.
	Missing func(packets uint64)
	// Opus takes a packet of sound; nil when sound is not wanted.
	Opus func(Opus)
}

// Opus is one packet of sound (RFC 6716) as it came.
type Opus struct {
	Payload   []byte
	Timestamp uint32 // in 48 kHz samples; it wraps
	Marker    bool   // begins a talk spurt
	Received  time.Time
	// Arrival and NTP are the capture's time as a picture's are (media.EncodedFrame); zero where the source does not know them.
	Arrival, NTP time.Time
}

var (
	// ErrEnded is returned when a source came to its own end, as a file does.
	ErrEnded = errors.New("the source came to its end")
	// ErrStalled is returned when pictures stopped coming.
	ErrStalled = errors.New("no picture for some seconds")
	// ErrNotAllowed is returned when an address may not be opened. It is permanent.
	ErrNotAllowed = errors.New("this address may not be opened")
)

// permanentError is not worth another try.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error as one that trying again does not mend: a wrong
// password, a codec that cannot be read.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether trying again is of no use. After a panic it is not:
// the same pictures would bring it about again.
func IsPermanent(err error) bool {
	var p *permanentError
	_, crash := rescue.Of(err)
	return errors.As(err, &p) || errors.Is(err, ErrNotAllowed) || crash
}
