//go:build integration

package stockfront_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/internal/e2e/browser"
)

// TestTenRooms: the captions of ten rooms whose agents join at once, with and without tracks, reach ten of LiveKit's clients in one page.
func TestTenRooms(t *testing.T) {
	t.Parallel()
	const rooms = 10
	s, stop := sfutest.Start(t, sfu.Options{Log: zerolog.Nop()})
	t.Cleanup(func() { require.NoError(t, stop()) })
	keys := conn.Keys{APIKey: s.APIKey(), APISecret: s.APISecret()}
	page := &strings.Builder{}
	for n := range rooms {
		token, err := conn.ViewerToken(keys, conn.Person{Room: "room-" + strconv.Itoa(n), Identity: "vera"})
		require.NoError(t, err)
		fmt.Fprintf(page, "<iframe src='/#%s'></iframe>", url.Values{"url": {s.URL()}, "token": {token}}.Encode())
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join("web", "dist"))))
	mux.HandleFunc("/rooms", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<link rel=icon href=data:,>", page)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b, err := browser.Open(t.Context(), browser.Options{})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	began := time.Now()
	require.NoError(t, b.Navigate(server.URL+"/rooms"))

	ctx, cancel := context.WithCancel(t.Context())
	var bots sync.WaitGroup
	defer bots.Wait()
	defer cancel()
	for n := range rooms {
		bot, err := room.New(room.Options{
			URL: s.URL(), Keys: keys, Room: "room-" + strconv.Itoa(n), Identity: "bot", Name: "Bot", Relay: n%2 == 0, LoopbackOnly: true, Log: zerolog.Nop(),
		})
		require.NoError(t, err)
		captions := control.NewCaptions(bot, false, zerolog.Nop())
		bots.Go(func() { _ = bot.Run(ctx) })
		bots.Go(func() { _ = captions.Run(ctx) })
		bots.Go(func() {
			for i := 0; ctx.Err() == nil; i++ { // from before the join
				captions.Caption(agent.Caption{Segment: fmt.Sprint(n, "-", i), Text: fmt.Sprint("room ", n, " says ", i), Spoken: i%2 == 0, Final: true})
				<-time.After(500 * time.Millisecond)
			}
		})
	}
	// Ten pages join at once: the library gives up after 15 s on a busy machine, and a person reloads the page.
	until(t, b, "three captions in each room", `[...document.querySelectorAll('iframe')].filter((f, n) => {
		const said = [...f.contentDocument.querySelectorAll('#captions li')];
		f.since ??= Date.now();
		if (!said.length && Date.now() - f.since > 30000) { f.since = Date.now(); f.contentWindow.location.reload(); }
		return said.length > 2 && said.every((c) => c.textContent.startsWith('room ' + n + ' says')) }).length === `+strconv.Itoa(rooms))
	t.Logf("three captions in each of %d rooms after %.1f s", rooms, time.Since(began).Seconds())
	require.Empty(t, slices.DeleteFunc(b.Problems(), func(p string) bool { return strings.Contains(p, "could not establish") }))
}
