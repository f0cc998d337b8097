package agent

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/inference"
)

// WebhookConfig says who is told what happens, by HTTP. Nobody is told without URLs.
type WebhookConfig struct {
	// URLs that events are posted to.
	URLs []WebhookURL `yaml:"urls" env:"URLS"`
	// Events that are posted, of WebhookEvents, where a URL has none of its own.
	Events []string `yaml:"events" env:"EVENTS"`
	// Timeout of one attempt.
	Timeout time.Duration `yaml:"timeout" env:"TIMEOUT"`
	// Retries after an attempt that failed.
	Retries int `yaml:"retries" env:"RETRIES"`
	// APIKey and APISecret sign what is posted; those of LiveKit when empty.
	APIKey    string           `yaml:"-" env:"API_KEY"`
	APISecret inference.Secret `yaml:"-" env:"API_SECRET"`
	// Keys are further pairs, "key: secret", each on a line of its own or after a comma, as LiveKit's server
	// takes its own. WebhookURL.SigningKey names them.
	Keys inference.Secret `yaml:"-" env:"KEYS"`
}

// WebhookURL is one receiver. Where only its address is given, text will do.
type WebhookURL struct {
	// URL that events are posted to.
	URL string `yaml:"url"`
	// Events that are posted there; those of WebhookConfig when empty.
	Events []string `yaml:"events"`
	// SigningKey names the key that signs what is posted there, of WebhookConfig.Keys; "" is APIKey's pair.
	SigningKey string `yaml:"signing_key"`
}

// UnmarshalText takes the address alone.
func (u *WebhookURL) UnmarshalText(text []byte) error {
	*u = WebhookURL{URL: strings.TrimSpace(string(text))}
	return nil
}

// EventsOf are the events that are posted to a URL.
func (c WebhookConfig) EventsOf(u WebhookURL) []string {
	if len(u.Events) > 0 {
		return u.Events
	}
	return c.Events
}

// errKeys repeats nothing of what is wrong: it is secret.
var errKeys = errors.New(`must be pairs such as "key: secret", each on a line of its own or after a comma, no key twice`)

// SigningKeys reads Keys: the secrets by key.
func (c WebhookConfig) SigningKeys() (map[string]string, error) {
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

// Events that webhooks tell.
const (
	EventCommentFinished = "comment_finished" // a comment was heard or read, or cut off
	EventStateChanged    = "state_changed"    // another state or chip
	EventError           = "error"            // a look failed, the engine or the bot
)

// WebhookEvents are all events.
func WebhookEvents() []string {
	return []string{EventCommentFinished, EventStateChanged, EventError}
}

// maxWebhooks is how many URLs there may be: each has its own queue.
const maxWebhooks = 16

func defaultWebhook() WebhookConfig {
	return WebhookConfig{Events: WebhookEvents(), Timeout: 5 * time.Second, Retries: 5}
}

func (c WebhookConfig) validate() []error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("webhook.%s: must be %s, is %v", path, rule, value))
		}
	}
	check(len(c.URLs) <= maxWebhooks, "urls", fmt.Sprintf("at most %d addresses", maxWebhooks), len(c.URLs))
	keys, err := c.SigningKeys()
	if err != nil {
		errs = append(errs, fmt.Errorf("webhook.keys: %w", err))
	}
	all := strings.Join(WebhookEvents(), ", ")
	events := func(path string, list []string) {
		for _, e := range list {
			check(slices.Contains(WebhookEvents(), e), path, "of "+all, strconv.Quote(e))
		}
	}
	inherited := false
	for i, u := range c.URLs {
		path := fmt.Sprintf("urls[%d]", i)
		if !validURL(u.URL) {
			// The value may hold a password: it is not repeated.
			errs = append(errs, fmt.Errorf("webhook.%s: must be an http:// or https:// address with a host, without name and "+
				"password in it; number %d is not", path, i+1))
		}
		events(path+".events", u.Events)
		inherited = inherited || len(u.Events) == 0
		if _, ok := keys[u.SigningKey]; u.SigningKey != "" && u.SigningKey != c.APIKey && !ok && err == nil {
			check(false, path+".signing_key", "a key of TOUCHLINE_AGENT_WEBHOOK_KEYS or TOUCHLINE_AGENT_WEBHOOK_API_KEY",
				strconv.Quote(u.SigningKey))
		}
	}
	check(len(c.Events) > 0 || !inherited, "events", "one or more of "+all+" when there are urls without events of their own", "[]")
	events("events", c.Events)
	check(c.Timeout >= 100*time.Millisecond && c.Timeout <= time.Minute, "timeout", "between 100ms and 1m", c.Timeout)
	check(c.Retries >= 0 && c.Retries <= 20, "retries", "between 0 and 20", c.Retries)
	if (c.APIKey == "") != (c.APISecret == "") {
		missing := "api_secret"
		if c.APIKey == "" {
			missing = "api_key"
		}
		errs = append(errs, fmt.Errorf("webhook.%s: %w", missing, errHalfPair))
	}
	return errs
}

func validURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.User == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

var errHalfPair = errors.New("must be set when the other half of the pair is: " +
	"TOUCHLINE_AGENT_WEBHOOK_API_KEY and TOUCHLINE_AGENT_WEBHOOK_API_SECRET go together")
