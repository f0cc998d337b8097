//go:build integration && !nodemo

package main

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// TestWorldsOnThePage changes the demo's world in the drawer and by the profile, sends an order from the list, and reads
// how the demo grades itself. Nano comments.
func TestWorldsOnThePage(t *testing.T) {
	p, url := start(t, []string{"TOUCHLINE_INFERENCE_ENGINE=auto", "XDG_CACHE_HOME=" + t.TempDir()}, "demo", "--listen", "127.0.0.1:0")
	b := open(t, url, browser.Options{})
	plays(t, b, later)
	require.NoError(t, b.Until(soon, `document.getElementById('engine-name').textContent === 'nano, a small model trained on scenes like this'`),
		"it says %q", text(t, b, "#engine"))

	// The profile shows its natural scene.
	require.NoError(t, b.Do(soon, clickText(".profile", "Security")))
	require.NoError(t, b.Click("#open-source"))
	watched := func(world string) {
		t.Helper()
		require.NoError(t, b.Until(later, `document.getElementById('pick-`+world+`').getAttribute('aria-pressed') === 'true' &&
			document.querySelector('.what').textContent.includes('the generated `+world+`')`), "it says %q", text(t, b, ".what"))
	}
	watched("yard")
	require.NoError(t, b.Click("#pick-match"))
	noted(t, b, "It is being watched.")
	watched("match")
	plays(t, b, later)

	// The demo grades itself.
	require.NoError(t, b.Click("#open-numbers"))
	require.NoError(t, b.Until(later, `/^Last minute: [1-9]\d* right, \d+ wrong/.test(document.querySelector('.grade').textContent)`),
		"it says %q", text(t, b, ".grade"))
	t.Logf("%s", text(t, b, ".grade"))
	shoot(t, b, "grade")

	// The list of orders is open to the keyboard, and a click sends one.
	line := func() string {
		t.Helper()
		s, err := browser.Eval[string](b, soon, "document.activeElement.textContent")
		require.NoError(t, err)
		return s
	}
	press := func(key string) {
		t.Helper()
		_, err := browser.Eval[bool](b, soon, `document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: `+strconv.Quote(key)+`, bubbles: true, cancelable: true }))`)
		require.NoError(t, err)
	}
	require.NoError(t, b.Click("#ask-open"))
	first := line()
	require.NotEmpty(t, first)
	press("ArrowDown")
	require.NotEqual(t, first, line())
	press("ArrowUp")
	require.Equal(t, first, line())
	press("Escape")
	require.Equal(t, "What can I ask?", line())
	require.NoError(t, b.Until(soon, "document.getElementById('ask').hidden"))
	require.NoError(t, b.Click("#ask-open"))
	shoot(t, b, "ask")
	require.NoError(t, b.Do(soon, clickText(".line", "What's the score?")))
	require.NoError(t, b.Until(soon, `document.getElementById('ask').hidden && document.getElementById('say-state').textContent.startsWith('Active: “What\'s the score?”')`),
		"it says %q", text(t, b, "#say-state"))
	require.NoError(t, b.Until(later, `document.getElementById('say-state').textContent.endsWith('It has acted.')`))

	phone := open(t, url, browser.Options{Width: 390, Height: 844, Phone: true})
	require.NoError(t, phone.Click("#ask-open"))
	require.NoError(t, phone.Until(soon, "document.querySelectorAll('#ask .line').length >= 10"))
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "ask-phone")
	for _, b := range []*browser.Browser{b, phone} {
		assert.Empty(t, problems(b), "errors on the console")
	}
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
}
