package camera

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"touchline/internal/check"
	"touchline/internal/redact"
	"touchline/media/codec"
	"touchline/media/source/whip"
)

// Config configures the cameras that the program publishes: sources that it opens,
// and WHIP senders.
type Config struct {
	// Allow lists the kinds of addresses that the page and the API may open: public, private or none. Empty means
	// the program's default. The command line may allow more.
	Allow []string `yaml:"allow" env:"ALLOW"`
	// Transcode is auto, off or always.
	Transcode string `yaml:"transcode" env:"TRANSCODE"`
	// PassHEVC publishes H265 without transcoding.
	PassHEVC bool `yaml:"pass_hevc" env:"PASS_HEVC"`
	// Max bounds the sources of one room.
	Max int `yaml:"max" env:"MAX"`
	// Height is the most rows of the variant that an HLS stream is played in.
	Height int `yaml:"height" env:"HEIGHT"`
	// Memory bounds the memory of all decoders for pictures of more than 4096 x 2304 pixels, in MB.
	Memory int `yaml:"memory" env:"MEMORY"`
	// WHIP configures the endpoint /whip/ROOM of the page's server.
	WHIP WHIPConfig `yaml:"whip" envPrefix:"WHIP_"`
}

// WHIPConfig configures WHIP ingest (RFC 9725).
type WHIPConfig struct {
	// Enabled turns WHIP ingest on.
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// Keys are stream keys, [[ROOM/]IDENTITY=]KEY, separated by commas. A room without a key gets a generated one.
	Keys redact.Secret `yaml:"-" env:"KEYS"`
	// UDPPort carries all media; 0 takes a free port.
	UDPPort int `yaml:"udp_port" env:"UDP_PORT"`
	// Many allows several senders with one key.
	Many bool `yaml:"many" env:"MANY"`
	// ExternalIPs replace the machine's own addresses in candidates, where a router forwards the port.
	ExternalIPs []string `yaml:"external_ips" env:"EXTERNAL_IPS"`
}

// DefaultConfig returns the settings in force when nothing is configured.
func DefaultConfig() Config {
	return Config{Transcode: "auto", Max: 8, Height: 720, Memory: 2048, WHIP: WHIPConfig{Enabled: true}}
}

// Decoders returns the memory of all decoders of a program.
func (c Config) Decoders() *codec.Memory { return codec.NewMemory(int64(c.Memory) << 20) }

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
	s.That(c.Height >= 90 && c.Height <= 4320, "height", "between 90 and 4320 rows", c.Height)
	s.That(c.Memory >= 0 && c.Memory <= 1<<20, "memory", "between 0 and 1048576 MB", c.Memory)
	s.That(c.WHIP.UDPPort >= 0 && c.WHIP.UDPPort <= 65535, "whip.udp_port", "between 0 and 65535", c.WHIP.UDPPort)
	for _, ip := range c.WHIP.ExternalIPs {
		s.That(net.ParseIP(ip) != nil, "whip.external_ips", "IP addresses", strconv.Quote(ip))
	}
	if _, err := c.WHIP.StreamKeys(); err != nil {
		s.Add(err)
	}
	return s.Err()
}

// StreamIdentity is the identity of a sender whose key names none.
const StreamIdentity = "camera"

// minStreamKey is the shortest stream key, in characters.
const minStreamKey = 8

// StreamKeys parses Keys. No error contains a key.
func (c WHIPConfig) StreamKeys() ([]whip.StreamKey, error) {
	var out []whip.StreamKey
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
		out = append(out, whip.StreamKey{Room: room, Identity: identity, Key: key})
	}
	return out, nil
}
