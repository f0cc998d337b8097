package worker

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"touchline/internal/check"
)

// Config sets the agent worker, which serves the rooms of a LiveKit server.
type Config struct {
	// AgentName is the agent name in dispatches; "" serves every new room. LIVEKIT_AGENT_NAME sets it too.
	AgentName string `yaml:"agent_name" env:"AGENT_NAME"`
	// Type is the scope of a job: room, publisher or participant.
	Type string `yaml:"type" env:"TYPE"`
	// Slots bounds the jobs that run at once; 0 is four for each core.
	Slots int `yaml:"slots" env:"SLOTS"`
	// DrainTimeout bounds the wait for the ends of sentences after the first signal.
	DrainTimeout time.Duration `yaml:"drain_timeout" env:"DRAIN_TIMEOUT"`
	// FullCPU is the CPU load, 0 to 1, at which the worker accepts no more rooms; 0 is no limit.
	FullCPU float64 `yaml:"full_cpu" env:"FULL_CPU"`
	// HTTP is the address of probes and metrics; HTTPOff for none.
	HTTP string `yaml:"http" env:"HTTP"`
	// Console is the address of the page and the API for all rooms of the worker; HTTPOff for none. Token, TLS
	// and hosts are settings of the console.
	Console string `yaml:"console" env:"CONSOLE"`
	// Deployment that dispatches must name. LIVEKIT_AGENT_DEPLOYMENT sets it too.
	Deployment string `yaml:"deployment" env:"DEPLOYMENT"`
}

// HTTPOff is the value of Config.HTTP and Config.Console that opens no address.
const HTTPOff = "off"

// DefaultConfig returns the settings of a worker that serves rooms, with probes and without a page.
func DefaultConfig() Config {
	return Config{Type: "room", DrainTimeout: time.Hour, FullCPU: 0.9, HTTP: "127.0.0.1:8081", Console: HTTPOff}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.worker".
func (c Config) Validate() error {
	var s check.Settings
	s.That(c.AgentName == "" || check.Name(c.AgentName), "agent_name", "at most 128 printable characters", strconv.Quote(c.AgentName))
	s.That(slices.Contains([]string{"room", "publisher", "participant"}, c.Type), "type",
		"room, publisher or participant", strconv.Quote(c.Type))
	s.That(c.Slots >= 0 && c.Slots <= 10_000, "slots", "between 0 (four for each core) and 10000", c.Slots)
	s.That(c.DrainTimeout >= 0 && c.DrainTimeout <= 24*time.Hour, "drain_timeout", "between 0s and 24h", c.DrainTimeout)
	s.That(c.FullCPU >= 0 && c.FullCPU <= 1, "full_cpu", "between 0 (does not look) and 1", c.FullCPU)
	address := func(v, path, example string) {
		if v == HTTPOff {
			return
		}
		_, port, err := net.SplitHostPort(v)
		_, perr := strconv.ParseUint(port, 10, 16)
		s.That(err == nil && perr == nil, path, "[host]:port, such as "+example+", or "+HTTPOff, strconv.Quote(v))
	}
	address(c.HTTP, "http", ":8081")
	address(c.Console, "console", "127.0.0.1:8199")
	s.That(len(c.Deployment) <= 64 && !strings.ContainsFunc(c.Deployment, func(r rune) bool { return r == '_' || unicode.IsSpace(r) }),
		"deployment", "at most 64 bytes without underscores and blanks", strconv.Quote(c.Deployment))
	return s.Err()
}
