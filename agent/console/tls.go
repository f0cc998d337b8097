package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/internal/metrics"
)

// certLife is short enough for every browser.
const certLife = 365 * 24 * time.Hour

// checkEvery is the shortest interval between two looks at the files of a certificate. A self-signed one is replaced renewBefore its end.
const (
	checkEvery  = 10 * time.Second
	renewBefore = 24 * time.Hour
)

// TLSConfig returns the TLS settings, or nil for plain HTTP. Errors are ErrConfig or errors of reading the files. Files that change are
// read again.
func TLSConfig(cfg Config, now func() time.Time, log zerolog.Logger) (*tls.Config, error) {
	files := cfg.TLSCert != "" || cfg.TLSKey != ""
	c := &certificate{cfg: cfg, now: now, log: log}
	switch {
	case files && cfg.SelfSigned:
		return nil, fmt.Errorf("%w: console.tls_self_signed and console.tls_cert exclude each other", ErrConfig)
	case files && (cfg.TLSCert == "" || cfg.TLSKey == ""):
		return nil, fmt.Errorf("%w: console.tls_cert and console.tls_key must be set together", ErrConfig)
	case !files && !cfg.SelfSigned:
		return nil, nil //nolint:nilnil // nil is plain HTTP, as documented
	}
	c.state = c.stamp()
	if err := c.load(now()); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// certificate is the present certificate.
type certificate struct {
	cfg Config
	now func() time.Time
	log zerolog.Logger

	mu      sync.Mutex
	present *tls.Certificate
	looked  time.Time
	state   string // of the files when they were read
	reason  string // why they cannot be read now, as logged
}

// get returns the present certificate. A file that is half written, or that cannot be read, leaves the previous one in use, and is read
// again at the next look: one whose permissions were wrong has the same stamp when they are right.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.looked) < checkEvery {
		return c.present, nil
	}
	c.looked = now
	made := c.cfg.TLSCert == ""
	old := made && (now.Before(c.present.Leaf.NotBefore) || now.After(c.present.Leaf.NotAfter.Add(-renewBefore)))
	state := c.stamp()
	if !old && state == c.state {
		return c.present, nil
	}
	if err := c.load(now); err != nil {
		if c.reason != err.Error() {
			c.log.Warn().Err(err).Msg("certificate not replaced; the previous one stays in use")
		}
		c.reason = err.Error()
		return c.present, nil
	}
	c.state, c.reason = state, ""
	if !made {
		c.log.Info().Time("expires", c.present.Leaf.NotAfter).Msg("certificate replaced")
	}
	return c.present, nil
}

// stamp describes the files, so that a change is noticed.
func (c *certificate) stamp() string {
	var out strings.Builder
	for _, path := range []string{c.cfg.TLSCert, c.cfg.TLSKey} {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(&out, info.ModTime().UnixNano(), info.Size())
		}
	}
	return out.String()
}

// load reads the files, or makes a certificate.
func (c *certificate) load(now time.Time) error {
	if c.cfg.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.cfg.TLSCert, c.cfg.TLSKey)
		if err != nil {
			return fmt.Errorf("load the certificate (console.tls_cert, console.tls_key): %w", err)
		}
		c.present = &cert
		return nil
	}
	cert, err := selfSigned(c.cfg, now)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	c.present = &cert
	sum := sha256.Sum256(cert.Certificate[0])
	c.log.Info().Str("sha256", hex.EncodeToString(sum[:])).
		Msg("self-signed certificate made; compare its fingerprint in the browser")
	return nil
}

// selfSigned makes a certificate for all names and addresses of this machine. It is never stored.
func selfSigned(cfg Config, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("draw a serial number: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Touchline console"},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.Add(certLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		BasicConstraintsValid: true,
	}
	names := append([]string{"localhost"}, machineNames()...)
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil {
		names = append(names, host)
	}
	names = append(names, cfg.AllowedHosts...)
	ips := append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, interfaceAddrs()...)
	for _, n := range names {
		name, ok := hostName(n)
		if !ok {
			continue
		}
		if ip, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, ip)
		} else if !slices.Contains(tmpl.DNSNames, name) {
			tmpl.DNSNames = append(tmpl.DNSNames, name)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	for _, ip := range slices.Compact(ips) {
		if !ip.IsUnspecified() {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip.WithZone("").AsSlice())
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// collectTLS exports when the certificate expires.
func (s *Server) collectTLS(ch chan<- prometheus.Metric) {
	if s.tls == nil {
		return
	}
	if cert, err := s.tls.GetCertificate(nil); err == nil {
		metrics.Writer{Out: ch}.Gauge("touchline_tls_expires_timestamp_seconds", "When the certificate of the page and the API expires.",
			float64(cert.Leaf.NotAfter.Unix()))
	}
}
