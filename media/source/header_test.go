package source_test

import (
	"net/http"
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
