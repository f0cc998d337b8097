package room

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"touchline/agent/room/conn"
	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config sets the room and how to join it. URL, APIKey and
// APISecret are also read from LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET.
type Config struct {
	URL       string        `yaml:"url" env:"URL"`
	APIKey    string        `yaml:"-" env:"API_KEY"`
	APISecret redact.Secret `yaml:"-" env:"API_SECRET"`
	// Token is a ready access token, instead of key and secret.
	Token redact.Secret `yaml:"-" env:"TOKEN"`
	// E2EE are the keys of end-to-end encryption (see conn.RoomKeys), from the variable TOUCHLINE_AGENT_E2EE_KEY.
	E2EE redact.Secret `yaml:"-"`
	// LinkGeneration of shared links: another one ends all links that were made with it.
	LinkGeneration string `yaml:"link_generation" env:"LINK_GENERATION"`
	// Room to join.
	Room string `yaml:"room" env:"ROOM"`
	// Identity and Name of the bot.
	Identity string `yaml:"identity" env:"IDENTITY"`
	Name     string `yaml:"name" env:"NAME"`
	// ReconnectDelay and MaxReconnectDelay bound the wait between two attempts to join: it starts at the
	// first and doubles, up to 2 s in the first three minutes of an outage and up to the second after them.
	ReconnectDelay    time.Duration `yaml:"reconnect_delay" env:"RECONNECT_DELAY"`
	MaxReconnectDelay time.Duration `yaml:"max_reconnect_delay" env:"MAX_RECONNECT_DELAY"`
}

// DefaultConfig returns the settings of a LiveKit server on this machine.
func DefaultConfig() Config {
	return Config{
		URL:               "ws://127.0.0.1:7880",
		Room:              "touchline",
		Identity:          "touchline",
		Name:              "Touchline",
		ReconnectDelay:    100 * time.Millisecond,
		MaxReconnectDelay: 15 * time.Second,
	}
}

// Keys returns the keys of the server and of end-to-end encryption.
func (c Config) Keys() conn.Keys {
	return conn.Keys{APIKey: c.APIKey, APISecret: string(c.APISecret), E2EE: c.E2EE, Generation: c.LinkGeneration}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.livekit".
func (c Config) Validate() error {
	var s check.Settings
	if u, err := url.Parse(c.URL); err != nil || u.User != nil {
		// The value may hold a password: it is not repeated.
		s.Add(errors.New("url: must be an address without name and password in it"))
	} else {
		known := slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme)
		s.That(known && u.Host != "", "url", "ws:// or wss:// with a host", strconv.Quote(c.URL))
	}
	// A ready token names its own room and identity; otherwise ours are needed.
	s.That(check.Name(c.Room), "room", "1 to 128 printable characters", strconv.Quote(c.Room))
	s.That(check.Name(c.Identity), "identity", "1 to 128 printable characters", strconv.Quote(c.Identity))
	s.That(c.Name == "" || check.Name(c.Name), "name", "at most 128 printable characters", strconv.Quote(c.Name))
	s.That(c.LinkGeneration == "" || check.Name(c.LinkGeneration), "link_generation", "at most 128 printable characters",
		strconv.Quote(c.LinkGeneration))
	s.Pair("api_key", c.APIKey, "api_secret", string(c.APISecret), "LIVEKIT_API_KEY and LIVEKIT_API_SECRET")
	s.That(c.ReconnectDelay >= 10*time.Millisecond && c.ReconnectDelay <= c.MaxReconnectDelay, "reconnect_delay",
		fmt.Sprintf("between 10ms and max_reconnect_delay (%v)", c.MaxReconnectDelay), c.ReconnectDelay)
	s.That(c.MaxReconnectDelay <= 10*time.Minute, "max_reconnect_delay", "at most 10m", c.MaxReconnectDelay)
	return s.Err()
}
