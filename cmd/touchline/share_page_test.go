//go:build integration && !nodemo

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// TestSharedLinks: who has the page's token makes a link that watches and one that steers. In their browsers, the first shows
// picture, captions and comments and no controls, and the second everything.
func TestSharedLinks(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	p, url := start(t, []string{"TOUCHLINE_INFERENCE_ENGINE=scene", "TOUCHLINE_AGENT_CONSOLE_TOKEN=" + token}, "demo", "--listen", "127.0.0.1:0")
	desk := open(t, url+"#token="+token, browser.Options{})
	plays(t, desk, later)
	require.NoError(t, desk.Click("#open-share"))
	link := func(what string) string {
		t.Helper()
		_, err := browser.Eval[bool](desk, soon, `(() => { document.getElementById('share-link').value = ''; document.getElementById('share-what').value = '`+what+`'; return true; })()`)
		require.NoError(t, err)
		require.NoError(t, desk.Click("#panel .share .act"))
		require.NoError(t, desk.Until(soon, `document.getElementById('share-link').value !== ''`), "it says %q", text(t, desk, ".sharing"))
		out, err := browser.Eval[string](desk, soon, `document.getElementById('share-link').value`)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(out, strings.TrimSuffix(url, "/")+"/#token="), out)
		return out
	}
	shoot(t, desk, "share")
	watches, steers := link("watch"), link("steer")

	viewer := open(t, watches, browser.Options{Width: 390, Height: 844, Phone: true})
	plays(t, viewer, later)
	require.NoError(t, viewer.Until(soon, `document.body.dataset.may === 'watch'`))
	require.Contains(t, text(t, viewer, "#terms"), "This link lets you watch until ")
	shown := func(b *browser.Browser, id string) bool {
		t.Helper()
		out, err := browser.Eval[bool](b, soon, `document.getElementById('`+id+`').offsetParent !== null`)
		require.NoError(t, err)
		return out
	}
	for _, id := range []string{"say", "voice", "open-source", "open-settings", "open-share", "profiles"} {
		assert.False(t, shown(viewer, id), id)
	}
	for _, id := range []string{"picture", "open-alerts", "open-numbers", "mute"} {
		assert.True(t, shown(viewer, id), id)
	}
	require.NoError(t, viewer.Until(soon, `fetch('/api/instruction', { method: 'DELETE' }).then((r) => r.status === 403)`))
	shoot(t, viewer, "watches-phone")

	producer := open(t, steers, browser.Options{})
	plays(t, producer, later)
	require.NoError(t, producer.Until(soon, `/ steer$/.test(document.body.dataset.may)`))
	for _, id := range []string{"say", "voice", "open-source", "open-settings", "open-share", "profiles"} {
		assert.True(t, shown(producer, id), id)
	}
	require.NoError(t, producer.Until(soon, `fetch('/api/settings', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"speech":false}' }).then((r) => r.ok)`))
	require.NoError(t, producer.Click("#open-settings"))
	require.NoError(t, producer.Until(soon, `document.getElementById('set-long_side').value === '448' && document.getElementById('set-max_slices').disabled`),
		"the scene engine cuts no pictures")
	shoot(t, producer, "steers")

	require.NoError(t, desk.Until(soon, `document.querySelectorAll('#share-list button').length === 2`))
	shoot(t, desk, "links")
	require.NoError(t, desk.Click("#share-list li:last-child button")) // the oldest
	require.NoError(t, desk.Until(soon, `document.querySelectorAll('#share-list button').length === 1`))
	require.NoError(t, viewer.Until(soon, `fetch('/api/status').then((r) => r.status === 401)`))
	require.NoError(t, viewer.Until(soon, `/revoked/.test(document.getElementById('curtain-words').innerText)`), "it says %q", text(t, viewer, "#curtain-words"))
	assert.True(t, shown(viewer, "login"))
	shoot(t, viewer, "revoked-phone")
	require.NoError(t, producer.Until(soon, `fetch('/api/status').then((r) => r.ok)`))
	assert.Empty(t, problems(desk))
	assert.Empty(t, problems(producer))
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
}
