//go:build integration && !nodemo

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image/jpeg"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/livekit/protocol/auth"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/camera"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/settings"
	"touchline/agent/worker"
	"touchline/internal/e2e/browser"
)

// desk is the console of `touchline agent`.
type desk struct {
	t     *testing.T
	url   string // without the last slash
	token string
}

// console waits for the announced page.
func (p *agentProgram) console(t *testing.T) *desk {
	t.Helper()
	select {
	case at := <-p.announced:
		u, err := url.Parse(at)
		require.NoError(t, err)
		token, _ := url.QueryUnescape(strings.TrimPrefix(u.Fragment, "token="))
		return &desk{t: t, url: "http://" + u.Host, token: token}
	case <-time.After(startWait):
		require.FailNow(t, "the program announced no page")
		return nil
	}
}

// TestAgentListensWhereAsked: a worker that serves a room is reached at the addresses asked for, and no other.
func TestAgentListensWhereAsked(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	h.env = append(h.env, "GOTRACEBACK=crash") // leaves its descriptors readable for its user
	p := h.start("--console", "127.0.0.1:0")
	h.ask(agentRoom, "")
	require.Eventually(t, func() bool { return len(h.agentIn(agentRoom).GetTracks()) > 0 }, startWait, 10*time.Millisecond)
	open, err := sockets(family(p.cmd.Process.Pid))
	require.NoError(t, err)
	var listening []string
	for _, s := range open {
		if strings.HasPrefix(s.Net, "tcp") {
			listening = append(listening, "http://"+s.Local.String())
		}
	}
	require.ElementsMatch(t, []string{"http://" + p.http, p.console(t).url}, listening)
}

// ask calls the API; header is name, value, name, value.
func (d *desk) ask(method, path, body string, header ...string) (int, string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	require.NoError(d.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(d.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return res.StatusCode, string(text)
}

// room is one room of the list, or nil.
func (d *desk) room(name string) map[string]any {
	d.t.Helper()
	_, text := d.ask(http.MethodGet, "/api/rooms", "")
	var list struct{ Rooms []map[string]any }
	require.NoError(d.t, json.Unmarshal([]byte(text), &list), text)
	for _, r := range list.Rooms {
		if r["room"] == name {
			return r
		}
	}
	return nil
}

// eventually waits until a room meets a condition.
func (d *desk) eventually(name string, holds func(map[string]any) bool) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { r := d.room(name); return r != nil && holds(r) }, later, 100*time.Millisecond)
}

// film publishes a generated match into a room until the test ends.
func (h *agentHouse) film(name, identity string, seed uint64) {
	h.t.Helper()
	camera, err := camera.NewDemo(camera.DemoOptions{
		URL: h.url, Keys: h.keys, Room: name, Identity: identity, Width: 640, Height: 360, FPS: 15, Seed: seed, Counter: true,
		LoopbackOnly: true, Log: zerolog.Nop(),
	})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	filmed := make(chan error, 1)
	go func() { filmed <- camera.Run(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		assert.NoError(h.t, <-filmed)
	})
}

// TestAgentConsole is two rooms of one worker, on the API and on the page.
func TestAgentConsole(t *testing.T) {
	const second = "süd/ 2"
	const path = "/api/rooms/s%C3%BCd%2F%202"
	h := newAgentHouse(t)
	p := h.start("--console", "127.0.0.1:0")
	d := p.console(t)
	require.Empty(t, d.token, "nobody asks for a token on this machine")

	// Without a room the page says how to add one.
	wall := open(t, d.url+"/", browser.Options{})
	require.NoError(t, wall.Until(soon, `document.getElementById('nobody-words').innerText === 'No room has a commentator yet.'`))
	shoot(t, wall, "wall-empty")
	code, body := d.ask(http.MethodGet, "/api/status", "")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, "no_room")

	// One is added on the page, one by the API with its own instruction.
	require.NoError(t, wall.Type("#ask-room", agentRoom+"\r"))
	code, body = d.ask(http.MethodPost, "/api/rooms", `{"room":"`+second+`","instruction":"Follow the ball.","speech":false}`)
	require.Equal(t, http.StatusAccepted, code, body)
	require.Contains(t, body, `"dispatch_id":"AD_`)
	h.film(second, "cam", 7)
	d.eventually(agentRoom, func(r map[string]any) bool { return r["newest"] != nil })
	d.eventually(second, func(r map[string]any) bool {
		return r["newest"] != nil && r["instruction"] == "Follow the ball." && r["speech"] == false
	})
	// A worker opens public addresses, not those of its own network.
	code, body = d.ask(http.MethodGet, path+"/sources", "")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"whip":{"path":"/whip/s%C3%BCd%2F%202","key":"`)
	code, body = d.ask(http.MethodPost, path+"/sources", `{"url":"rtsp://10.0.0.1/x"}`)
	require.Equal(t, http.StatusForbidden, code, body)
	require.Contains(t, body, "10.0.0.1 is private")
	code, body = d.ask(http.MethodPost, "/api/rooms", `{"room":"`+second+`"}`)
	require.Equal(t, http.StatusConflict, code, body)
	code, body = d.ask(http.MethodPost, "/api/rooms", `{"room":"third","profile":"opera"}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, body)
	require.Contains(t, body, "agent.profile: must be one of")
	code, body = d.ask(http.MethodGet, "/api/status", "")
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, body, `\"match\"`)

	// A request affects its room only.
	code, body = d.ask(http.MethodPatch, path, `{"profile":"opera","source":"scene","settings":{"frames_per_look":99,"min_interval":"x"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, body)
	for _, part := range []string{"profile: expected one of", "source: expected", "frames_per_look: expected", "settings.min_interval: expected number"} {
		require.Contains(t, body, part)
	}
	code, body = d.ask(http.MethodPatch, path, `{"profile":"sports","instruction":"Name the colours.","speech":true,"settings":{"min_interval":0.7}}`)
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"min_interval":0.7`)
	require.Equal(t, "sports", d.room(second)["profile"])
	require.Equal(t, "default", d.room(agentRoom)["profile"])
	require.Empty(t, d.room(agentRoom)["instruction"])

	everySetting(t, h, d, second, path)
	strangers(t, h, d, second)
	require.Equal(t, "Name the colours.", d.room(second)["instruction"])

	// One stream carries the events of both rooms, each with its room.
	ctx, cancel := context.WithTimeout(t.Context(), later)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/api/events", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	recorded := map[string]bool{}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for record := false; len(recorded) < 2 && lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && record {
			var r struct {
				Room string
				look.Record
			}
			require.NoError(t, json.Unmarshal([]byte(data), &r))
			recorded[r.Room] = true
		}
		record = lines.Text() == "event: record"
	}
	require.Equal(t, map[string]bool{agentRoom: true, second: true}, recorded)
	_, body = d.ask(http.MethodGet, path+"/comments?limit=1", "")
	require.Equal(t, 1, strings.Count(body, `"type":"cycle_end"`))
	_, body = d.ask(http.MethodGet, path+"/frame?w=160", "")
	img, err := jpeg.Decode(bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	require.Equal(t, 160, img.Bounds().Dx())
	_, body = d.ask(http.MethodGet, "/metrics", "")
	require.Contains(t, body, `touchline_cycles_total{outcome="`)
	require.Contains(t, body, `room="`+second+`"`)
	_, body = p.get("/metrics")
	require.Contains(t, body, "touchline_rooms 2")
	require.NotContains(t, body, second, "the open port names no room")

	// The wall shows a picture and a comment of each room.
	require.NoError(t, wall.Until(later, `(() => { const tiles = [...document.querySelectorAll('.tile')]; return tiles.length === 2 &&
		tiles.every((t) => t.querySelector('.tile-picture').naturalWidth > 0 && !t.querySelector('.tile-picture').hidden &&
		t.querySelector('.tile-words').innerText.length > 3 && t.querySelector('.tile-figures').innerText.includes('behind live')) })()`))
	first, err := browser.Eval[string](wall, soon, `document.querySelector('.tile-picture').src`)
	require.NoError(t, err)
	require.NoError(t, wall.Until(soon, `document.querySelector('.tile-picture').src !== '`+first+`'`), "the picture is another one by now")
	require.Equal(t, "2 rooms", text(t, wall, "#count"))
	shoot(t, wall, "wall")
	require.Empty(t, problems(wall))
	for name, o := range map[string]browser.Options{
		"wall-dark": {Dark: true}, "wall-phone": {Width: 390, Height: 844, Phone: true},
	} {
		b := open(t, d.url+"/", o)
		require.NoError(t, b.Until(later, `document.querySelectorAll('.tile-picture:not([hidden])').length > 0`))
		wide, err := browser.Eval[float64](b, soon, `document.documentElement.scrollWidth - innerWidth`)
		require.NoError(t, err)
		require.LessOrEqual(t, wide, 0.0, "nothing sticks out at the side")
		shoot(t, b, name)
		require.Empty(t, problems(b))
		b.Close()
	}

	callOff(t, d, wall)

	// A tile opens the viewer of its room, also by keyboard.
	require.NoError(t, wall.Do(soon, clickText(".tile", second)))
	plays(t, wall, later)
	commented(t, wall, later)
	require.Equal(t, "room “"+second+"”", text(t, wall, "#room-name"))
	code, body = d.ask(http.MethodPatch, path, `{"instruction": "Only the goals."}`)
	require.Equal(t, http.StatusOK, code, body)
	d.eventually(second, func(r map[string]any) bool { return r["instruction"] == "Only the goals." })
	require.Empty(t, d.room(agentRoom)["instruction"])
	shoot(t, wall, "wall-room")

	// After the removal the commentator leaves, and the page says so.
	code, body = d.ask(http.MethodDelete, path, "")
	require.Equal(t, http.StatusNoContent, code, body)
	require.Eventually(t, func() bool { return d.room(second) == nil }, later, 100*time.Millisecond)
	require.NoError(t, wall.Until(soon, `document.getElementById('curtain-words').innerText === 'No commentator is in this room.'`))
	shoot(t, wall, "wall-gone")
	code, _ = d.ask(http.MethodDelete, path, "")
	require.Equal(t, http.StatusNotFound, code)
	require.NotNil(t, d.room(agentRoom), "the other room goes on")
	// The page shows a new commentator without a reload.
	code, body = d.ask(http.MethodPost, "/api/rooms", `{"room":"`+second+`"}`)
	require.Equal(t, http.StatusAccepted, code, body)
	plays(t, wall, later)

	// A page of another origin is refused.
	code, body = d.ask(http.MethodGet, "/api/rooms", "", "Origin", "https://elsewhere.example")
	require.Equal(t, http.StatusForbidden, code, body)
	code, _ = d.ask(http.MethodPost, "/api/rooms", `{"room":"x"}`, "Origin", "https://elsewhere.example")
	require.Equal(t, http.StatusForbidden, code)
}

// everySetting changes all live settings and the watched track of one room; the other room keeps its own.
func everySetting(t *testing.T, h *agentHouse, d *desk, name, path string) {
	t.Helper()
	type detail struct {
		Settings settings.Settings
		Source   agent.SourceInfo
	}
	read := func(path string) (is detail) {
		code, body := d.ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, code, body)
		require.NoError(t, json.Unmarshal([]byte(body), &is))
		return is
	}
	untouched := read("/api/rooms/" + agentRoom)
	const all = `{"speech":false,"capture_fps":3,"frames_per_look":3,"frame_stride":2,"change_threshold":0.5,"look_when":"facts","look_max_wait":5,"mask_delayed":true,"min_interval":0.6,"pause_after":0.4,` +
		`"fixed_delay":1.5,"max_tokens":50,"speech_max_tokens":60,"cut_on_instruction":false,"repeats":"retry","language":"en","quantile":0.9,"margin":0.1,"long_side":320,"talkativeness":2,"voice_gain":-6,"voice":"flite:rms","preset":"",` +
		`"hearing":"off","wake_words":["hey coach"],"remarks":true,"hear_camera":true,"confirm_orders":false,"manners":"wait","max_wait":3}`
	var want settings.Settings
	require.NoError(t, json.Unmarshal([]byte(all), &want))
	for f, v := range reflect.ValueOf(want).Fields() {
		has := reflect.ValueOf(untouched.Settings).FieldByIndex(f.Index)
		require.Equal(t, has.IsNil(), v.IsNil(), "%s is changed here if the engine has it", f.Name)
	}
	before := read(path)
	code, body := d.ask(http.MethodPatch, path, `{"settings":`+all+`}`)
	require.Equal(t, http.StatusOK, code, body)
	require.Equal(t, want, read(path).Settings)
	d.eventually(name, func(r map[string]any) bool {
		delay, _ := r["delay"].(float64)
		return r["speech"] == false && delay == 1.5
	})

	// A camera can be selected before it joins.
	code, body = d.ask(http.MethodPatch, path, `{"source":"camera:cam-2"}`)
	require.Equal(t, http.StatusOK, code, body)
	d.eventually(name, func(r map[string]any) bool { return r["chip"] == agent.ActivityWaiting })
	h.film(name, "cam-2", 9)
	d.eventually(name, func(r map[string]any) bool {
		source, _ := r["source"].(map[string]any)
		return source["identity"] == "cam-2" && source["width"] == 640.0
	})
	given, err := json.Marshal(before.Settings)
	require.NoError(t, err)
	code, body = d.ask(http.MethodPatch, path, `{"source":"camera:cam","settings":`+string(given)+`}`)
	require.Equal(t, http.StatusOK, code, body)
	require.Equal(t, before.Settings, read(path).Settings)
	is := read("/api/rooms/" + agentRoom)
	require.Equal(t, untouched.Settings, is.Settings)
	require.Equal(t, untouched.Source.Identity, is.Source.Identity)
}

// strangers lets a participant without rights steer a room: with no token, with a viewer's, and with permission for the other
// room only. Then it has permission for this room.
func strangers(t *testing.T, h *agentHouse, d *desk, other string) {
	t.Helper()
	code, body := d.ask(http.MethodPost, "/api/rooms/"+agentRoom+"/livekit/token", `{"role":"viewer","name":"Vera"}`)
	require.Equal(t, http.StatusOK, code, body)
	var grant struct{ Token, Agent string }
	require.NoError(t, json.Unmarshal([]byte(body), &grant))
	plain, err := conn.ViewerToken(h.keys, conn.Person{Room: agentRoom, Identity: "vera"}) // the page's own carries rights on this machine
	require.NoError(t, err)
	vera := lksdk.NewRoom(lksdk.NewRoomCallback())
	require.NoError(t, vera.JoinWithToken(h.url, plain, lksdk.WithAutoSubscribe(false)))
	defer vera.Disconnect()
	require.Eventually(t, func() bool { return vera.GetParticipantByIdentity(grant.Agent) != nil }, later, 20*time.Millisecond)
	steer := func(token string) error {
		payload, err := json.Marshal(map[string]string{"instruction": "I am the boss.", "token": token})
		require.NoError(t, err)
		for tries := 5; ; tries-- {
			_, err = vera.LocalParticipant.PerformRpc(lksdk.PerformRpcParams{
				DestinationIdentity: grant.Agent, Method: control.RPCPrefix + "set_instruction", Payload: string(payload),
			})
			// A busy machine answers late.
			if failed, ok := errors.AsType[*lksdk.RpcError](err); !ok || failed.Code != lksdk.RpcConnectionTimeout || tries == 0 {
				return err
			}
		}
	}
	admin := func(name string) string {
		token, err := auth.NewAccessToken(h.keys.APIKey, h.keys.APISecret).SetIdentity("boss").
			SetVideoGrant(&auth.VideoGrant{RoomAdmin: true, Room: name}).ToJWT()
		require.NoError(t, err)
		return token
	}
	for _, token := range []string{"", grant.Token, admin(other), d.token} {
		var refused *lksdk.RpcError
		require.ErrorAs(t, steer(token), &refused)
		require.Equal(t, lksdk.RpcErrorCode(http.StatusForbidden), refused.Code)
	}
	require.Empty(t, d.room(agentRoom)["instruction"])
	require.NoError(t, steer(admin(agentRoom)))
	require.Equal(t, "I am the boss.", d.room(agentRoom)["instruction"])
	code, body = d.ask(http.MethodDelete, "/api/rooms/"+agentRoom+"/instruction", "")
	require.Equal(t, http.StatusOK, code, body)
	code, body = d.ask(http.MethodPost, "/api/rooms/"+agentRoom+"/start", "")
	require.Equal(t, http.StatusOK, code, body)
}

// callOff removes a commentator on the wall by keyboard and requests another one.
func callOff(t *testing.T, d *desk, wall *browser.Browser) {
	t.Helper()
	const tile = `[...document.querySelectorAll('#list li')].find((e) => e.querySelector('h2').innerText === 'match')`
	focused := func(script, why string) {
		t.Helper()
		require.NoError(t, wall.Until(soon, script), why)
	}
	_, err := browser.Eval[bool](wall, soon, tile+`.querySelector('.tile').focus() ?? true`)
	require.NoError(t, err)
	focused(`getComputedStyle(`+tile+`.querySelector('.tile-off')).opacity === '1'`, "the button shows when its tile has the focus")
	require.NoError(t, wall.Do(soon, chromedp.KeyEvent("\t")))
	focused(`document.activeElement.getAttribute('aria-label') === 'Remove the commentator from “match”'`, "it is the next stop")
	shoot(t, wall, "wall-off")
	require.NoError(t, wall.Do(soon, chromedp.KeyEvent("\r")))
	focused(`document.activeElement.innerText === 'Keep' && document.activeElement.closest('[role=alertdialog]') !== null`, "first it asks")
	shoot(t, wall, "wall-off-sure")
	require.NoError(t, wall.Do(soon, chromedp.KeyEvent("\u001b")))
	focused(`document.activeElement.classList.contains('tile-off') && `+tile+`.querySelector('.tile-sure').hidden`, "nothing was done")
	require.NotNil(t, d.room(agentRoom))
	require.NoError(t, wall.Do(soon, chromedp.KeyEvent("\r")))
	require.NoError(t, wall.Do(soon, clickText(".tile-sure .act", "Remove")))
	require.Eventually(t, func() bool { return d.room(agentRoom) == nil }, later, 50*time.Millisecond)
	require.NoError(t, wall.Until(soon, `document.getElementById('ask-state').innerText === 'The commentator has left “match”.'`))
	require.Equal(t, "1 room", text(t, wall, "#count"))
	require.NoError(t, wall.Type("#ask-room", agentRoom+"\r"))
	d.eventually(agentRoom, func(r map[string]any) bool { return r["newest"] != nil })
}

// TestAgentConsoleBeyondThisMachine: beyond loopback, page and API require the token.
func TestAgentConsoleBeyondThisMachine(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	p := h.start("--console", "0.0.0.0:0")
	d := p.console(t)
	require.NotEmpty(t, d.token)
	for _, call := range [][2]string{
		{"GET", "/api/rooms"},
		{"POST", "/api/rooms"},
		{"PATCH", "/api/rooms/x"},
		{"DELETE", "/api/rooms/x"},
		{"GET", "/api/rooms/x"},
		{"GET", "/api/events"},
		{"GET", "/api/rooms/x/status"},
		{"GET", "/metrics"},
		{"GET", "/openapi.json"},
	} {
		code, body := d.ask(call[0], call[1], `{"room":"x"}`)
		require.Equal(t, http.StatusUnauthorized, code, "%v %s", call, body)
		require.Contains(t, body, "token_needed")
	}
	// Senders and players need a key, a LiveKit token, or this token.
	for _, path := range []string{"/whip/x", "/whep/x"} {
		code, body := d.ask(http.MethodPost, path, "v=0\r\n", "Content-Type", "application/sdp")
		require.Equal(t, http.StatusUnauthorized, code, body)
	}
	code, body := d.ask(http.MethodGet, "/api/rooms", "", "Authorization", "Bearer "+d.token)
	require.Equal(t, http.StatusOK, code, body)
	code, _ = d.ask(http.MethodGet, "/api/rooms", "", "Authorization", "Bearer not-"+d.token)
	require.Equal(t, http.StatusUnauthorized, code)
	for _, line := range p.lines() {
		require.NotContains(t, line, d.token)
	}

	// The page asks for it once.
	b := open(t, d.url+"/", browser.Options{})
	require.NoError(t, b.Until(soon, `!document.getElementById('login').hidden`))
	shoot(t, b, "wall-locked")
	require.NoError(t, b.Type("#login-token", d.token+"\r"))
	require.NoError(t, b.Until(soon, `document.getElementById('nobody-words').innerText === 'No room has a commentator yet.'`))
	require.NoError(t, b.Reload())
	require.NoError(t, b.Until(soon, `document.getElementById('nobody-words').innerText === 'No room has a commentator yet.'`))
}

// TestAgentConsoleOfTwoCameras: each of two commentators in one room has its own page.
func TestAgentConsoleOfTwoCameras(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	p := h.start("--type", "publisher", "--console", "127.0.0.1:0")
	d := p.console(t)
	h.ask(agentRoom, "")
	h.film(agentRoom, "cam-2", 5)
	watches := func(camera string) func(map[string]any) bool {
		return func(r map[string]any) bool {
			s, _ := r["source"].(map[string]any)
			return s["identity"] == camera && s["width"] != 0.0
		}
	}
	d.eventually(agentRoom+":cam", watches("cam"))
	d.eventually(agentRoom+":cam-2", watches("cam-2"))
	code, body := d.ask(http.MethodPost, "/api/rooms/match:cam-2/livekit/token", `{"role":"viewer","name":"Vera"}`)
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"agent":"`+worker.Identity(agentWord, "cam-2")+`"`)
	require.Contains(t, body, `"room":"`+agentRoom+`"`)
	code, body = d.ask(http.MethodDelete, "/api/rooms/match:cam-2", "")
	require.Equal(t, http.StatusConflict, code, body)
	require.Contains(t, body, "one_of_several")
	b := open(t, d.url+"/rooms/match%3Acam-2", browser.Options{})
	plays(t, b, later)
	require.Empty(t, problems(b))
}

// TestAgentConsoleNeedsItsAddress: an address in use is an error at start.
func TestAgentConsoleNeedsItsAddress(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	p := h.launch("--console", strings.TrimPrefix(h.url, "ws://"))
	select {
	case <-p.done:
	case <-time.After(startWait):
		require.FailNow(t, "the program goes on without its page")
	}
	require.NotZero(t, p.exitCode())
	require.Contains(t, strings.Join(p.lines(), "\n"), "address already in use")
}
