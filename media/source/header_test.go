package source_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
)

func TestParseHeader(t *testing.T) {
	got, err := source.ParseHeader([]string{"authorization: Bearer a:b", "X-Key:1", "X-Key: 2", "referer:  https://example.com/ "})
	require.NoError(t, err)
	require.Equal(t, http.Header{"Authorization": {"Bearer a:b"}, "X-Key": {"1", "2"}, "Referer": {"https://example.com/"}}, got)
	for _, bad := range []string{
		"", "secret", ": secret", "X Y: secret", "X-Key:", "X-Key: secret\r\nHost: other", "X-Key: secret\nY: z", "X\r\n: secret", "X-Key: secret\x00",
		"Host: secret", "host: secret", "Connection: secret", "TE: secret", "transfer-encoding: secret", "Proxy-Authorization: secret", "Upgrade: secret",
		"Content-Length: 1", "Range: bytes=0-", "X-Key: secret" + strings.Repeat("x", 5000),
	} {
		_, err := source.ParseHeader([]string{"A: 1", bad})
		require.ErrorContains(t, err, "header 2", "%q", bad)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = source.ParseHeader(make([]string, 17))
	require.Error(t, err)
}

// FuzzParseHeader: accepted lines become as many lines of a request, and none of the connection.
func FuzzParseHeader(f *testing.F) {
	for _, lines := range []string{
		"authorization: Bearer a:b", "X-Key:1\nX-Key: 2", "referer:  https://example.com/ ", "Host: other", "X-Key: secret\r\nHost: other", "X\r: 1", ": 1", "",
		"te: trailers", "proxy-a: 1", "X-Key: \x00", "X-Key: caf\xe9", "\tHost\t:1",
	} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		got, err := source.ParseHeader(lines)
		if err != nil {
			require.Less(t, len(err.Error()), 200, "it repeats no value")
			return
		}
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "camera"}, Header: got}
		var wire bytes.Buffer
		require.NoError(t, r.Write(&wire))
		read, err := http.ReadRequest(bufio.NewReader(&wire))
		require.NoError(t, err)
		require.Equal(t, "camera", read.Host)
		require.Empty(t, read.TransferEncoding)
		n := 0
		for name, values := range got {
			require.Equal(t, values, read.Header.Values(name))
			n += len(values)
		}
		require.Len(t, lines, n)
	})
}
