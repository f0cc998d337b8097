package console

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config holds the settings of the page and the HTTP API.
type Config struct {
	// Listen is the address of the page and the API.
	Listen string `yaml:"listen" env:"LISTEN"`
	// Token is required on any address but a loopback one. If it is required and empty, a token is generated at the start.
	Token redact.Secret `yaml:"-" env:"TOKEN"`
	// TLSCert and TLSKey are files; SelfSigned makes a certificate instead.
	TLSCert    string `yaml:"tls_cert" env:"TLS_CERT"`
	TLSKey     string `yaml:"tls_key" env:"TLS_KEY"`
	SelfSigned bool   `yaml:"tls_self_signed" env:"TLS_SELF_SIGNED"`
	// AllowedHosts are additional names in the Host header, besides loopback names and the listen address.
	AllowedHosts []string `yaml:"allowed_hosts" env:"ALLOWED_HOSTS"`
	// TrustedProxies are the addresses or networks of reverse proxies. Only their X-Forwarded-For and Forwarded name the client.
	TrustedProxies []string `yaml:"trusted_proxies" env:"TRUSTED_PROXIES"`
	// KeepAlive is the time between comments on a silent SSE stream.
	KeepAlive time.Duration `yaml:"keep_alive" env:"KEEP_ALIVE"`
}

// DefaultConfig returns the settings of a page for this machine alone.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8199", KeepAlive: 15 * time.Second} }

// checkToken returns an error for a configured token that is too short.
func (c Config) checkToken() error {
	if n := len(c.Token); n > 0 && n < minToken {
		return fmt.Errorf("token: must have at least %d characters, has %d", minToken, n)
	}
	return nil
}

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: must be rule, is value" with the YAML path below "agent.console".
func (c Config) Validate() error {
	var s check.Settings
	_, port, err := net.SplitHostPort(c.Listen)
	_, perr := strconv.ParseUint(port, 10, 16)
	s.That(err == nil && perr == nil, "listen", "host:port, such as 127.0.0.1:8199", strconv.Quote(c.Listen))
	s.Add(c.checkToken())
	s.That((c.TLSCert == "") == (c.TLSKey == ""), "tls_key", "set together with tls_cert", strconv.Quote(c.TLSKey))
	s.That(!c.SelfSigned || c.TLSCert == "", "tls_self_signed",
		"false when tls_cert names a certificate", c.SelfSigned)
	for _, host := range c.AllowedHosts {
		s.That(host != "" && !strings.ContainsAny(host, "/ *@"), "allowed_hosts",
			"host names without scheme, path or wildcard", strconv.Quote(host))
	}
	for _, proxy := range c.TrustedProxies {
		_, err := parseProxies([]string{proxy})
		s.That(err == nil, "trusted_proxies", "addresses or networks, such as 127.0.0.1 or 10.0.0.0/8", strconv.Quote(proxy))
	}
	s.That(c.KeepAlive >= time.Second && c.KeepAlive <= 5*time.Minute, "keep_alive", "between 1s and 5m", c.KeepAlive)
	return s.Err()
}
