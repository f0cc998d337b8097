//go:build integration && !nodemo

package main

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

func ftoa(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// TestDemo visits `touchline demo` with a real browser.
func TestDemo(t *testing.T) {
	began := time.Now()
	p, url := start(t, nil, "demo", "--counter", "--listen", "127.0.0.1:0")
	t.Logf("page announced after %v", time.Since(began))
	opened := time.Now()
	b := open(t, url, browser.Options{})

	plays(t, b, later)
	t.Logf("first picture %.1f s after the page was asked for; plays %v after the browser was started", firstPicture(t, b), time.Since(opened))
	first := counts(t, b, 0)
	second := counts(t, b, first)
	assert.Greater(t, second, first, "the picture goes on")

	captioned(t, b, later)
	t.Logf("first caption %v after the browser was started", time.Since(opened))
	heard(t, b, later)
	t.Logf("voice heard %v after the browser was started", time.Since(opened))
	commented(t, b, later)
	t.Logf("first comment with pictures %v after the browser was started", time.Since(opened))

	require.NoError(t, b.Until(soon, `/^(watching|thinking|speaking|silent: .+)$/.test(document.getElementById('chip-words').textContent)`),
		"the chip says %q", text(t, b, "#chip-words"))
	require.NoError(t, b.Until(soon, `(() => { const c = document.getElementById('sheet');
		const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
		for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 0) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
		return seen.size > 4 })()`), "the score sheet is drawn")
	require.Contains(t, text(t, b, "#engine"), "scene")
	require.Contains(t, text(t, b, "#room-name"), "demo")
	shoot(t, b, "desktop")

	require.NoError(t, b.Until(soon, `document.getElementById('say-state').textContent === 'The scene engine does not read instructions.' &&
		document.getElementById('instruction').hidden`))
	for _, c := range []struct{ button, words string }{
		{"shorter", "talkativeness is 2 of 5"}, {"louder", "at +6 dB"}, {"undo", "taken back"}, {"stop", "Commenting is off"}, {"go_on", "on again"},
	} {
		_, err := browser.Eval[bool](b, soon, `document.querySelector('#commands [value=`+c.button+`]').click()`)
		require.NoError(t, err)
		require.NoError(t, b.Until(soon, `document.getElementById('say-state').textContent.includes('`+c.words+`')`), "%s says %q", c.button, text(t, b, "#say-state"))
	}

	shift, err := browser.Eval[float64](b, soon, "spy.shift")
	require.NoError(t, err)
	shifts, err := browser.Eval[[]string](b, soon, "spy.shifts")
	require.NoError(t, err)
	assert.Less(t, shift, 0.1, "the layout shifts: %q", shifts)

	// The same after a reload, and in a second browser.
	require.NoError(t, b.Reload())
	plays(t, b, later)
	dark := open(t, url, browser.Options{Dark: true})
	commented(t, dark, soon) // the past comments
	plays(t, dark, later)
	shoot(t, dark, "dark")
	t.Logf("second viewer: first picture after %.1f s", firstPicture(t, dark))
	dark.Close()
	phone := open(t, url, browser.Options{Width: 390, Height: 844, Phone: true})
	plays(t, phone, later)
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "phone")

	for _, b := range []*browser.Browser{b, dark, phone} {
		assert.Empty(t, problems(b), "errors on the console")
	}

	all := family(p.cmd.Process.Pid)
	require.Greater(t, len(all), 1, "the codec's processes are there")
	open, err := sockets(all)
	require.NoError(t, err)
	require.NotEmpty(t, open)
	for _, s := range open {
		assert.True(t, s.Local.Addr().IsLoopback(), "%s %s can be reached from elsewhere", s.Net, s.Local)
	}
	t.Logf("%d processes, sockets %v", len(all), open)

	took := p.interrupt(t)
	t.Logf("Ctrl-C ended it in %v", took)
	assert.Zero(t, p.exitCode())
	for _, pid := range all {
		assert.False(t, alive(pid), "process %d is left", pid)
	}
	for _, s := range open {
		if s.Net == "tcp" || s.Net == "tcp6" {
			l, err := net.Listen("tcp", s.Local.String())
			if assert.NoError(t, err, "the port is free again") {
				_ = l.Close()
			}
		}
	}
}
