package source

import (
	"errors"
	"time"
)

// Info describes a source as the page and the API show it: a camera, a stream,
// a file or a WHIP sender that the program publishes into the room as a participant.
type Info struct {
	ID string `json:"id"`
	// Kind is rtsp, http, file, webcam or whip.
	Kind string `json:"kind"`
	// Name for people.
	Name string `json:"name"`
	// Address without user, password and values of the query; "" for senders.
	Address string `json:"address,omitempty"`
	// Identity of the participant.
	Identity string `json:"identity"`
	// Fixed sources came from the command line or by themselves: they are not changed here.
	Fixed bool `json:"fixed,omitempty"`
	// Watched is set when the bot watches it.
	Watched bool `json:"watched"`

	// State is connecting, live, waiting, stalled, failed or ended; Since when; Reason why it is not live.
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`

	// Codec and size of what the camera sends, "" and 0 before its first picture.
	Codec  string `json:"codec,omitempty"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	// FPS in pictures a second and BitRate in bit/s, 0 while nothing comes.
	FPS     float64 `json:"fps"`
	BitRate int     `json:"bit_rate"`
	// KeyFrameInterval in seconds, 0 when unknown.
	KeyFrameInterval float64 `json:"key_frame_interval"`
	// Sound is set when sound comes as well.
	Sound bool `json:"sound"`
	// Transcoded says why the picture is transcoded, "" when it passes as it is.
	Transcoded string `json:"transcoded,omitempty"`
	// Advice says what to set at the camera, "" when nothing needs to be.
	Advice string `json:"advice,omitempty"`
}

// Request asks for a source to be brought into the room.
type Request struct {
	// URL of the camera or stream.
	URL string `json:"url"`
	// Name for people; "" takes the address.
	Name string `json:"name"`
	// Transport of RTSP: tcp, udp, or "" for tcp and udp where the camera refuses it.
	Transport string `json:"transport"`
	// Insecure takes any certificate.
	Insecure bool `json:"insecure"`
	// Watch has the bot look at it; it does when this is not set.
	Watch *bool `json:"watch"`
}

// Change is a change of a source; nil fields stay.
type Change struct {
	URL       *string `json:"url"`
	Name      *string `json:"name"`
	Transport *string `json:"transport"`
	Insecure  *bool   `json:"insecure"`
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

// WHIPEndpoint is where a sender such as OBS sends to.
type WHIPEndpoint struct {
	// Path below the page's own address.
	Path string `json:"path"`
	// Key to be sent as bearer token.
	Key string `json:"key"`
}

var (
	// ErrNotFound is returned when there is no source with the id.
	ErrNotFound = errors.New("there is no such source")
	// ErrTooMany is returned when the room has as many as it may have.
	ErrTooMany = errors.New("no more sources may be open in this room; remove one, or raise sources.max")
	// ErrFixed is returned for a source that is not changed while running.
	ErrFixed = errors.New("this source came from the command line or by itself; it is not changed here")
)
