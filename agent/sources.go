package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/inference"
)

// SourcesConfig says what the program itself brings into its rooms: cameras
// that it opens, and senders that it takes.
type SourcesConfig struct {
	// Allow lists the addresses that the page and the API may have opened: public, private or none; empty
	// for what fits the program. More may be allowed on the command line only.
	Allow []string `yaml:"allow" env:"ALLOW"`
	// Transcode is auto, off or always.
	Transcode string `yaml:"transcode" env:"TRANSCODE"`
	// PassHEVC lets H265 into the room as it is.
	PassHEVC bool `yaml:"pass_hevc" env:"PASS_HEVC"`
	// Max is how many sources one room may have open.
	Max int `yaml:"max" env:"MAX"`
	// WHIP sets the endpoint at /whip/ROOM beside the page.
	WHIP WHIPConfig `yaml:"whip" envPrefix:"WHIP_"`
}

// WHIPConfig sets who may send a picture by WHIP (RFC 9725), and how.
type WHIPConfig struct {
	// Enabled takes senders at all.
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// Keys are stream keys, [[ROOM/]IDENTITY=]KEY, separated by commas. One is made up for a room that has none.
	Keys inference.Secret `yaml:"-" env:"KEYS"`
	// UDPPort takes all media; 0 is a free one.
	UDPPort int `yaml:"udp_port" env:"UDP_PORT"`
	// Many lets several senders in with one key.
	Many bool `yaml:"many" env:"MANY"`
	// ExternalIPs are announced in place of the machine's own, where a router forwards the port.
	ExternalIPs []string `yaml:"external_ips" env:"EXTERNAL_IPS"`
}

// DefaultSourcesConfig returns the settings in force when nothing is configured.
func DefaultSourcesConfig() SourcesConfig {
	return SourcesConfig{Transcode: "auto", Max: 8, WHIP: WHIPConfig{Enabled: true}}
}

// Validate checks every setting and reports all that are wrong, joined, as
// Config.Validate does.
func (c SourcesConfig) Validate() error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: must be %s, is %v", path, rule, value))
		}
	}
	for _, word := range c.Allow {
		check(slices.Contains([]string{"public", "private", "none"}, word), "allow",
			"a list of public, private or none; loopback, link-local and files are allowed on the command line only", strconv.Quote(word))
	}
	check(slices.Contains([]string{"auto", "off", "always"}, c.Transcode), "transcode", "auto, off or always", strconv.Quote(c.Transcode))
	check(c.Max >= 1 && c.Max <= 64, "max", "between 1 and 64 sources", c.Max)
	check(c.WHIP.UDPPort >= 0 && c.WHIP.UDPPort <= 65535, "whip.udp_port", "between 0 and 65535", c.WHIP.UDPPort)
	for _, ip := range c.WHIP.ExternalIPs {
		check(ip != "" && !strings.ContainsAny(ip, " /"), "whip.external_ips", "IP addresses", strconv.Quote(ip))
	}
	if _, err := c.WHIP.StreamKeys(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// StreamKey lets one sender in.
type StreamKey struct {
	// Room is "" for the only one, or for every one where there are several.
	Room          string
	Identity, Key string
}

// StreamIdentity is who a sender is whose key names nobody.
const StreamIdentity = "camera"

// minStreamKey is the shortest stream key, in characters.
const minStreamKey = 8

// StreamKeys reads Keys. No error repeats one.
func (c WHIPConfig) StreamKeys() ([]StreamKey, error) {
	var out []StreamKey
	for text := range strings.SplitSeq(string(c.Keys), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		identity, key, ok := strings.Cut(text, "=")
		if !ok {
			identity, key = StreamIdentity, text
			if n := len(out); n > 0 {
				identity += "-" + strconv.Itoa(n+1)
			}
		}
		room := ""
		named := true
		if i := strings.LastIndexByte(identity, '/'); i >= 0 {
			room, identity = identity[:i], identity[i+1:]
			named = validName(room)
		}
		if !named || !validName(identity) || len(key) < minStreamKey {
			return nil, fmt.Errorf(
				"whip.keys: must be [[ROOM/]IDENTITY=]KEY with keys of %d characters or more, separated by commas; number %d is not",
				minStreamKey, len(out)+1)
		}
		out = append(out, StreamKey{Room: room, Identity: identity, Key: key})
	}
	return out, nil
}

// Source is a camera, a stream, a file or a sender that the program brings
// into the room as a participant.
type Source struct {
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
	// Watched tells that the bot looks at it.
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
	// Sound tells that sound comes as well.
	Sound bool `json:"sound"`
	// Transcoded says why the picture is transcoded, "" when it passes as it is.
	Transcoded string `json:"transcoded,omitempty"`
	// Advice says what to set at the camera, "" when nothing needs to be.
	Advice string `json:"advice,omitempty"`
}

// NewSource is what somebody wants brought into the room.
type NewSource struct {
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

// SourceChange is what is to be different about a source; nil leaves it.
type SourceChange struct {
	URL       *string `json:"url"`
	Name      *string `json:"name"`
	Transport *string `json:"transport"`
	Insecure  *bool   `json:"insecure"`
}

// RoomCamera is a video track that could be watched, whoever publishes it.
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
	// ErrNoSource is returned when there is no source with the id.
	ErrNoSource = errors.New("there is no such source")
	// ErrTooManySources is returned when the room has as many as it may have.
	ErrTooManySources = errors.New("no more sources may be open in this room; remove one, or raise sources.max")
	// ErrSourceFixed is returned for a source that is not changed while running.
	ErrSourceFixed = errors.New("this source came from the command line or by itself; it is not changed here")
	// ErrSourceNotAllowed is returned for an address that may not be opened.
	ErrSourceNotAllowed = errors.New("not allowed to be opened from here")
)
