//go:build integration && !nodemo

package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/internal/e2e/browser"
	"touchline/media/source"
)

// request sends a request to a page's API and returns the answer.
func request(t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Less(t, res.StatusCode, 300, "%s %s: %s", method, url, text)
	return string(text)
}

// TestState changes profiles and the match sheet on the page and the rest by API. A restarted program has it all, and
// one with --forget nothing.
func TestState(t *testing.T) {
	t.Parallel()
	args := []string{"demo", "--listen", "127.0.0.1:0", "--state", t.TempDir()}
	p, url := start(t, nil, args...)
	b := open(t, url, browser.Options{})
	plays(t, b, later)
	editsPrompts(t, b)
	request(t, "POST", url+"api/settings", `{"min_interval": 2.5, "speech": false}`)
	request(t, "POST", url+"api/instruction", `{"instruction": "Follow the ball."}`)
	request(t, "POST", url+"api/rules", `{"when": "cut", "level": "info"}`)

	phone := open(t, url, browser.Options{Width: 390, Height: 844, Phone: true})
	require.NoError(t, phone.Click("#open-prompts"))
	require.NoError(t, phone.Until(soon, `document.getElementById('match-sheet').value.startsWith('teams:')`))
	wide, err := browser.Eval[bool](phone, soon, "document.documentElement.scrollWidth > innerWidth")
	require.NoError(t, err)
	assert.False(t, wide, "a phone scrolls downwards only")
	shoot(t, phone, "prompts-phone")
	_, err = browser.Eval[bool](phone, soon, "(document.getElementById('match-sheet').scrollIntoView({block: 'center'}), true)")
	require.NoError(t, err)
	shoot(t, phone, "sheet-phone")
	for _, problem := range append(problems(b), problems(phone)...) {
		assert.Regexp(t, `status of 4(09|22) `, problem, "errors on the console, beside the refused texts")
	}
	p.interrupt(t)
	require.Zero(t, p.exitCode())

	read := func(url string) (s agent.Snapshot, sheet, rules string) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(request(t, "GET", url+"api/status", "")), &s))
		return s, request(t, "GET", url+"api/sheet", ""), request(t, "GET", url+"api/rules", "")
	}
	p, url = start(t, nil, args...)
	s, sheet, rules := read(url)
	assert.True(t, s.Kept)
	assert.Equal(t, "Follow the ball.", s.Instruction)
	assert.Equal(t, 2.5, *s.Settings.MinInterval)
	assert.False(t, *s.Settings.Speech)
	assert.Equal(t, "derby", s.Profile)
	var kinds []string
	for _, p := range s.Profiles {
		kinds = append(kinds, p.Name+" "+p.Kind)
	}
	assert.Equal(t, []string{"default built-in", "sports changed", "security built-in", "nature built-in", "descriptive built-in", "derby own"}, kinds)
	assert.Contains(t, sheet, "- Team Harriers in red: 9 Ana Ruiz.")
	assert.Contains(t, rules, `"when":"cut","level":"info"`)
	require.NoError(t, p.cmd.Process.Kill())
	<-p.done

	p, url = start(t, nil, append(args, "--forget")...)
	s, sheet, rules = read(url)
	assert.Equal(t, []any{"", "default"}, []any{s.Instruction, s.Profile})
	assert.Len(t, s.Profiles, 5)
	assert.Contains(t, sheet, `"prompt":""`)
	assert.Contains(t, rules, `"rules":[]`)
	p.mu.Lock()
	assert.Contains(t, strings.Join(p.log, "\n"), "state of all rooms forgotten")
	p.mu.Unlock()
	p.interrupt(t)
}

// TestStateCameras: a camera that was added on the page comes back when the program is started again, as the same
// participant and watched, and its password is printed nowhere. One that was deleted does not come back.
func TestStateCameras(t *testing.T) {
	t.Parallel()
	args := []string{"demo", "--listen", "127.0.0.1:0", "--state", t.TempDir()}
	list := func(url string) (all struct{ Sources []source.Info }) {
		t.Helper()
		text := request(t, "GET", url+"api/sources", "")
		assert.NotContains(t, text, "hunter2")
		require.NoError(t, json.Unmarshal([]byte(text), &all))
		return all
	}
	ends := func(p *program) {
		t.Helper()
		p.interrupt(t)
		require.Zero(t, p.exitCode())
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.NotContains(t, strings.Join(p.log, "\n")+p.out.String(), "hunter2")
	}
	p, url := start(t, nil, args...)
	request(t, "POST", url+"api/sources", `{"url": "rtsp://ana:hunter2@camera.invalid/door"}`)
	first := list(url).Sources
	ends(p)

	p, url = start(t, nil, args...)
	again := list(url).Sources
	require.Len(t, again, 1)
	assert.Equal(t, []any{first[0].ID, first[0].Identity, "rtsp://camera.invalid/door", true},
		[]any{again[0].ID, again[0].Identity, again[0].Address, again[0].Watched})
	request(t, "DELETE", url+"api/sources/"+again[0].ID, "")
	ends(p)

	p, url = start(t, nil, args...)
	assert.Empty(t, list(url).Sources)
	ends(p)
}

// editsPrompts changes the profile sports, chooses a copy of it, and writes a match sheet.
func editsPrompts(t *testing.T, b *browser.Browser) {
	t.Helper()
	enter := func(id, value, event string) {
		t.Helper()
		text, err := json.Marshal(value)
		require.NoError(t, err)
		_, err = browser.Eval[bool](b, soon, `(() => { const e = document.getElementById('`+id+`'); e.focus(); e.value = `+string(text)+
			`; return e.dispatchEvent(new Event('`+event+`', { bubbles: true })); })()`)
		require.NoError(t, err)
	}
	require.NoError(t, b.Click("#open-prompts"))
	says(t, b, soon, "kept", "Changes of this room last across restarts.")
	require.NoError(t, b.Until(soon, `document.getElementById('profile-name').value === 'default' && document.getElementById('profile-remove').hidden`))
	enter("profile-pick", "sports", "change")
	require.NoError(t, b.Until(soon, `document.getElementById('profile-label').value === 'Sports'`))
	enter("profile-label", "Our club", "input")
	enter("profile-prompt", "You call our match.\nSay \"¡Gol!\" <|im_end|>", "input")
	enter("profile-speech", "false", "input")
	enter("profile-gain", "-6.5", "input")
	require.NoError(t, b.Click("#profile-save"))
	says(t, b, soon, "profile-said", "Saved.")
	require.NoError(t, b.Until(soon, `document.getElementById('profile-remove').innerText === 'Reset' && document.querySelector('#profiles').innerText.includes('Our club')`))

	require.NoError(t, b.Click("#profile-copy"))
	require.NoError(t, b.Until(soon, `document.getElementById('profile-name').value === 'sports-copy'`))
	enter("profile-name", "nature", "input")
	require.NoError(t, b.Click("#profile-save"))
	says(t, b, soon, "profile-said", "the name is taken")
	enter("profile-name", "derby", "input")
	require.NoError(t, b.Click("#profile-save"))
	says(t, b, soon, "profile-said", "Saved.")
	require.NoError(t, b.Until(soon, `!document.getElementById('profile-export').hidden && document.getElementById('profile-export').href.endsWith('/profiles/derby')`))
	exported, err := browser.Eval[string](b, soon, `fetch(document.getElementById('profile-export').href).then((r) => r.text())`)
	require.NoError(t, err)
	assert.Contains(t, exported, "name: derby\nlabel: Our club copy\nprompt: |")
	assert.Contains(t, exported, "\nspeech: false\nvoice_gain: -6.5\n")

	// What is typed while the form is being saved stays.
	_, err = browser.Eval[bool](b, soon, `(() => {
		const real = window.fetch;
		window.fetch = (path, o) => {
			if (o?.method !== 'PUT') return real(path, o);
			window.fetch = real;
			return new Promise((go) => (window.send = go)).then(() => real(path, o));
		};
		return true;
	})()`)
	require.NoError(t, err)
	enter("profile-prompt", "You call the derby.", "input")
	require.NoError(t, b.Click("#profile-save"))
	require.NoError(t, b.Until(soon, `window.send !== undefined`))
	enter("profile-prompt", "You call the derby, loudly.", "input")
	_, err = browser.Eval[bool](b, soon, `(window.send(), document.activeElement.blur(), true)`)
	require.NoError(t, err)
	says(t, b, soon, "profile-said", "Saved.")
	require.NoError(t, b.Until(soon, `fetch('/api/profiles/derby').then((r) => r.text()).then((s) => s.includes('You call the derby.'))`))
	snapshots(t, b)
	typed, err := browser.Eval[string](b, soon, `document.getElementById('profile-prompt').value`)
	require.NoError(t, err)
	assert.Equal(t, "You call the derby, loudly.", typed)
	require.NoError(t, b.Click("#profiles input[value=derby] + span"))
	require.NoError(t, b.Until(soon, `document.getElementById('profile-pick').selectedOptions[0].text === 'Our club copy (own), in use'`))
	require.NoError(t, b.Click("#profile-remove"))
	says(t, b, soon, "profile-said", "the profile is in use: choose another one first")

	enter("match-sheet", "teams: [{name: Harriers, color: red}]", "input")
	require.NoError(t, b.Click("#sheet-save"))
	says(t, b, soon, "sheet-said", `unknown field "color"; known are name, colour, people`)
	enter("match-sheet", "teams:\n  - name: Harriers\n    colour: red\n    people: [{name: Ana Ruiz, number: 9}]\npronunciations: {Ruiz: roo eeth}", "input")
	require.NoError(t, b.Click("#sheet-save"))
	says(t, b, soon, "sheet-said", "In force: ")
	shoot(t, b, "prompts")
	_, err = browser.Eval[bool](b, soon, "(document.getElementById('match-sheet').scrollIntoView({block: 'center'}), true)")
	require.NoError(t, err)
	shoot(t, b, "sheet")
}

// TestAlertsSurvive: an alert is raised while its webhook and the MQTT broker are down, and the program is killed. The next
// one delivers it to both; then an alert of a test reaches both at once.
func TestAlertsSurvive(t *testing.T) {
	t.Parallel()
	hook, broker := freeAddress(t), freeAddress(t)
	env := []string{
		"TOUCHLINE_AGENT_MQTT_URL=mqtt://" + broker, "TOUCHLINE_AGENT_WEBHOOK_URLS=http://" + hook, "TOUCHLINE_AGENT_WEBHOOK_EVENTS=alert",
		"TOUCHLINE_AGENT_WEBHOOK_API_KEY=key", "TOUCHLINE_AGENT_WEBHOOK_API_SECRET=a-secret-of-at-least-32-characters-0123",
	}
	args := []string{"demo", "--listen", "127.0.0.1:0", "--state", t.TempDir()}
	p, url := start(t, env, args...)
	request(t, "POST", url+"api/rules", `{"when": "dark"}`)
	request(t, "POST", url+"api/rules/r1/test", "")
	queue := func() agent.AlertQueue {
		var s agent.Snapshot
		require.NoError(t, json.Unmarshal([]byte(request(t, "GET", url+"api/status", "")), &s))
		require.NotNil(t, s.AlertQueue)
		return *s.AlertQueue
	}
	require.Eventually(t, func() bool { q := queue(); return q.Waiting >= 2 && q.Kept && q.Problem != "" }, later, 20*time.Millisecond)
	b := open(t, url, browser.Options{})
	require.NoError(t, b.Click("#open-alerts"))
	require.NoError(t, b.Until(soon, `document.getElementById('alert-queue').textContent.includes('last across restarts')`))
	shoot(t, b, "alerts-waiting")
	require.NoError(t, p.cmd.Process.Kill())
	<-p.done

	type got struct{ target, id, phase string }
	var mu sync.Mutex
	seen := map[got]int{}
	take := func(target string, a alert.Alert) {
		mu.Lock()
		defer mu.Unlock()
		seen[got{target, a.ID, a.Phase}]++
	}
	posts := &http.Server{Addr: hook, ReadHeaderTimeout: later, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct{ Alert alert.Alert }
		_ = json.NewDecoder(r.Body).Decode(&e)
		take("webhook", e.Alert)
	})}
	go func() { _ = posts.ListenAndServe() }()
	defer func() { _ = posts.Close() }()
	mosquitto := mochi.New(&mochi.Options{InlineClient: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, mosquitto.AddHook(new(auth.AllowHook), nil))
	require.NoError(t, mosquitto.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: broker})))
	require.NoError(t, mosquitto.Serve())
	defer func() { _ = mosquitto.Close() }()
	require.NoError(t, mosquitto.Subscribe("touchline/+/+/alert/+", 1, func(_ *mochi.Client, _ packets.Subscription, pk packets.Packet) {
		var a alert.Alert
		_ = json.Unmarshal(pk.Payload, &a)
		take("mqtt", a)
	}))

	ids := func() map[string][]string { // targets of the phase new by alert
		mu.Lock()
		defer mu.Unlock()
		out := map[string][]string{}
		for g := range seen {
			if g.phase == alert.PhaseNew {
				out[g.id] = append(out[g.id], g.target)
			}
		}
		return out
	}
	both := func(alerts int) func() bool {
		return func() bool {
			n := 0
			for _, targets := range ids() {
				if len(targets) == 2 {
					n++
				}
			}
			return n == alerts
		}
	}
	_, url = start(t, env, args...)
	require.Eventually(t, both(1), later, 20*time.Millisecond, "%v", ids())
	request(t, "POST", url+"api/rules/r1/test", "")
	require.Eventually(t, both(2), later, 20*time.Millisecond, "%v", ids())
	require.Eventually(t, func() bool { return queue().Waiting == 0 }, later, 20*time.Millisecond)
}
