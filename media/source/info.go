package source

import (
	"errors"
	"time"
)

// Info describes a source for the page and the API: a camera, a stream, a file or a
// WHIP sender that the program publishes into the room as a participant.
type Info struct {
	ID string `json:"id"`
	// Kind is rtsp, http, file, webcam or whip.
	Kind string `json:"kind"`
	// Name is the display name.
	Name string `json:"name"`
	// Address without user, password and values of the query; "" for senders.
	Address string `json:"address,omitempty"`
	// Identity of the participant.
	Identity string `json:"identity"`
	// Fixed is set for sources of the command line and WHIP senders, which the API does not change.
	Fixed bool `json:"fixed,omitempty"`
	// Watched is set when the bot watches it.
	Watched bool `json:"watched"`

	// State is connecting, live, waiting, stalled, failed or ended; Since when; Reason why it is not live.
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`

	// Codec and size of the picture, "" and 0 before the first one.
	Codec  string `json:"codec,omitempty"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	// FPS in pictures a second and BitRate in bit/s, 0 without a picture.
	FPS     float64 `json:"fps"`
	BitRate int     `json:"bit_rate"`
	// KeyFrameInterval in seconds, 0 when unknown.
	KeyFrameInterval float64 `json:"key_frame_interval"`
	// Sound reports whether the source has sound.
	Sound bool `json:"sound"`
	// Transcoded is the reason why the picture is transcoded, "" when it is not.
	Transcoded string `json:"transcoded,omitempty"`
	// Advice names settings to change at the camera, "" for none.
	Advice string `json:"advice,omitempty"`
}

// Request is a request to publish a source into the room.
type Request struct {
	// URL of the camera or stream.
	URL string `json:"url"`
	// Name is the display name; "" means the address.
	Name string `json:"name"`
	// Transport of RTSP: tcp, udp, or "" for tcp with a fallback to udp.
	Transport string `json:"transport"`
	// Insecure accepts any certificate.
	Insecure bool `json:"insecure"`
	// Headers are sent to the server of an HTTP address, each "Name: value". They are not shown again.
	Headers []string `json:"headers,omitempty"`
	// Watch makes the bot watch it; nil is true.
	Watch *bool `json:"watch"`
}

// Change is a change of a source; nil fields keep their value.
type Change struct {
	URL       *string `json:"url"`
	Name      *string `json:"name"`
	Transport *string `json:"transport"`
	Insecure  *bool   `json:"insecure"`

	Headers *[]string `json:"headers,omitempty"`
}

// RoomCamera is a video track of the room that could be watched.
type RoomCamera struct {
	Identity string `json:"identity"`
	Name     string `json:"name,omitempty"`
	// Kind is camera, screen_share or unknown.
	Kind    string `json:"kind"`
	Muted   bool   `json:"muted,omitempty"`
	Watched bool   `json:"watched"`
}

// WHIPEndpoint is the destination for a sender such as OBS.
type WHIPEndpoint struct {
	// Path below the page's address.
	Path string `json:"path"`
	// Key is the bearer token.
	Key string `json:"key"`
}

var (
	// ErrNotFound is returned when there is no source with the id.
	ErrNotFound = errors.New("there is no such source")
	// ErrTooMany is returned when the room has reached sources.max.
	ErrTooMany = errors.New("no more sources may be open in this room; remove one, or raise sources.max")
	// ErrFixed is returned for a source with Info.Fixed.
	ErrFixed = errors.New("this source came from the command line or is a WHIP sender; it cannot be changed here")
)
