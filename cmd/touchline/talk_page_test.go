//go:build integration && !nodemo

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// transcribes is a transcription server that hears the same in all sound.
func transcribes(t *testing.T, words string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"text": words, "language": "english"})
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// mouse presses or releases the left button over an element.
func mouse(t *testing.T, b *browser.Browser, what input.DispatchMouseEventType, selector string) {
	t.Helper()
	at, err := browser.Eval[[]float64](b, soon, `(() => { const r = document.querySelector('`+selector+`').getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2] })()`)
	require.NoError(t, err)
	buttons := int64(0)
	if what == input.DispatchMouseEventTypeMousePressed {
		buttons = 1
	}
	require.NoError(t, b.Do(soon, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{
			Type: what, X: at[0], Y: at[1], Button: input.MouseButtonLeft, Buttons: buttons, ClickCount: 1,
		})
		return err
	})))
}

// microphones joins a room and sends true when somebody publishes a microphone, and false when it ends.
func microphones(t *testing.T, page string) <-chan bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(page, "/")+"/api/livekit/token", strings.NewReader(`{"role":"viewer"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	var grant struct{ URL, Token, Agent string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&grant))
	changes := make(chan bool, 16)
	tell := func(on bool) func(*lksdk.RemoteTrackPublication, *lksdk.RemoteParticipant) {
		return func(pub *lksdk.RemoteTrackPublication, p *lksdk.RemoteParticipant) {
			if pub.Source() == livekit.TrackSource_MICROPHONE && p.Identity() != grant.Agent {
				changes <- on
			}
		}
	}
	call := lksdk.NewRoomCallback()
	call.OnTrackPublished, call.OnTrackUnpublished = tell(true), tell(false)
	room := lksdk.NewRoom(call)
	require.NoError(t, room.JoinWithToken(grant.URL, grant.Token, lksdk.WithAutoSubscribe(false)))
	t.Cleanup(room.Disconnect)
	return changes
}

func next(t *testing.T, changes <-chan bool) bool {
	t.Helper()
	select {
	case on := <-changes:
		return on
	case <-time.After(later):
		require.FailNow(t, "no microphone changed")
		return false
	}
}

// TestHoldToTalk: the button says why it does not work and turns orders on; while it is held, the room has the microphone and the
// commentator knows.
func TestHoldToTalk(t *testing.T) {
	sound := filepath.Join(t.TempDir(), "quiet.wav")
	_, stderr, code := touchline(t, "say", "--voice", "slt", "Say it shorter, please.", sound)
	require.Zero(t, code, stderr)
	p, url := start(t, []string{
		"TOUCHLINE_INFERENCE_ENGINE=auto", "XDG_CACHE_HOME=" + t.TempDir(),
		"TOUCHLINE_INFERENCE_RECOGNIZER_PROGRAM=remote", "TOUCHLINE_INFERENCE_RECOGNIZER_URL=" + transcribes(t, "Shorter, please."),
	}, "demo", "--listen", "127.0.0.1:0")
	b := open(t, url, browser.Options{Audio: sound})
	plays(t, b, later)
	changes := microphones(t, url)

	// It is off by default; who may change settings turns it on.
	require.NoError(t, b.Until(soon, `/does not listen for orders/.test(document.getElementById('talk').title)`), "it says %q", text(t, b, "#talk-reason"))
	require.NoError(t, b.Click("#talk"))
	require.NoError(t, b.Until(soon, `getComputedStyle(document.getElementById('talk-note')).visibility === 'visible' && document.getElementById('ears').hidden`))
	shoot(t, b, "talk-off")
	require.NoError(t, b.Click("#talk-offer"))
	require.NoError(t, b.Until(soon, `document.getElementById('talk').getAttribute('aria-disabled') === 'false'`), "it says %q", text(t, b, "#talk-reason"))
	require.NoError(t, b.Until(soon, `document.getElementById('ears-words').textContent === 'hears orders'`))
	shoot(t, b, "talk-listens")

	mouse(t, b, input.DispatchMouseEventTypeMousePressed, "#talk")
	require.True(t, next(t, changes))
	require.NoError(t, b.Until(later, `document.getElementById('talk').dataset.stage === 'on'`), "it says %q", text(t, b, "#talk-reason"))
	shoot(t, b, "talk-held")
	mouse(t, b, input.DispatchMouseEventTypeMouseReleased, "#talk")
	require.False(t, next(t, changes))
	require.NoError(t, b.Until(soon, `document.getElementById('talk').dataset.stage === 'off'`))
	require.Empty(t, text(t, b, "#talk-reason"), "the commentator took both calls")

	// A phone folds it all.
	phone := open(t, url, browser.Options{Width: 390, Height: 844, Phone: true})
	plays(t, phone, later)
	require.NoError(t, phone.Until(soon, `!document.getElementById('ears').hidden`))
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "talk-phone")
	for _, b := range []*browser.Browser{b, phone} {
		assert.Empty(t, b.Problems(), "errors on the console")
	}
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
}
