//go:build integration && !nodemo

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// TestAlertsOnThePage adds a rule in the drawer, waits for nano's alert, and changes and removes the rule.
func TestAlertsOnThePage(t *testing.T) {
	p, url := start(t, []string{"TOUCHLINE_INFERENCE_ENGINE=auto", "XDG_CACHE_HOME=" + t.TempDir()},
		"demo", "--listen", "127.0.0.1:0", "--world", "yard", "--seed", "5")
	b := open(t, url, browser.Options{})
	plays(t, b, later)
	require.NoError(t, b.Click("#open-alerts"))
	require.NoError(t, b.Until(soon, `document.querySelector('#panel .what').textContent.startsWith('A rule is a sentence.')`),
		"it says %q", text(t, b, "#panel .what"))
	enter := func(id, value, event string) {
		t.Helper()
		_, err := browser.Eval[bool](b, soon, `(() => { const e = document.getElementById('`+id+`'); e.focus(); e.value = '`+value+`'; return e.dispatchEvent(new Event('`+event+`', { bubbles: true })); })()`)
		require.NoError(t, err)
	}
	enter("rule-level", "critical", "change")
	enter("rule-when", "somebody is in the yard", "input")
	require.NoError(t, b.Click("#panel form .act"))
	require.NoError(t, b.Until(soon, `document.getElementById('rule-r1')?.value === 'somebody is in the yard'`), "it says %q", text(t, b, "#panel form small[role]"))
	require.NoError(t, b.Until(later, `/look/.test(document.querySelector('.cams small').textContent) && !/no look/.test(document.querySelector('.cams small').textContent)`))

	// The alert is over the picture, with its frame, and in the list.
	require.NoError(t, b.Until(3*later, `!document.getElementById('alarm').hidden && document.getElementById('alarm-frame').naturalWidth > 0`),
		"the rule: %q", text(t, b, ".cams"))
	require.Equal(t, "CRITICAL", text(t, b, "#alarm-level"))
	require.Contains(t, text(t, b, "#alarm-words"), "somebody is in the yard: ")
	require.NoError(t, b.Until(soon, `document.querySelector('.alerts img')?.naturalWidth > 0`))
	t.Logf("%s", text(t, b, "#alarm-words"))
	shoot(t, b, "alert")
	require.NoError(t, b.Click("#alarm-close"))
	require.NoError(t, b.Until(soon, `document.getElementById('alarm').hidden`))

	// The rule is tried, snoozed and changed as a whole; the alert is acknowledged and deleted.
	click := func(what string) {
		t.Helper()
		_, err := browser.Eval[bool](b, soon, `(document.querySelector('`+what+`').click(), true)`)
		require.NoError(t, err, what)
	}
	click(`.cams [aria-label^="Try "]`)
	require.NoError(t, b.Until(later, `/^Now: (holds|does not hold|no answer).* It held in [1-9]/.test(document.querySelector('.cams [role=status]').textContent)`),
		"it says %q", text(t, b, ".cams"))
	shoot(t, b, "rule-tried")
	click(`.cams [aria-label^="Snooze "]`)
	require.NoError(t, b.Until(soon, `document.querySelector('.cams small').textContent.includes('snoozed until')`))
	click(`.cams [aria-label^="End the snooze"]`)
	require.NoError(t, b.Until(soon, `!document.querySelector('.cams small').textContent.includes('snoozed')`))
	click(`.alerts [aria-label^="Acknowledge"]`)
	require.NoError(t, b.Until(soon, `/seen by the page/.test(document.querySelector('.alerts').textContent)`))
	click(`.cams summary`)
	enter("rule-r1-pause", "45s", "input")
	enter("rule-r1-name", "visitor", "input")
	shoot(t, b, "rule-form")
	click(`.cams .rule-form .act`)
	require.NoError(t, b.Until(soon, `fetch('/api/rules').then((r) => r.json()).then((x) => x.rules[0].pause === '45s' && x.rules[0].name === 'visitor' && x.rules[0].level === 'critical')`),
		"it says %q", text(t, b, "#panel form small[role]"))
	require.NoError(t, b.Reload())
	require.NoError(t, b.Click("#open-alerts"))
	require.NoError(t, b.Until(soon, `/seen by the page/.test(document.querySelector('.alerts').textContent)`), "the alerts from before the page was opened")
	// A newer one may be above it.
	require.NoError(t, b.Until(soon, `(() => {
		const seen = [...document.querySelectorAll('.alerts li')].find((e) => /seen by the page/.test(e.textContent));
		seen?.querySelector('[aria-label^="Delete"]').click();
		return seen !== undefined;
	})()`))
	require.NoError(t, b.Until(soon, `fetch('/api/alerts').then((r) => r.json()).then((x) => x.alerts.every((a) => !a.acked_by))`))
	require.NoError(t, b.Until(soon, `document.getElementById('rule-r1') !== null`))

	// A rule is changed in place, is seen in full, and is removed from the room.
	const long = "somebody comes through the gate with a parcel and leaves without it"
	enter("rule-r1", long, "change")
	require.NoError(t, b.Until(soon, `fetch('/api/rules').then((r) => r.json()).then((x) => x.rules.length === 1 && x.rules[0].when === '`+long+`' && x.rules[0].level === 'critical')`))
	require.NoError(t, b.Until(soon, `(() => { const e = document.getElementById('rule-r1'); return e.value === '`+long+`' && e.scrollHeight <= e.clientHeight; })()`))
	shoot(t, b, "rule-long")
	require.NoError(t, b.Click("#rule-remove-r1"))
	require.NoError(t, b.Until(soon, `!document.querySelector('.cams li') && fetch('/api/rules').then((r) => r.json()).then((x) => x.rules.length === 0)`))

	phone := open(t, url, browser.Options{Width: 390, Height: 844, Phone: true})
	require.NoError(t, phone.Click("#open-alerts"))
	require.NoError(t, phone.Until(soon, `document.activeElement.id === 'panel-title'`))
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "alert-phone")
	for _, b := range []*browser.Browser{b, phone} {
		assert.Empty(t, problems(b), "errors on the console")
	}

	// A refused sentence stays to be corrected, beside the reason and the sentence in force, until the rule is edited again.
	const short = "somebody is at the gate"
	enter("rule-when", short, "input")
	require.NoError(t, b.Click("#panel form .act"))
	require.NoError(t, b.Until(soon, `document.querySelector('.cams textarea')?.value === '`+short+`'`))
	id, err := browser.Eval[string](b, soon, `document.querySelector('.cams textarea').id`)
	require.NoError(t, err)
	endless := strings.Repeat("no ", 80) + "end"
	enter(id, endless, "change")
	const says = `document.querySelector('.cams [role=status]').textContent`
	require.NoError(t, b.Until(soon, says+`.startsWith('Not changed: ') && `+says+`.endsWith('In force: “`+short+`”.')`),
		"it says %q", text(t, b, ".cams"))
	require.NoError(t, b.Until(soon, `document.getElementById('`+id+`').value === '`+endless+`'`))
	enter(id, "", "change")
	require.NoError(t, b.Until(soon, says+` === '' && document.getElementById('`+id+`').value === '`+short+`'`),
		"it says %q", text(t, b, ".cams"))
	p.interrupt(t)
	assert.Zero(t, p.exitCode())
}
