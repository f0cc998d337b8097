package mqtt

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config sets the broker. Without a URL nothing is sent.
type Config struct {
	// URL of the broker: mqtt://host[:1883] or mqtts://host[:8883].
	URL string `yaml:"url" env:"URL"`
	// User and Password at the broker.
	User     string        `yaml:"user" env:"USER"`
	Password redact.Secret `yaml:"-" env:"PASSWORD"`
	// CA is a PEM file with the certificate authorities of the broker; the system's when empty.
	CA string `yaml:"ca" env:"CA"`
	// Prefix of all topics.
	Prefix string `yaml:"prefix" env:"PREFIX"`
	// Discovery is Home Assistant's discovery prefix; "" disables discovery.
	Discovery string `yaml:"discovery" env:"DISCOVERY"`
	// Shown also sends the phase shown of an alert.
	Shown bool `yaml:"shown" env:"SHOWN"`
}

// DefaultConfig returns the settings without a broker.
func DefaultConfig() Config { return Config{Prefix: "touchline", Discovery: "homeassistant"} }

// maxPrefix bounds a prefix, in bytes.
const maxPrefix = 64

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.mqtt".
func (c Config) Validate() error {
	var s check.Settings
	if _, err := c.broker(); c.URL != "" && err != nil {
		s.Add(fmt.Errorf("url: %w", err)) // the value may hold a password: it is not repeated
	}
	s.That(c.Password == "" || c.User != "", "user", "set when TOUCHLINE_AGENT_MQTT_PASSWORD is", `""`)
	s.That(c.CA == "" || c.URL == "" || strings.HasPrefix(c.URL, "mqtts:"), "ca", "empty when url is not mqtts://", strconv.Quote(c.CA))
	const rule = "1 to 64 bytes without space, +, # and $, and without / at its ends"
	s.That(validPrefix(c.Prefix), "prefix", rule, strconv.Quote(c.Prefix))
	s.That(c.Discovery == "" || validPrefix(c.Discovery), "discovery", `"" or `+rule, strconv.Quote(c.Discovery))
	s.That(c.Discovery != c.Prefix, "discovery", "another than prefix", strconv.Quote(c.Discovery))
	return s.Err()
}

func validPrefix(s string) bool {
	return check.Within(len(s), 1, maxPrefix) && !strings.ContainsAny(s, "+#$ \t\r\n\x00") && s == strings.Trim(s, "/") &&
		strings.ToValidUTF8(s, "") == s
}

var errURL = errors.New("must be mqtt://HOST or mqtts://HOST, with a port if it is not 1883 or 8883, and without name, password " +
	"and path; set the name in agent.mqtt.user and the password in TOUCHLINE_AGENT_MQTT_PASSWORD")

// broker returns the address of the broker, with its port.
func (c Config) broker() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.User != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errURL
	}
	port := map[string]string{"mqtt": "1883", "mqtts": "8883"}[u.Scheme]
	if port == "" {
		return nil, errURL
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, errURL
	}
	return &url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(u.Hostname(), port)}, nil
}

// tls returns the settings of the connection to a host; nil without TLS.
func (c Config) tls(u *url.URL) (*tls.Config, error) {
	if u.Scheme != "mqtts" {
		return nil, nil
	}
	cfg := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if c.CA == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("agent.mqtt.ca: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("agent.mqtt.ca: no certificate in %s; a file in PEM is required", c.CA)
	}
	return cfg, nil
}
