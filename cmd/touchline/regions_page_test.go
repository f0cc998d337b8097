//go:build integration && !nodemo

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// drawRegion draws a region over the picture with the pointer and saves it: it clicks the corners, drags the last one to another place,
// and writes the name.
func drawRegion(t *testing.T, b browser.Page, kind, name string, corners [][2]float64, to [2]float64) {
	t.Helper()
	points, err := json.Marshal(append(corners, to))
	require.NoError(t, err)
	_, err = browser.Eval[bool](b, soon, `(() => {
		const c = document.getElementById('regions'), box = c.getBoundingClientRect(), points = `+string(points)+`;
		c.setPointerCapture = () => {}; // there is no real pointer
		const at = (type, [x, y]) => c.dispatchEvent(new PointerEvent(type, { clientX: box.x + x * box.width, clientY: box.y + y * box.height, pointerId: 1 }));
		for (const p of points.slice(0, -1)) { at('pointerdown', p); at('pointerup', p); }
		at('pointerdown', points.at(-2)); at('pointermove', points.at(-1)); at('pointerup', points.at(-1));
		const k = document.getElementById('region-kind');
		k.value = '`+kind+`';
		k.dispatchEvent(new Event('change'));
		document.getElementById('region-name').value = '`+name+`';
		return true;
	})()`)
	require.NoError(t, err)
	require.NoError(t, b.Click("#region-save"))
	require.NoError(t, b.Until(soon, `[...document.querySelectorAll('.cams b')].some((e) => e.textContent === '`+name+`')`),
		"it says %q", text(t, b, "#panel form small[role]"))
}

// TestRegionsOnThePage draws a mask over the picture, changes its name and removes it. A zone that a rule names stays, and the form of rules
// offers it. A region of another page joins the list, and the focus stays in it.
func TestRegionsOnThePage(t *testing.T) {
	_, url := start(t, []string{
		"TOUCHLINE_INFERENCE_ENGINE=scene", `TOUCHLINE_AGENT_ALERT_RULES=a person enters the zone "lawn"`,
		"TOUCHLINE_AGENT_REGIONS_LIST=zone 1.7778 0.7:0.7 1:0.7 1:1 lawn",
	}, "demo", "--listen", "127.0.0.1:0", "--world", "yard", "--seed", "5")
	b := open(t, url, browser.Options{})
	plays(t, b, later)
	require.NoError(t, b.Click("#open-regions"))
	require.NoError(t, b.Until(soon, `!document.getElementById('regions').hidden`))
	require.NoError(t, b.Click(`[aria-label="Remove lawn"]`))
	require.NoError(t, b.Until(soon, `document.querySelector('#panel form small[role]')?.textContent.includes('alert rules name it')`),
		"it says %q", text(t, b, "#panel form small[role]"))
	eval := func(js string) {
		t.Helper()
		_, err := browser.Eval[bool](b, soon, js)
		require.NoError(t, err)
	}
	drawRegion(t, b, "mask", "window", [][2]float64{{0.2, 0.3}, {0.5, 0.3}, {0.5, 0.6}}, [2]float64{0.6, 0.7})
	require.NoError(t, b.Until(soon, `document.querySelector('#panel .cams')?.textContent.includes('Viewers of the room still see this')`),
		"it says %q", text(t, b, "#panel form small[role]"))
	require.NoError(t, b.Until(soon, `fetch('/api/regions').then((r) => r.json()).then((x) => {
		const r = x.regions[1];
		return r.name === 'window' && r.kind === 'mask' && r.points.length === 3 && r.by === 'the page' && Math.abs(r.aspect - 16 / 9) < 0.02;
	})`))
	shoot(t, b, "regions")

	eval(`(document.querySelector('.cams [aria-label="Edit lawn"]').focus(), true)`)
	eval(`fetch('/api/regions/path', { method: 'PUT', headers: { 'Content-Type': 'application/json' },
		body: JSON.stringify({ kind: 'line', points: [[0, 0], [1, 1]] }) }).then((r) => r.ok)`)
	require.NoError(t, b.Until(soon, `document.querySelectorAll('.cams b')[2]?.textContent === 'path'`))
	snapshots(t, b)
	require.NoError(t, b.Until(soon, `document.activeElement.getAttribute('aria-label') === 'Edit lawn'`), "the focus is lost")
	eval(`fetch('/api/regions/path', { method: 'DELETE' }).then((r) => r.ok)`)
	require.NoError(t, b.Until(soon, `document.querySelectorAll('.cams li').length === 2`))

	eval(`(document.querySelector('.cams [aria-label="Edit window"]').click(), document.getElementById('region-name').value = 'door', true)`)
	require.NoError(t, b.Click("#region-save"))
	require.NoError(t, b.Until(soon, `document.querySelectorAll('.cams b')[1]?.textContent === 'door'`), "it says %q", text(t, b, "#panel form small[role]"))
	eval(`(document.querySelector('.cams [aria-label="Remove door"]').click(), true)`)
	require.NoError(t, b.Until(soon, `document.querySelectorAll('.cams li').length === 1`))
	require.NoError(t, b.Click("#panel-close"))
	require.NoError(t, b.Until(soon, `document.getElementById('regions').hidden`))
	require.NoError(t, b.Click("#open-alerts"))
	require.NoError(t, b.Until(soon, `document.querySelector('#rule-whens option')?.value === 'a person enters the zone "lawn"'`))

	// On a narrow phone, the keyboard alone writes a line, and the page does not scroll to the side.
	phone := open(t, url, browser.Options{Width: 320, Height: 640, Phone: true})
	plays(t, phone, later)
	_, err := browser.Eval[bool](phone, soon, `(document.getElementById('open-regions').click(), document.getElementById('region-kind').value = 'line', true)`)
	require.NoError(t, err)
	require.NoError(t, phone.Type("#region-corners", "10 90\r60 120"))
	require.NoError(t, phone.Until(soon, `!document.getElementById('region-corners').checkValidity()`), "a corner outside the picture is refused")
	require.NoError(t, phone.Type("#region-corners", strings.Repeat("\b", 3)+"50"))
	require.NoError(t, phone.Type("#region-name", "gate\r"))
	require.NoError(t, phone.Until(soon, `[...document.querySelectorAll('.cams b')].some((e) => e.textContent === 'gate')`), "it says %q", text(t, phone, "#panel form small[role]"))
	require.NoError(t, phone.Until(soon, `document.getElementById('regions').getAttribute('aria-label').includes('Line gate')`))
	require.NoError(t, phone.Until(soon, `document.documentElement.scrollWidth <= 320`))
	shoot(t, phone, "regions-phone")
}
