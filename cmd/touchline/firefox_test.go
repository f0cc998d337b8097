//go:build integration && !nodemo

package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// spyFirefox counts the pictures of the room, which are missing in Firefox's playback quality.
const spyFirefox = spy + `
addEventListener('loadeddata', (e) => {
  if (e.target.id !== 'picture' || window.spy.counting) return;
  const next = () => { window.spy.shown++; e.target.requestVideoFrameCallback(next) };
  window.spy.counting = true;
  next();
}, true);
`

// TestFirefox visits the demo's page: message without H264, words, voice after a click, an instruction, the visitor's
// camera, a reload. TOUCHLINE_OPENH264 names the folder of a plugin for H264.
func TestFirefox(t *testing.T) {
	t.Parallel()
	if _, err := browser.FindFirefox(); err != nil {
		t.Skip(err)
	}
	_, url := start(t, nil, "demo", "--counter", "--listen", "127.0.0.1:0")
	b, err := browser.OpenFirefox(context.WithoutCancel(t.Context()), browser.Options{
		Script: spyFirefox, NoAutoplay: true, Width: 390, Height: 844, OpenH264: os.Getenv("TOUCHLINE_OPENH264"),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			shoot(t, b, "failed-firefox")
			t.Logf("console: %q", b.Problems())
		}
		b.Close()
	})
	began := time.Now()
	require.NoError(t, b.Navigate(url))
	if os.Getenv("TOUCHLINE_OPENH264") != "" {
		plays(t, b, later)
		first := counts(t, b, 0)
		assert.Greater(t, counts(t, b, first), first, "the picture goes on")
		captioned(t, b, later)
	} else {
		says(t, b, later, "curtain", "This browser does not play H264.")
		shoot(t, b, "firefox-no-h264")
	}
	commented(t, b, later)
	wide, err := browser.Eval[bool](b, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")

	says(t, b, soon, "voice-on", "Turn on the voice")
	shoot(t, b, "firefox-phone")
	require.NoError(t, b.Click("#voice-on"))
	require.NoError(t, b.Until(soon, "!document.getElementById('voice-on').checkVisibility()"))
	heard(t, b, later)
	if os.Getenv("TOUCHLINE_OPENH264") == "" { // only now: after a click on the page the voice needs none
		require.NoError(t, b.ClickText("#curtain-actions button", "Picture without WebRTC"))
		require.NoError(t, b.Until(soon, "document.getElementById('picture-http').width === 640"))
	}

	require.NoError(t, b.Resize(1440, 900))
	require.NoError(t, b.Until(soon, `document.getElementById('say-state').textContent === 'The scene engine does not read instructions.' &&
		document.getElementById('instruction').hidden`))
	shoot(t, b, "firefox-desktop")

	require.NoError(t, b.Click("#open-source"))
	require.NoError(t, b.ClickText("button.pick", "This camera"))
	says(t, b, later, "panel", "It is being watched.")
	plays(t, b, later)
	captioned(t, b, later)
	shoot(t, b, "firefox-own-camera")

	require.NoError(t, b.Reload())
	says(t, b, later, "curtain", "No camera yet.") // it went with the page
	assert.Empty(t, problems(b), "errors on the console")
	t.Logf("all of it took %v", time.Since(began))
}
