//go:build !nodemo

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/cmd/internal/browser"
)

// TestWHEPPlayer opens the player of the documentation, on a page of another origin, beside a running demo: the
// picture's counter is read back, the voice is heard, comments come by the data channel.
func TestWHEPPlayer(t *testing.T) {
	_, home := start(t, nil, "demo", "--listen", "127.0.0.1:0")
	html, err := os.ReadFile(filepath.Join(checkout, "docs", "whep-player.html"))
	require.NoError(t, err)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(html) }))
	t.Cleanup(page.Close)

	// A page from elsewhere needs a token; the page's own API gives one to people on this machine.
	resp, err := http.Post(home+"api/livekit/token", "application/json", strings.NewReader(`{"role": "viewer", "name": "Vera"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	var grant struct{ Token, Room string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&grant))
	player := func(token string) string {
		return page.URL + "/?" + url.Values{"url": {home + "whep/" + grant.Room}, "token": {token}}.Encode()
	}
	refused := open(t, player(""), browser.Options{})
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(refused.Problems(), " "), "401") }, soon, 50*time.Millisecond)
	refused.Close()

	b := open(t, player(grant.Token), browser.Options{})
	require.NoError(t, b.Until(later, `document.getElementById('picture').videoWidth > 0`), "%q", b.Problems())
	t.Logf("first picture %.2f s after the page was asked for", firstPicture(t, b))
	first := counts(t, b, 0)
	require.Greater(t, counts(t, b, first), first, "the picture goes on")
	heard(t, b, later)
	require.NoError(t, b.Until(later, `document.querySelectorAll('#said li').length > 1`))
	t.Logf("said: %q", text(t, b, "#said li"))

	// One who comes later sees a picture at once, also between two key frames.
	late := open(t, player(grant.Token), browser.Options{})
	require.NoError(t, late.Until(later, `spy.first > 0`))
	began, err := browser.Eval[float64](late, soon, `(async () => { await 0; return performance.getEntriesByType('resource').find((e) => e.name.includes('/whep/')).responseEnd / 1000 })()`)
	require.NoError(t, err)
	wait := firstPicture(t, late) - began
	t.Logf("late viewer: first picture %.2f s after the answer", wait)
	assert.Less(t, wait, 5.0, "1.5 s on a calm machine")
	require.NoError(t, late.Until(soon, `document.querySelectorAll('#said li').length > 0`), "comments of before")

	// The session ends by DELETE, once.
	end, err := browser.Eval[int](late, soon, `fetch(window.session, { method: 'DELETE' }).then((r) => r.status)`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, end)
	require.NoError(t, late.Until(soon, `pc.connectionState === 'closed' || pc.connectionState === 'failed' || pc.connectionState === 'disconnected'`))

	// Programs on this machine need no token, pages from elsewhere do.
	post := func(origin string) int {
		r, err := http.NewRequest(http.MethodPost, home+"whep/"+grant.Room, strings.NewReader("v=0\r\n"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/sdp")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusBadRequest, post(""), "no media section")
	require.Equal(t, http.StatusUnauthorized, post("http://elsewhere.example"))
}
