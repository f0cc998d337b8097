package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config configures webhooks. Without URLs none are sent.
type Config struct {
	// URLs that events are posted to.
	URLs []URL `yaml:"urls" env:"URLS"`
	// Events to post to URLs without their own list; values of AllEvents.
	Events []string `yaml:"events" env:"EVENTS"`
	// Shown also posts the phase shown of an alert.
	Shown bool `yaml:"shown" env:"SHOWN"`
	// Timeout of one attempt.
	Timeout time.Duration `yaml:"timeout" env:"TIMEOUT"`
	// Retries after a failed attempt. Alerts are retried for a day.
	Retries int `yaml:"retries" env:"RETRIES"`
	// APIKey and APISecret sign the requests; LiveKit's key and secret when empty.
	APIKey    string        `yaml:"-" env:"API_KEY"`
	APISecret redact.Secret `yaml:"-" env:"API_SECRET"`
	// Keys are more pairs, "key: secret", one per line or separated by commas, as in the settings of LiveKit's server.
	// URL.SigningKey refers to them.
	Keys redact.Secret `yaml:"-" env:"KEYS"`
}

// URL is one recipient. In YAML, a plain string is its address.
type URL struct {
	// URL is the address.
	URL string `yaml:"url"`
	// Events to post to it; Config.Events when empty.
	Events []string `yaml:"events"`
	// SigningKey names the signing key, of Config.Keys; "" is APIKey.
	SigningKey string `yaml:"signing_key"`
}

// UnmarshalText reads a URL that is only an address.
func (u *URL) UnmarshalText(text []byte) error {
	*u = URL{URL: strings.TrimSpace(string(text))}
	return nil
}

// eventsOf returns the events that are posted to a URL.
func (c Config) eventsOf(u URL) []string {
	if len(u.Events) > 0 {
		return u.Events
	}
	return c.Events
}

// errKeys does not contain the secret value.
var errKeys = errors.New(`must be pairs such as "key: secret", each on a line of its own or after a comma, no key twice`)

// SigningKeys parses Keys and returns the secrets by key.
func (c Config) SigningKeys() (map[string]string, error) {
	keys := map[string]string{}
	for pair := range strings.FieldsFuncSeq(string(c.Keys), func(r rune) bool { return r == '\n' || r == ',' }) {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, secret, _ := strings.Cut(pair, ":")
		key, secret = strings.TrimSpace(key), strings.TrimSpace(secret)
		if key == "" || secret == "" || keys[key] != "" {
			return nil, errKeys
		}
		keys[key] = secret
	}
	return keys, nil
}

// Events of webhooks.
const (
	EventCommentFinished = "comment_finished" // a comment was published, or cut off
	EventStateChanged    = "state_changed"    // another state or activity
	EventError           = "error"            // a cycle, the engine or the bot failed
	EventAlert           = "alert"            // an alert began or ended
	EventHeard           = "heard"            // speech of a person in the room; not by default
)

// AllEvents are all events.
func AllEvents() []string {
	return []string{EventCommentFinished, EventStateChanged, EventError, EventAlert, EventHeard}
}

// maxURLs bounds the URLs; each has its own queue.
const maxURLs = 16

// DefaultConfig posts all events except people's speech, once there are URLs.
func DefaultConfig() Config {
	return Config{Events: []string{EventCommentFinished, EventStateChanged, EventError, EventAlert}, Timeout: 5 * time.Second, Retries: 5}
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.webhook".
func (c Config) Validate() error {
	var s check.Settings
	s.That(len(c.URLs) <= maxURLs, "urls", fmt.Sprintf("at most %d addresses", maxURLs), len(c.URLs))
	keys, err := c.SigningKeys()
	if err != nil {
		s.Add(fmt.Errorf("keys: %w", err))
	}
	all := strings.Join(AllEvents(), ", ")
	events := func(path string, list []string) {
		for _, e := range list {
			s.That(slices.Contains(AllEvents(), e), path, "of "+all, strconv.Quote(e))
		}
	}
	inherited := false
	for i, u := range c.URLs {
		path := fmt.Sprintf("urls[%d]", i)
		if hostOf(u.URL) == "" {
			// The value may hold a password: it is not repeated.
			s.Add(fmt.Errorf("%s: must be an http:// or https:// address with a host, without name and "+
				"password in it; number %d is not", path, i+1))
		}
		events(path+".events", u.Events)
		inherited = inherited || len(u.Events) == 0
		if _, ok := keys[u.SigningKey]; u.SigningKey != "" && u.SigningKey != c.APIKey && !ok && err == nil {
			s.That(false, path+".signing_key", "a key of TOUCHLINE_AGENT_WEBHOOK_KEYS or TOUCHLINE_AGENT_WEBHOOK_API_KEY",
				strconv.Quote(u.SigningKey))
		}
	}
	s.That(len(c.Events) > 0 || !inherited, "events", "one or more of "+all+" when there are urls without events of their own", "[]")
	events("events", c.Events)
	s.That(c.Timeout >= 100*time.Millisecond && c.Timeout <= time.Minute, "timeout", "between 100ms and 1m", c.Timeout)
	s.That(c.Retries >= 0 && c.Retries <= 20, "retries", "between 0 and 20", c.Retries)
	s.Pair("api_key", c.APIKey, "api_secret", string(c.APISecret),
		"TOUCHLINE_AGENT_WEBHOOK_API_KEY and TOUCHLINE_AGENT_WEBHOOK_API_SECRET")
	return s.Err()
}

// hostOf returns the host of a recipient's address; "" when the address cannot be used.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return u.Host
}
