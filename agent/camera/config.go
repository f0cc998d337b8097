package camera

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config says what the program itself brings into its rooms: cameras
// that it opens, and senders that it takes.
type Config struct {
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
	Keys redact.Secret `yaml:"-" env:"KEYS"`
	// UDPPort takes all media; 0 is a free one.
	UDPPort int `yaml:"udp_port" env:"UDP_PORT"`
	// Many lets several senders in with one key.
	Many bool `yaml:"many" env:"MANY"`
	// ExternalIPs are announced in place of the machine's own, where a router forwards the port.
	ExternalIPs []string `yaml:"external_ips" env:"EXTERNAL_IPS"`
}

// DefaultConfig returns the settings in force when nothing is configured.
func DefaultConfig() Config {
	return Config{Transcode: "auto", Max: 8, WHIP: WHIPConfig{Enabled: true}}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "sources".
func (c Config) Validate() error {
	var s check.Settings
	for _, word := range c.Allow {
		s.That(slices.Contains([]string{"public", "private", "none"}, word), "allow",
			"a list of public, private or none; loopback, link-local and files are allowed on the command line only", strconv.Quote(word))
	}
	s.That(slices.Contains([]string{"auto", "off", "always"}, c.Transcode), "transcode", "auto, off or always", strconv.Quote(c.Transcode))
	s.That(c.Max >= 1 && c.Max <= 64, "max", "between 1 and 64 sources", c.Max)
	s.That(c.WHIP.UDPPort >= 0 && c.WHIP.UDPPort <= 65535, "whip.udp_port", "between 0 and 65535", c.WHIP.UDPPort)
	for _, ip := range c.WHIP.ExternalIPs {
		s.That(net.ParseIP(ip) != nil, "whip.external_ips", "IP addresses", strconv.Quote(ip))
	}
	if _, err := c.WHIP.StreamKeys(); err != nil {
		s.Add(err)
	}
	return s.Err()
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
			named = check.Name(room)
		}
		if !named || !check.Name(identity) || len(key) < minStreamKey {
			return nil, fmt.Errorf(
				"whip.keys: must be [[ROOM/]IDENTITY=]KEY with keys of %d characters or more, separated by commas; number %d is not",
				minStreamKey, len(out)+1)
		}
		out = append(out, StreamKey{Room: room, Identity: identity, Key: key})
	}
	return out, nil
}
