//go:build integration && !nodemo

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// TestPromptsAndAnswersOnThePage reads in the drawer "Numbers" what nano was asked and answered, and the next prompt. Who may
// only watch sees none of it.
func TestPromptsAndAnswersOnThePage(t *testing.T) {
	const token = "correct-horse-battery"
	p, url := start(t, []string{
		"TOUCHLINE_INFERENCE_ENGINE=auto", "XDG_CACHE_HOME=" + t.TempDir(), "TOUCHLINE_AGENT_CONSOLE_TOKEN=" + token,
	}, "demo", "--listen", "127.0.0.1:0")
	b := open(t, url+"#token="+token, browser.Options{})
	plays(t, b, later)
	commented(t, b, later)
	read := func(b *browser.Browser) {
		t.Helper()
		require.NoError(t, b.Click("#open-numbers"))
		require.NoError(t, b.Click("#raw > summary"))
		require.NoError(t, b.Until(soon, `document.querySelectorAll('#raws > li').length > 0`), "it says %q", text(t, b, "#raw-said"))
		require.NoError(t, b.Click("#raws > li:last-child summary"))
		require.NoError(t, b.Until(soon, `document.querySelector('#raws pre') !== null && (document.querySelector('#raws small').scrollIntoView(), true)`))
	}
	read(b)
	require.Regexp(t, `^\d\d:\d\d:\d\d\.\d · comment · `, text(t, b, "#raws > li:last-child summary"))
	require.Contains(t, text(t, b, "#raws small"), "nano, ")
	titles, err := browser.Eval[[]string](b, soon, `[...document.querySelectorAll('#raws h4')].map((e) => e.innerText)`)
	require.NoError(t, err)
	require.Equal(t, []string{"Request", "Raw answer", "System prompt", "Prompt"}, titles)
	require.Regexp(t, `(?s)^<\|im_start\|>system\n.*<image><unk>×\d+</image>.*Comment on the newest picture`, text(t, b, "#raws pre"))
	shoot(t, b, "raw")

	require.NoError(t, b.Click("#raw-preview"))
	require.NoError(t, b.Until(soon, `document.querySelector('#raw-next pre') !== null`), "it says %q", text(t, b, "#raw-said"))
	require.Contains(t, text(t, b, "#raw-next"), "Comment on the newest picture")
	require.NoError(t, b.Click("#raw-next .link"))
	require.NoError(t, b.Until(soon, `/^System prompt (copied|marked)/.test(document.getElementById('raw-said').textContent)`))

	phone := open(t, url+"#token="+token, browser.Options{Width: 390, Height: 844, Phone: true})
	plays(t, phone, later)
	read(phone)
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "raw-phone")

	link, err := browser.Eval[string](b, soon, `fetch('/api/links', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"rights":["watch"],"for":"1h"}' }).then((r) => r.json()).then((x) => x.token)`)
	require.NoError(t, err)
	viewer := open(t, url+"#token="+link, browser.Options{})
	require.NoError(t, viewer.Until(soon, `document.body.dataset.may === 'watch'`))
	require.NoError(t, viewer.Click("#open-numbers"))
	require.NoError(t, viewer.Until(soon, `document.querySelector('.numbers') && document.getElementById('raw').offsetParent === null`))
	require.NoError(t, viewer.Until(soon, `fetch('/api/looks').then((r) => r.status === 403)`))
	for _, b := range []*browser.Browser{b, phone} {
		assert.Empty(t, problems(b), "errors on the console")
	}
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
}
