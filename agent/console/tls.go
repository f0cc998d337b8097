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
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// certLife is short enough for every browser.
const certLife = 365 * 24 * time.Hour

// TLSConfig returns the TLS settings, or nil for plain HTTP. Errors are ErrConfig or errors of reading the files.
func TLSConfig(cfg Config, log zerolog.Logger) (*tls.Config, error) {
	files := cfg.TLSCert != "" || cfg.TLSKey != ""
	var cert tls.Certificate
	var err error
	switch {
	case files && cfg.SelfSigned:
		return nil, fmt.Errorf("%w: console.tls_self_signed and console.tls_cert exclude each other", ErrConfig)
	case files && (cfg.TLSCert == "" || cfg.TLSKey == ""):
		return nil, fmt.Errorf("%w: console.tls_cert and console.tls_key must be set together", ErrConfig)
	case files:
		if cert, err = tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey); err != nil {
			return nil, fmt.Errorf("load the certificate (console.tls_cert, console.tls_key): %w", err)
		}
	case cfg.SelfSigned:
		if cert, err = selfSigned(cfg, time.Now()); err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		sum := sha256.Sum256(cert.Certificate[0])
		log.Info().Str("sha256", hex.EncodeToString(sum[:])).
			Msg("self-signed certificate made; compare its fingerprint in the browser")
	default:
		return nil, nil //nolint:nilnil // nil is plain HTTP, as documented
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"h2", "http/1.1"},
	}, nil
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
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
