//go:build integration

package sfu_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/livekit/livekit-server/pkg/service"
	"github.com/stretchr/testify/require"
	"github.com/ua-parser/uap-go/uaparser"

	"touchline/agent/sfu"
)

var allBrowsers = slices.Clone(uaparser.DefinitionYaml) // before any server replaces it

// The server knows the browsers and systems that it treats in a way of their own by the names of the whole list.
func TestBrowsers(t *testing.T) {
	_, err := sfu.New(sfu.Options{})
	require.NoError(t, err)
	whole, err := uaparser.NewFromBytes(allBrowsers)
	require.NoError(t, err)
	for _, agent := range []string{
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/142.0.0.0 Safari/537.36",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
		"Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
		"Mozilla/5.0 (Android 15; Mobile; rv:145.0) Gecko/145.0 Firefox/145.0",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.4 Safari/605.1.15",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.4 Mobile/15E148 Safari/604.1",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) FxiOS/145.0 Mobile/15E148 Safari/605.1.15",
		"livekit-client of something else",
	} {
		want := whole.Parse(agent)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/rtc?sdk=js", http.NoBody)
		require.NoError(t, err)
		require.NoError(t, r.ParseForm())
		r.Header.Set("User-Agent", agent)
		got := service.ParseClientInfo(r)
		require.Equal(t, want.UserAgent.Family, got.Browser, agent)
		require.Equal(t, want.UserAgent.ToVersionString(), got.BrowserVersion, agent)
		require.Equal(t, want.Os.Family, got.Os, agent)
	}
}
