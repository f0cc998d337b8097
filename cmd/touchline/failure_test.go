//go:build integration && !nodemo

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// says waits until an element contains a text.
func says(t *testing.T, b browser.Page, within time.Duration, id, words string) {
	t.Helper()
	require.NoError(t, b.Until(within, "document.getElementById('"+id+"').checkVisibility() && "+
		"document.getElementById('"+id+"').innerText.includes('"+words+"')"),
		"%s says %q", id, text(t, b, "#"+id))
}

// TestFailures stops one part after the other: the page shows a message and
// recovers.
func TestFailures(t *testing.T) {
	const listen = "--listen"
	p, url := start(t, nil, "demo", "--counter", listen, "127.0.0.1:0")
	b := open(t, url, browser.Options{NoAutoplay: true})

	// Sound only after a click.
	plays(t, b, later)
	says(t, b, soon, "voice-on", "Turn on the voice")
	shoot(t, b, "failure-autoplay")
	require.NoError(t, b.Click("#voice-on"))
	require.NoError(t, b.Until(soon, "!document.getElementById('voice-on').checkVisibility()"))
	heard(t, b, later)

	// A visitor's camera, published with the page's button, disappears.
	clip, err := makeClip()
	require.NoError(t, err)
	visitor := open(t, url, browser.Options{Video: clip})
	plays(t, visitor, later)
	require.NoError(t, visitor.Click("#open-source"))
	for tries := 3; tries > 0; tries-- { // on a busy machine the connection may take too long
		require.NoError(t, visitor.Do(soon, clickText("button.pick", "This camera")))
		if visitor.Until(soon, "document.getElementById('panel').innerText.includes('It is being watched.')") == nil {
			break
		}
	}
	says(t, visitor, soon, "panel", "It is being watched.")
	shoot(t, visitor, "own-camera")
	require.NoError(t, b.Until(later, "document.getElementById('picture').videoWidth < 1280"), "the visitor's picture is shown")
	counts(t, b, 0)
	commented(t, b, later)
	visitor.Close()
	gone := time.Now()
	says(t, b, later, "banner", "The camera has left.")
	t.Logf("the page says that the camera is gone after %v", time.Since(gone))
	shoot(t, b, "failure-camera-gone")
	says(t, b, later, "banner-actions", "Built-in scene")
	require.NoError(t, b.Do(soon, clickText("#banner-actions button", "Built-in scene")))
	back := time.Now()
	require.NoError(t, b.Until(later, `document.getElementById('picture').videoWidth === 1280 && !document.getElementById('banner').checkVisibility()`))
	t.Logf("the built-in scene is back %v after the click", time.Since(back))
	assert.Empty(t, problems(b))

	// The server hangs for a while.
	all := family(p.cmd.Process.Pid)
	for _, pid := range all {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	// On a busy machine the connection is lost before the message was read.
	require.NoError(t, b.Until(later, `document.getElementById('banner').checkVisibility() &&
		/No new picture for several seconds|Connection to the room lost|The server does not answer/.test(document.getElementById('banner').innerText)`),
		"the banner says %q", text(t, b, "#banner"))
	shoot(t, b, "failure-stalled")
	for _, pid := range all {
		require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	}
	back = time.Now()
	require.NoError(t, b.Until(later, "!document.getElementById('banner').checkVisibility()"))
	plays(t, b, later)
	t.Logf("the picture goes on %v after the server does", time.Since(back))

	// The server stops, and another one starts at the same address.
	p.interrupt(t)
	gone = time.Now()
	says(t, b, later, "chip-words", "reconnecting")
	says(t, b, later, "stage", "The server does not answer.")
	t.Logf("the page says that the server is gone after %v", time.Since(gone))
	shoot(t, b, "failure-server-gone")
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	start(t, nil, "demo", listen, address)
	back = time.Now()
	plays(t, b, later)
	require.NoError(t, b.Until(later, "!document.getElementById('banner').checkVisibility()"))
	t.Logf("the page plays again %v after the server is back", time.Since(back))
	commented(t, b, later)
	heard(t, b, later)
}
