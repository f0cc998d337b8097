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
	// URLs that each event is posted to.
	URLs []string `yaml:"urls" env:"URLS"`
	// Events that are posted, of WebhookEvents.
	Events []string `yaml:"events" env:"EVENTS"`
	// Timeout of one attempt.
	Timeout time.Duration `yaml:"timeout" env:"TIMEOUT"`
	// Retries after an attempt that failed.
	Retries int `yaml:"retries" env:"RETRIES"`
	// APIKey and APISecret sign what is posted; those of LiveKit when empty.
	APIKey    string           `yaml:"-" env:"API_KEY"`
	APISecret inference.Secret `yaml:"-" env:"API_SECRET"`
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
	for i, s := range c.URLs {
		u, err := url.Parse(s)
		if err != nil || u.User != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			// The value may hold a password: it is not repeated.
			errs = append(errs, fmt.Errorf("webhook.urls: must be http:// or https:// addresses with a host, without name and "+
				"password in them; number %d is not", i+1))
		}
	}
	check(len(c.Events) > 0 || len(c.URLs) == 0, "events", "one or more of "+strings.Join(WebhookEvents(), ", ")+" when there are urls", "[]")
	for _, e := range c.Events {
		check(slices.Contains(WebhookEvents(), e), "events", "of "+strings.Join(WebhookEvents(), ", "), strconv.Quote(e))
	}
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

var errHalfPair = errors.New("must be set when the other half of the pair is: " +
	"TOUCHLINE_AGENT_WEBHOOK_API_KEY and TOUCHLINE_AGENT_WEBHOOK_API_SECRET go together")
