package redact_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/redact"
)

const token = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJrZXkifQ.hdPBK_yGDZG7igN6qTNJShQ-fdfTivkLx"

func TestText(t *testing.T) {
	require.Equal(t, "invalid token: (an access token), sorry", redact.Text("invalid token: "+token+", sorry"))
	require.Equal(t, "eyJ is no token, and a.b.c neither", redact.Text("eyJ is no token, and a.b.c neither"))
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"http://10.0.0.5:8000/v1: refused":                                      "the server: refused",
		"dial wss://user:pass@a.example/x?key=y.":                               "dial the server.",
		`Post "https://a.example/v1/chat": EOF, (http://b)`:                     `Post "the server": EOF, (the server)`,
		"unreachable: dial tcp 10.0.0.5:8000: connect: connection refused":      "unreachable: dial tcp: connect: connection refused",
		"dial tcp [fd00::5]:8000: i/o timeout":                                  "dial tcp: i/o timeout",
		"dial unix /run/models.sock: connect: no such file or directory":        "dial unix: connect: no such file or directory",
		"dial tcp: lookup models.corp on 10.0.0.2:53: no such host":             "dial tcp: lookup: no such host",
		"lookup models.corp: read udp4 10.0.0.7:4000->10.0.0.2:53: i/o timeout": "lookup: read udp4: i/o timeout",
		`Post "https://a.example": read tcp 10.0.0.7:1->10.0.0.5:2: reset`:      `Post "the server": read tcp: reset`,
		"read the answer: no words":                                             "read the answer: no words",
		"no address: http is none":                                              "no address: http is none",

		"x509: certificate is valid for a.corp, *.b.corp, 10.0.0.5, not cam.corp; retried":      "x509: certificate is valid for other names; retried",
		"x509: certificate is not valid for any names, but wanted to match cam.corp":            "x509: certificate is not valid for any names",
		"x509: cannot validate certificate for 10.0.0.5 because it doesn't contain any IP SANs": "x509: cannot validate certificate for the server because it doesn't contain any IP SANs",
		"this address may not be opened: fd00::5 is private; set sources.allow to permit it":    "this address may not be opened: it is private; set sources.allow to permit it",
		"the camera requires a user and a password: rtsp://USER:PASSWORD@HOST/PATH":             "the camera requires a user and a password: rtsp://USER:PASSWORD@HOST/PATH",
		"no stream at rtsp://cam.corp/1": "no stream at the server",
		"x509: a root or intermediate certificate is not authorized to sign for this name: DNS name \"cam.corp\" is not permitted":                                      "x509: a root or intermediate certificate is not authorized to sign for this name",
		`x509: certificate signed by unknown authority (possibly because of "x509: \"a\"" while trying to verify candidate authority certificate "Corp (CA)"); retried`: "x509: certificate signed by unknown authority; retried",
	} {
		require.Equal(t, want, redact.Addresses(text))
	}
}

// TestCertificates: the errors of crypto/x509 as this version of Go writes them.
func TestCertificates(t *testing.T) {
	for _, c := range []x509.Certificate{
		{DNSNames: []string{"a.corp", "b.corp"}},
		{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 5)}},
		{Subject: pkix.Name{CommonName: "c.corp"}},
		{},
	} {
		for _, host := range []string{"cam.corp", "10.0.0.7"} {
			text := redact.Addresses(c.VerifyHostname(host).Error())
			require.Contains(t, text, "x509: ")
			require.NotContains(t, text, "corp")
			require.NotContains(t, text, "10.0.0")
		}
	}
}

func TestError(t *testing.T) {
	require.NoError(t, redact.Error(nil))
	plain := errors.New("plain")
	require.Equal(t, plain, redact.Error(plain))
	err := redact.Error(fmt.Errorf("%w: %s", context.Canceled, token))
	require.EqualError(t, err, "context canceled: (an access token)")
	require.ErrorIs(t, err, context.Canceled)
}

func TestWriter(t *testing.T) {
	var out bytes.Buffer
	line := []byte(`{"error":"invalid token: ` + token + `"}`)
	n, err := redact.Writer{Out: &out}.Write(line)
	require.NoError(t, err)
	require.Equal(t, len(line), n)
	require.JSONEq(t, `{"error":"invalid token: (an access token)"}`, out.String())
	_, err = redact.Writer{Out: full{}}.Write(line)
	require.Error(t, err)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }
