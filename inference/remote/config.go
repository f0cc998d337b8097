package remote

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config sets the remote engine.
type Config struct {
	// URL of the server up to and including /v1.
	URL string `yaml:"url" env:"URL"`
	// Model name as the server lists it; "" selects its only model.
	Model string `yaml:"model" env:"MODEL"`
	// APIKey is read from the environment only.
	APIKey redact.Secret `yaml:"-" env:"API_KEY"`
	// FirstTokenTimeout and IdleTimeout bound the wait for the first token and between tokens.
	FirstTokenTimeout time.Duration `yaml:"first_token_timeout" env:"FIRST_TOKEN_TIMEOUT"`
	IdleTimeout       time.Duration `yaml:"idle_timeout" env:"IDLE_TIMEOUT"`
	// Retries after a failed connection or a 5xx answer, before the first token.
	Retries int `yaml:"retries" env:"RETRIES"`
	// Parallel is the largest number of concurrent requests, 1 to 64. Below that it adapts to the server's capacity.
	Parallel int `yaml:"parallel" env:"PARALLEL"`
	// JPEGQuality of the pictures sent, 1 to 100.
	JPEGQuality int `yaml:"jpeg_quality" env:"JPEG_QUALITY"`
	// OnePicture is sent to servers that take one picture a request: OneGrid or OneNewest.
	OnePicture string `yaml:"one_picture" env:"ONE_PICTURE"`
}

// Values of Config.OnePicture.
const (
	OneGrid   = "grid"   // the pictures side by side, numbered
	OneNewest = "newest" // the newest picture
)

// DefaultConfig returns the default settings, without a server.
func DefaultConfig() Config {
	return Config{
		FirstTokenTimeout: 20 * time.Second, IdleTimeout: 10 * time.Second, Retries: 2, Parallel: 4, JPEGQuality: 85, OnePicture: OneGrid,
	}
}

// Validate returns all violations, joined. Each message is "path: must be rule,
// is value" with the YAML path below "inference.remote".
func (c Config) Validate() error {
	var s check.Settings
	if c.URL == "" {
		// The caller decides whether an address is required.
	} else if u, err := url.Parse(c.URL); err != nil || u.User != nil {
		// The message omits the value, which may contain a password.
		s.Add(errors.New("url: must be an address without name and password in it; " +
			"a key goes into TOUCHLINE_INFERENCE_REMOTE_API_KEY"))
	} else {
		s.That((u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == "",
			"url", "http:// or https:// with a host, such as http://127.0.0.1:8000/v1", fmt.Sprintf("%q", c.URL))
	}
	s.That(check.Within(c.FirstTokenTimeout, 100*time.Millisecond, 10*time.Minute), "first_token_timeout",
		"between 100ms and 10m", c.FirstTokenTimeout)
	s.That(check.Within(c.IdleTimeout, 100*time.Millisecond, 10*time.Minute), "idle_timeout",
		"between 100ms and 10m", c.IdleTimeout)
	s.That(c.Retries >= 0 && c.Retries <= 10, "retries", "between 0 and 10", c.Retries)
	s.That(check.Within(c.Parallel, 1, 64), "parallel", "between 1 and 64", c.Parallel)
	s.That(c.JPEGQuality >= 1 && c.JPEGQuality <= 100, "jpeg_quality", "between 1 and 100", c.JPEGQuality)
	s.That(c.OnePicture == OneGrid || c.OnePicture == OneNewest, "one_picture", "grid or newest", fmt.Sprintf("%q", c.OnePicture))
	return s.Err()
}
