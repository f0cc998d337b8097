//go:build integration && !nodemo

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// transcribes is a transcription server that hears the present words in all sound.
func transcribes(t *testing.T, words *atomic.Value) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"text": words.Load(), "language": "english"})
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

// microphones waits until the commentator receives so many microphones.
func microphones(t *testing.T, b *browser.Browser, n string) {
	t.Helper()
	require.NoError(t, b.Until(later, `fetch('/metrics').then((r) => r.text()).then((t) => /^touchline_hearing_microphones(\{.*\})? `+n+`$/m.test(t))`))
}

// TestHoldToTalk: the button says why it does not work and turns orders on; while it is held, the room has the microphone and the
// commentator obeys. The strip shows who said what, to those who may have it, and the history has the orders.
func TestHoldToTalk(t *testing.T) {
	const token = "correct-horse-battery"
	var words atomic.Value
	words.Store("Shorter, please.")
	records := filepath.Join(t.TempDir(), "records")
	sound := filepath.Join(t.TempDir(), "quiet.wav")
	_, stderr, code := touchline(t, "say", "--voice", "slt", "Please say it shorter from now on because I can not follow it", sound)
	require.Zero(t, code, stderr)
	p, url := start(t, []string{
		"TOUCHLINE_AGENT_CONSOLE_TOKEN=" + token, "TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH=" + records,
		"TOUCHLINE_INFERENCE_ENGINE=auto", "XDG_CACHE_HOME=" + t.TempDir(),
		"TOUCHLINE_INFERENCE_RECOGNIZER_PROGRAM=remote", "TOUCHLINE_INFERENCE_RECOGNIZER_URL=" + transcribes(t, &words),
	}, "demo", "--hearing", "off", "--listen", "127.0.0.1:0")
	b := open(t, url+"#token="+token, browser.Options{Audio: sound + "%noloop"})
	plays(t, b, later)

	// It is off; who may change settings turns it on.
	require.NoError(t, b.Until(soon, `/does not listen for orders/.test(document.getElementById('talk').title)`), "it says %q", text(t, b, "#talk-reason"))
	require.NoError(t, b.Click("#talk"))
	require.NoError(t, b.Until(soon, `getComputedStyle(document.getElementById('talk-note')).visibility === 'visible' && document.getElementById('ears').hidden`))
	shoot(t, b, "talk-off")
	require.NoError(t, b.Click("#talk-offer"))
	require.NoError(t, b.Until(soon, `document.getElementById('talk').getAttribute('aria-disabled') === 'false'`), "it says %q", text(t, b, "#talk-reason"))
	require.NoError(t, b.Until(soon, `document.getElementById('ears-words').textContent === 'hears orders'`))
	shoot(t, b, "talk-listens")

	mouse(t, b, input.DispatchMouseEventTypeMousePressed, "#talk")
	microphones(t, b, "1")
	require.NoError(t, b.Until(later, `document.getElementById('talk').dataset.stage === 'on'`), "it says %q", text(t, b, "#talk-reason"))
	shoot(t, b, "talk-held")
	require.NoError(t, b.Until(later, `document.querySelector('#heard-list li')`), "the words so far")
	mouse(t, b, input.DispatchMouseEventTypeMouseReleased, "#talk")
	microphones(t, b, "0")
	require.NoError(t, b.Until(soon, `document.getElementById('talk').dataset.stage === 'off'`))
	require.Empty(t, text(t, b, "#talk-reason"), "the commentator took both calls")
	require.NoError(t, b.Until(later, `document.querySelector('#heard-list [data-tone="on"]')`))
	require.Regexp(t, `^You: Shorter, please\. order – .`, text(t, b, "#heard-list li"))

	// Somebody else, on a phone, by the key of the button. Who may only watch sees no word.
	link, err := browser.Eval[string](b, soon, `fetch('/api/links', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"rights":["watch"],"for":"1h"}' }).then((r) => r.json()).then((x) => x.token)`)
	require.NoError(t, err)
	viewer := open(t, url+"#token="+link, browser.Options{})
	plays(t, viewer, later)
	words.Store("Do you see the ball? Only talk about the white team.")
	phone := open(t, url+"#token="+token, browser.Options{Width: 390, Height: 844, Phone: true, Audio: sound + "%noloop"})
	plays(t, phone, later)
	require.NoError(t, phone.Until(soon, `!document.getElementById('ears').hidden && document.querySelector('#heard-list [data-tone="on"]')`))
	_, err = browser.Eval[bool](phone, soon, `(() => { const t = document.getElementById('talk'); t.focus(); t.dispatchEvent(new KeyboardEvent('keydown', { key: ' ', bubbles: true })); return true })()`)
	require.NoError(t, err)
	microphones(t, b, "1")
	require.NoError(t, phone.Until(later, `document.getElementById('talk').dataset.stage === 'on'`), "it says %q", text(t, phone, "#talk-reason"))
	require.NoError(t, b.Until(later, `document.querySelector('#heard-list li:nth-child(2)')`), "the words so far")
	shoot(t, b, "heard-draft")
	_, err = browser.Eval[bool](phone, soon, `document.getElementById('talk').dispatchEvent(new KeyboardEvent('keyup', { key: ' ', bubbles: true }))`)
	require.NoError(t, err)
	microphones(t, b, "0")
	require.NoError(t, b.Until(later, `document.querySelectorAll('#heard-list [data-draft="false"]').length >= 2`))
	require.Regexp(t, `^viewer-\S+: Do you see the ball\? `, text(t, b, "#heard-list li:last-child"))
	shoot(t, b, "heard")
	require.NoError(t, viewer.Until(soon, `!document.getElementById('ears').hidden && document.querySelectorAll('#heard-list li').length === 0`))
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "talk-phone")

	// What one person said is deleted, after a second click, on all pages and in the history.
	require.NoError(t, b.Click("#heard-list li:last-child .heard-one"))
	require.NoError(t, b.Until(soon, `/^Delete all that viewer-\S+ said\?$/.test(document.querySelector('#heard-list li:last-child .heard-one').ariaLabel)`))
	shoot(t, b, "heard-delete-one")
	require.NoError(t, b.Click("#heard-list li:last-child .heard-one"))
	for _, page := range []*browser.Browser{b, phone} {
		require.NoError(t, page.Until(soon, `document.querySelectorAll('#heard-list li').length === 1 && /Shorter, please/.test(document.getElementById('heard-list').textContent)`))
	}
	for _, b := range []*browser.Browser{b, phone, viewer} {
		assert.Empty(t, problems(b), "errors on the console")
	}
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
	stdout, stderr, code := touchline(t, "history", "demo", "--heard", "--store", records)
	require.Zero(t, code, stderr)
	require.Regexp(t, `: Shorter, please\.  \[order: `, stdout)
	require.NotContains(t, stdout, "Do you see the ball?")
}
