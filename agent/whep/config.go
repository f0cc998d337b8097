package whep

import (
	"net"
	"strconv"

	"touchline/internal/check"
)

// Config of the WHEP server.
type Config struct {
	// Enabled turns the server on.
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// UDPPort is the port of all media; 0 is a free port.
	UDPPort int `yaml:"udp_port" env:"UDP_PORT"`
	// ExternalIPs replace the machine's own addresses in candidates, where a router forwards the port.
	ExternalIPs []string `yaml:"external_ips" env:"EXTERNAL_IPS"`
	// Max is the largest number of concurrent players.
	Max int `yaml:"max" env:"MAX"`
}

// DefaultConfig returns the settings in force when nothing is configured.
func DefaultConfig() Config { return Config{Enabled: true, Max: 64} }

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.console.whep".
func (c Config) Validate() error {
	var s check.Settings
	s.That(c.UDPPort >= 0 && c.UDPPort <= 65535, "udp_port", "between 0 and 65535", c.UDPPort)
	for _, ip := range c.ExternalIPs {
		s.That(net.ParseIP(ip) != nil, "external_ips", "IP addresses", strconv.Quote(ip))
	}
	s.That(c.Max >= 1 && c.Max <= 1000, "max", "between 1 and 1000 players", c.Max)
	return s.Err()
}
