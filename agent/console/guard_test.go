package console_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/audioapi"
	"touchline/agent/console"
	"touchline/inference/live/livetest"
	"touchline/inference/vad"
	"touchline/internal/redact"
)

// everywhere is one path of each kind.
var everywhere = []string{"/", "/static/app.js", "/api/status", "/api/events", "/api/login", "/metrics", "/healthz", "/rtc"}

func TestForgedHost(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: console.Config{AllowedHosts: []string{"Desk.Example.org"}}})
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	for _, host := range []string{
		"evil.example", "evil.example:8199", "127.0.0.1.evil.example", "localhost.evil.example:" + u.Port(), "192.0.2.7",
		"desk.example.org.evil", "0.0.0.0", "[2001:db8::1]:80", "local host", "localhost:0", "localhost:http",
		"127.0.0.1:99999",
	} {
		for _, path := range everywhere {
			a := r.ask("GET", path, "", "Host", host)
			if a.status == http.StatusBadRequest {
				continue // net/http itself would not have it
			}
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", host, path)
			code, _, _ := a.problem(t)
			require.Equal(t, "bad_host", code)
		}
	}
	_, token, ok := strings.Cut(r.opened, "#token=")
	require.True(t, ok, "the printed address carries the token where one may be needed")
	hosts := []string{"localhost", "LOCALHOST.:80", "127.0.0.1", "127.9.9.9:1", "[::1]:8199", "a.localhost", u.Host, "desk.example.org:443"}
	for _, host := range hosts {
		// A client of a proxy may write any of them, so each needs the token.
		require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", "Host", host).status, host)
		require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Host", host, "Authorization", "Bearer "+token).status, host)
		require.Equal(t, http.StatusOK, r.ask("GET", "/healthz", "", "Host", host).status, host)
	}
}

func TestForgedOrigin(t *testing.T) {
	t.Parallel()
	d := newDesk()
	r := open(t, console.Options{Room: console.Room{Bot: d, Pictures: newStudio()}, SignalURL: "ws://127.0.0.1:1"})
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	for _, origin := range []string{
		"http://evil.example", "https://evil.example:443", "null", "http://127.0.0.1:1", "http://localhost:" + u.Port(),
		"file://", "http://" + u.Host + ".evil.example", "chrome-extension://" + u.Host,
	} {
		for _, path := range everywhere {
			a := r.ask("GET", path, "", "Origin", origin)
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", origin, path)
			code, _, _ := a.problem(t)
			require.Equal(t, "bad_origin", code)
		}
		for _, path := range []string{"/api/instruction", "/api/settings", "/api/start", "/api/stop", "/api/livekit/token", "/api/login"} {
			// As a form or a simple fetch would send it, without a question asked first.
			a := r.ask("POST", path, `{"instruction":"evil"}`, "Origin", origin, "Content-Type", "text/plain")
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", origin, path)
		}
		require.Equal(t, http.StatusForbidden, r.ask("DELETE", "/api/instruction", "", "Origin", origin).status)
	}
	require.Empty(t, d.orders(), "nothing reached the commentator")

	// What carries no Origin, an image or a script tag, says where it comes from in another way.
	for _, site := range []string{"cross-site", "same-site"} {
		for _, path := range []string{"/api/mjpeg", "/api/frame", "/api/status", "/static/app.js"} {
			require.Equal(t, http.StatusForbidden,
				r.ask("GET", path, "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image").status)
		}
		require.Equal(t, http.StatusForbidden,
			r.ask("GET", "/", "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe").status)
		require.Equal(t, http.StatusForbidden, r.ask("POST", "/api/stop", "", "Sec-Fetch-Site", site,
			"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document").status)
		require.Equal(t, http.StatusServiceUnavailable, // not built here, but not refused either
			r.ask("GET", "/", "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document").status,
			"a link from elsewhere may be followed")
	}
	own := "http://" + u.Host
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/stop", "", "Origin", own, "Sec-Fetch-Site", "same-origin").status)
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Sec-Fetch-Site", "none").status)
	require.Empty(t, r.ask("OPTIONS", "/api/status", "").header.Get("Access-Control-Allow-Origin"))
}

// guardedPaths need the token; the others let the page and the probes in.
var guardedPaths = []string{
	"/api/status", "/api/events", "/api/stream", "/api/history", "/api/frame", "/api/frames/1", "/api/mjpeg",
	"/api/audio-stream", "/api/profiles", "/metrics", "/rtc", "/rtc/v1",
}

func TestTokenFlow(t *testing.T) {
	t.Parallel()
	d := newDesk()
	r := open(t, console.Options{Room: console.Room{Bot: d}, Config: console.Config{Listen: "0.0.0.0:0"}})
	base, token, ok := strings.Cut(r.opened, "#token=")
	require.True(t, ok, r.opened)
	require.GreaterOrEqual(t, len(token), 20)
	require.Equal(t, r.URL(), base)
	require.NotContains(t, base, "0.0.0.0")

	for _, path := range guardedPaths {
		a := r.ask("GET", path, "")
		require.Equal(t, http.StatusUnauthorized, a.status, path)
		require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
		code, _, _ := a.problem(t)
		require.Equal(t, "token_needed", code)
	}
	// The loopback address is no way around: a proxy on this machine comes from there.
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	local, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", u.Port()) + "/api/status")
	require.NoError(t, err)
	require.NoError(t, local.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	require.Equal(t, http.StatusUnauthorized, local.StatusCode)

	require.Equal(t, http.StatusUnauthorized, r.ask("POST", "/api/stop", "").status)
	require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", "Authorization", "Bearer "+token+"x").status)
	require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", "Authorization", "Basic "+token).status)
	require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status?token="+token, "").status)
	require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", "Cookie", "touchline_token="+token).status)
	require.Empty(t, d.orders())
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Authorization", "bearer "+token).status)

	a := r.ask("POST", "/api/login", `{"token":"wrong"}`)
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Empty(t, a.header.Get("Set-Cookie"))
	body, err := json.Marshal(map[string]string{"token": token})
	require.NoError(t, err)
	a = r.ask("POST", "/api/login", string(body))
	require.Equal(t, http.StatusNoContent, a.status)
	set := a.header.Get("Set-Cookie")
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		require.Contains(t, set, part)
	}
	require.NotContains(t, set, "Secure", "this is plain HTTP")
	host := strings.TrimSuffix(strings.TrimPrefix(r.URL(), "http://"), "/")
	a = r.ask("POST", "/api/login", string(body), "Origin", "https://"+host)
	require.Contains(t, a.header.Get("Set-Cookie"), "Secure", "a page behind a proxy with TLS")
	a = r.ask("POST", "/api/login", string(body), "X-Forwarded-Proto", "https")
	require.NotContains(t, a.header.Get("Set-Cookie"), "Secure", "anyone may send it")
	require.NotContains(t, set, token, "the cookie is not the token")
	cookie, _, _ := strings.Cut(set, ";")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Cookie", cookie).status)
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/stop", "", "Cookie", "a=b; "+cookie, "Origin", "http://"+u.Host).status)
	require.Equal(t, http.StatusForbidden, r.ask("POST", "/api/stop", "", "Cookie", cookie, "Origin", "http://evil.example").status)

	for path, status := range map[string]int{"/": 503, "/healthz": 200, "/readyz": 200} {
		require.Equal(t, status, r.ask("GET", path, "").status, path)
	}
	require.Equal(t, http.StatusForbidden, r.ask("GET", "/", "", "Host", "evil.example").status)
	require.Equal(t, http.StatusOK, r.ask("GET", "/healthz", "", "Host", "10.1.2.3:8199").status, "a probe by address")
}

// TestEveryRouteIsGuarded: of all that is served for many rooms, nothing but the page, the login and the
// probes answers without the token, and nothing at all answers another site's page.
func TestEveryRouteIsGuarded(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	doors := []string{"GET /", "GET /rooms/{room}", "POST /api/login", "GET /healthz", "GET /readyz"}
	for name, tt := range map[string]struct {
		listen string
		header []string // of a request that is refused
		status int
		code   string
		open   []string
	}{
		"no token":      {"0.0.0.0:0", nil, http.StatusUnauthorized, "token_needed", doors},
		"another token": {"0.0.0.0:0", []string{"Authorization", "Bearer " + token + "x"}, http.StatusUnauthorized, "token_needed", doors},
		"proxied":       {"127.0.0.1:0", []string{"X-Forwarded-For", "192.0.2.1"}, http.StatusUnauthorized, "token_needed", doors},
		"another site":  {"127.0.0.1:0", []string{"Origin", "https://elsewhere.example"}, http.StatusForbidden, "bad_origin", nil},
		"another name":  {"127.0.0.1:0", []string{"Host", "elsewhere.example"}, http.StatusForbidden, "bad_host", nil},
	} {
		t.Run(name, func(t *testing.T) {
			rooms, calls := console.NewRooms(0, zerolog.Nop()), &exchange{}
			r := open(t, console.Options{
				Rooms: rooms, Dispatcher: calls, SignalURL: "ws://127.0.0.1:1",
				Config: console.Config{Listen: tt.listen, Token: redact.Secret(token)},
			}, console.Unlimited)
			d, _, _ := addRoom(t, rooms, "final")
			refused := 0
			for _, route := range append(console.Routes(r.Server), "GET /rtc/v1", "GET /nowhere") {
				if slices.Contains(tt.open, route) || route == "GET /nowhere" && tt.code == "token_needed" {
					continue
				}
				method, path, _ := strings.Cut(route, " ")
				path = strings.NewReplacer("{room}", "final", "{id}", "1", "{$}", "").Replace(path)
				a := r.ask(method, path, `{"room":"x","instruction":"x","source":"","role":"viewer","name":"x"}`, tt.header...)
				require.Equal(t, tt.status, a.status, "%s: %s", route, a.body)
				if method != http.MethodHead {
					code, _, _ := a.problem(t)
					require.Equal(t, tt.code, code, route)
				}
				refused++
			}
			require.Greater(t, refused, 50)
			require.Empty(t, d.orders())
			require.Empty(t, calls.calls)
		})
	}
}

// TestEveryRight walks the table of rights: every route with a token for each right alone, for all of them, and for another
// room. A token with the needed rights passes, any other is refused with the right that it lacks.
func TestEveryRight(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	for _, single := range []bool{false, true} {
		o := console.Options{
			Keys: keys, Dispatcher: &exchange{}, SignalURL: "ws://127.0.0.1:1", Config: console.Config{Listen: "0.0.0.0:0"},
			Speech:        audioapi.New(audioapi.Options{Voices: func() []audioapi.Voice { return nil }}),
			Transcription: transcriber(),
		}
		if single {
			o.Room = console.Room{Name: "final", Bot: newDesk(), Tokens: mint{}}
		} else {
			o.Rooms = console.NewRooms(0, zerolog.Nop())
		}
		r := open(t, o, console.Unlimited)
		if !single {
			addRoom(t, o.Rooms, "final")
			addRoom(t, o.Rooms, "secret-board")
		}
		doors := []string{"GET /", "GET /rooms/{room}", "POST /api/login", "GET /healthz", "GET /readyz"}
		tried := 0
		for _, route := range append(console.Routes(r.Server), "GET /rtc") {
			if slices.Contains(doors, route) {
				continue
			}
			method, path, _ := strings.Cut(route, " ")
			operation := route
			if below, ok := strings.CutPrefix(path, "/api/rooms/{room}"); ok {
				operation = method + " /" + strings.TrimPrefix(below, "/")
			} else if below, ok := strings.CutPrefix(path, "/api"); ok && below != "/rooms" && (single || below != "/events") {
				if !single {
					continue // there are two rooms
				}
				operation = method + " " + below
			} else if path == "/rtc" {
				operation = "/rtc"
			}
			needed := access.Needed(operation)
			require.NotEqual(t, access.Everything, needed, "%s: give it a row in agent/access", operation)
			path = strings.NewReplacer("{room}", "final", "{id}", "1").Replace(path)
			for right := access.Watch; right <= access.AllInRoom; right <<= 1 {
				if right > access.Transcribe {
					right = access.AllInRoom
				}
				a := r.glance(method, path, granted(t, keys, right, "final"))
				require.NotContains(t, string(a.body)+fmt.Sprint(a.header), "secret-board", "%s: a link for one room names no other", route)
				if right.Allow(needed) {
					require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, "%s with %s", route, right)
				} else {
					require.Equal(t, http.StatusForbidden, a.status, "%s with %s", route, right)
					require.Contains(t, string(a.body), `"no_right"`)
				}
				tried++
				if right == access.AllInRoom {
					break
				}
			}
			if operation != route && operation != "/rtc" {
				a := r.glance(method, path, granted(t, keys, access.AllInRoom, "another"))
				require.Equal(t, http.StatusUnauthorized, a.status, route)
			}
		}
		require.Greater(t, tried, 250)
	}
}

// TestOtherRoomsAreNotFound: a link, or no token at all, gets the same answer for a room that exists as for one that does not.
func TestOtherRoomsAreNotFound(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	rooms := console.NewRooms(0, zerolog.Nop())
	r := open(t, console.Options{Keys: keys, Rooms: rooms, SignalURL: "ws://127.0.0.1:1", Config: console.Config{Listen: "0.0.0.0:0"}}, console.Unlimited)
	addRoom(t, rooms, "final")
	addRoom(t, rooms, "secret-board")
	request := regexp.MustCompile(`"request_id":"[^"]*"`)
	for _, route := range console.Routes(r.Server) {
		method, path, _ := strings.Cut(route, " ")
		if !strings.Contains(path, "{room}") {
			continue
		}
		for _, token := range []string{"", granted(t, keys, access.AllInRoom, "final")} {
			var answers []string
			for _, room := range []string{"secret-board", "secret-cellar"} {
				a := r.glance(method, strings.NewReplacer("{room}", room, "{id}", "1", "{name}", "x").Replace(path), token)
				body := request.ReplaceAllString(strings.ReplaceAll(string(a.body), room, "ROOM"), "")
				answers = append(answers, fmt.Sprint(a.status, " ", body))
			}
			require.Equal(t, answers[1], answers[0], route)
		}
	}
}

// transcriber is transcription as a service.
func transcriber() *audioapi.Transcriber {
	return audioapi.NewTranscriber(audioapi.TranscriberOptions{
		Config: audioapi.DefaultConfig(), Recognizer: &livetest.Recognizer{}, VAD: vad.Loud(), Log: zerolog.Nop(),
	})
}

// TestBrowserToken: a browser's WebSocket carries its token as a subprotocol.
func TestBrowserToken(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	r := open(t, console.Options{
		Keys: keys, SignalURL: "ws://127.0.0.1:1", Config: console.Config{Listen: "0.0.0.0:0"}, Transcription: transcriber(),
		Room: console.Room{Name: "final", Bot: newDesk(), Tokens: mint{}},
	}, console.Unlimited)
	for right, want := range map[access.Rights]int{access.Transcribe: http.StatusOK, access.Watch: http.StatusForbidden} {
		a := r.ask("GET", "/health", "", "Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key."+granted(t, keys, right, "final"))
		require.Equal(t, want, a.status)
	}
	require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/health", "", "Sec-WebSocket-Protocol", "openai-insecure-api-key.guess").status)
}

// granted makes a token.
func granted(t *testing.T, keys access.Keys, rights access.Rights, rooms ...string) string {
	t.Helper()
	now := time.Now()
	token, err := access.Sign(keys, access.Grant{Rooms: rooms, Rights: rights, Name: "Vera", Expires: now.Add(time.Hour)}, now)
	require.NoError(t, err)
	return token
}

// glance makes a request and reads at most the first bytes of its answer, which may never end.
func (r *running) glance(method, path, token string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url(path), strings.NewReader("{"))
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode >= http.StatusBadRequest {
		a.body, err = io.ReadAll(resp.Body)
		require.NoError(r.t, err)
	}
	return a
}

// TestLinks: a client that steers makes a link that only watches; the cookie of that link gives no right to steer, and expires.
func TestLinks(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	const token = "correct-horse-battery"
	d := newDesk()
	r := open(t, console.Options{
		Room: console.Room{Name: "final", Bot: d, Tokens: mint{}}, Keys: keys, SignalURL: "ws://127.0.0.1:1",
		Config: console.Config{Token: redact.Secret(token)},
	}, console.Unlimited)
	bearer := []string{"Authorization", "Bearer " + token}
	require.JSONEq(t, `{"rights":["watch","instruct","settings","sources","rules","speak","transcribe","process"]}`,
		string(r.ask("GET", "/api/rights", "", bearer...).body))

	a := r.ask("POST", "/api/links", `{"rights":["watch"],"for":"1h","name":"Vera"}`, bearer...)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	var made struct {
		Token   string
		Rights  []string
		Expires time.Time
	}
	require.NoError(t, json.Unmarshal(a.body, &made))
	require.Equal(t, []string{"watch"}, made.Rights)
	require.WithinDuration(t, time.Now().Add(time.Hour), made.Expires, time.Minute)

	a = r.ask("POST", "/api/login", `{"token":"`+made.Token+`"}`)
	require.Equal(t, http.StatusNoContent, a.status)
	set := a.header.Get("Set-Cookie")
	require.Contains(t, set, "HttpOnly")
	age, _, _ := strings.Cut(set[strings.Index(set, "Max-Age=")+len("Max-Age="):], ";")
	seconds, err := strconv.Atoi(age)
	require.NoError(t, err)
	require.InDelta(t, 3600, seconds, 60, "the cookie ends with the link")
	cookie, _, _ := strings.Cut(set, ";")
	watch := []string{"Cookie", cookie}
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", watch...).status)
	require.Contains(t, string(r.ask("GET", "/api/rights", "", watch...).body), `"rights":["watch"],"name":"Vera","expires":`)
	a = r.ask("POST", "/api/instruction", `{"instruction":"the keeper"}`, watch...)
	code, message, _ := a.problem(t)
	require.Equal(t, "no_right", code)
	require.Equal(t, "this takes the right to instruct, your link allows watch; ask for a link that steers", message)
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/livekit/token", `{"role":"viewer","name":"V"}`, watch...).status)
	require.Equal(t, http.StatusForbidden, r.ask("POST", "/api/livekit/token", `{"role":"camera","name":"V"}`, watch...).status)
	require.Empty(t, d.orders())

	// A link that steers can make links, but none that lasts longer.
	steer := []string{"Authorization", "Bearer " + granted(t, keys, access.AllInRoom, "final")}
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/instruction", `{"instruction":"the keeper"}`, steer...).status)
	require.Equal(t, []string{`instruction "the keeper" by Vera`}, d.orders())
	require.Equal(t, http.StatusCreated, r.ask("POST", "/api/links", `{"rights":["steer"],"for":"30m"}`, steer...).status)
	for body, status := range map[string]int{
		`{"rights":["watch"],"for":"2h"}`: http.StatusForbidden, `{"rights":["process"]}`: http.StatusUnprocessableEntity,
		`{"rights":[]}`: http.StatusUnprocessableEntity, `{"rights":["watch"],"for":"soon"}`: http.StatusUnprocessableEntity,
		`{"rights":["watch"],"for":"1s"}`: http.StatusUnprocessableEntity, `{"rights":["watch"],"for":"-1h"}`: http.StatusUnprocessableEntity,
		`{"rights":["watch"],"for":"10m","name":"a\u0000"}`: http.StatusUnprocessableEntity,
	} {
		require.Equal(t, status, r.ask("POST", "/api/links", body, steer...).status, body)
	}

	now := time.Now()
	old, err := access.Sign(keys, access.Grant{Rooms: []string{"final"}, Rights: access.Watch, Expires: now.Add(-time.Minute)}, now.Add(-time.Hour))
	require.NoError(t, err)
	a = r.ask("POST", "/api/login", `{"token":"`+old+`"}`)
	code, _, _ = a.problem(t)
	require.Equal(t, "expired_token", code)
	a = r.ask("GET", "/api/status", "", "Cookie", "touchline_token="+old)
	require.Equal(t, http.StatusUnauthorized, a.status)
	code, _, _ = a.problem(t)
	require.Equal(t, "expired_token", code)

	// Without keys there are no links.
	bare := open(t, console.Options{Room: console.Room{Bot: newDesk()}})
	code, _, _ = bare.ask("POST", "/api/links", `{"rights":["watch"]}`).problem(t)
	require.Equal(t, "no_keys", code)
}

func TestConfiguredToken(t *testing.T) {
	t.Parallel()
	const token = "correct horse battery; staple"
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: console.Config{Listen: ":0", Token: redact.Secret(token)}})
	require.Equal(t, r.URL(), r.opened, "what its owner knows is not printed")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Authorization", "Bearer "+token).status)
	a := r.ask("POST", "/api/login", `{"token":"`+token+`"}`)
	require.Equal(t, http.StatusNoContent, a.status)
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Cookie", cookie).status)
}

func TestLoopbackNeedsNoTokenUnlessProxied(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}})
	require.NotContains(t, r.opened, "token")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "").status)
	for _, h := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host"} {
		require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", h, "192.0.2.1").status, h)
	}
}

// TestForwarderNeedsTheToken: a TCP forwarder on this machine adds no header and passes the Host that its
// client wrote, so where a token is configured loopback is no proof of anything.
func TestForwarderNeedsTheToken(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	for name, cfg := range map[string]console.Config{
		"token":          {Token: token},
		"names":          {AllowedHosts: []string{"live.example.org"}},
		"a proxy":        {TrustedProxies: []string{"127.0.0.1"}},
		"token and name": {Token: token, AllowedHosts: []string{"live.example.org"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk()
			r := open(t, console.Options{Room: console.Room{Bot: d}, Config: cfg})
			for _, host := range []string{"localhost", "127.0.0.1:8199"} {
				require.Equal(t, http.StatusUnauthorized, r.ask("POST", "/api/instruction", `{"instruction":"x"}`, "Host", host).status)
				require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", "Host", host).status)
			}
			require.Empty(t, d.orders())
			for path, status := range map[string]int{"/": 503, "/healthz": 200, "/readyz": 200} {
				require.Equal(t, status, r.ask("GET", path, "").status, path)
			}
		})
	}
}

// TestLoginLimit: wrong logins run into 429 soon, from one peer, and the log stays short.
func TestLoginLimit(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	var log bytes.Buffer
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: console.Config{Token: token}, Log: zerolog.New(zerolog.SyncWriter(&log))})
	statuses := r.many(100, func(int) (answer, error) { return r.try("POST", "/api/login", `{"token":"wrong"}`) })
	last := r.ask("POST", "/api/login", `{"token":"wrong"}`)
	require.Equal(t, http.StatusTooManyRequests, last.status)
	require.LessOrEqual(t, statuses[http.StatusUnauthorized], 20)
	require.GreaterOrEqual(t, statuses[http.StatusUnauthorized], 5, "a person may mistype")
	code, _, _ := last.problem(t)
	require.Equal(t, "too_many_logins", code)
	wait, err := strconv.Atoi(last.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, wait)
	require.Equal(t, http.StatusTooManyRequests, r.ask("POST", "/api/login", `{"token":"`+token+`"}`).status, "or the answer would reveal the right token")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Authorization", "Bearer "+token).status, "the API stays")
	r.close()
	require.LessOrEqual(t, strings.Count(log.String(), "login refused"), 5)
	require.Contains(t, log.String(), "127.0.0.1")
	require.NotContains(t, log.String(), "wrong", "a wrong token may be a mistyped right one")
}

// TestLoginsOfALink: any number of people behind one address log in with a link, also after guesses from there. Those are still limited.
func TestLoginsOfALink(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk()}, Keys: crowdKeys, Config: console.Config{Token: operatorToken}})
	link := granted(t, crowdKeys, access.Watch, "final")
	login := func(token string) (answer, error) { return r.try("POST", "/api/login", `{"token":"`+token+`"}`) }
	people := func(int) (answer, error) {
		a, err := login(link)
		if cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";"); err == nil {
			return r.try("GET", "/api/status", "", "Cookie", cookie)
		}
		return a, err
	}
	require.Equal(t, map[int]int{http.StatusOK: 200}, r.many(200, people))
	a, err := login(operatorToken)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, a.status, "the operator meets no limit because of them")
	guesses := r.many(100, func(i int) (answer, error) { return login(link[:len(link)-4] + fmt.Sprintf("%04d", i)) })
	require.LessOrEqual(t, guesses[http.StatusUnauthorized], 20, "%v", guesses)
	require.Equal(t, map[int]int{http.StatusOK: 20}, r.many(20, people))
	requests := r.many(2000, func(int) (answer, error) { return login(link) })
	require.Positive(t, requests[http.StatusTooManyRequests], "they count as requests of the link")
	require.GreaterOrEqual(t, requests[http.StatusNoContent], 500)
}

// TestLoginsOfAllAddresses: of ten times as many wrong logins as all addresses together may try, each from another address, the bound is
// tried. The operator's requests are answered, and so are logins with the right token in between, each from an address of its own.
func TestLoginsOfAllAddresses(t *testing.T) {
	t.Parallel()
	r, as := crowd(t, console.Options{Room: console.Room{Bot: newDesk()}})
	began := time.Now()
	statuses := r.many(1000, func(i int) (answer, error) {
		from, token := as("", fmt.Sprintf("198.51.%d.%d", 100+i/250, 1+i%250))[2:], "wrong"
		if i%50 == 49 {
			token = operatorToken
		}
		return r.try("POST", "/api/login", `{"token":"`+token+`"}`, from...)
	})
	require.Equal(t, 20, statuses[http.StatusNoContent], "%v", statuses)
	require.LessOrEqual(t, statuses[http.StatusUnauthorized], 100+int(5*time.Since(began).Seconds())+1)
	require.Equal(t, 980, statuses[http.StatusUnauthorized]+statuses[http.StatusTooManyRequests], "%v", statuses)
	operator := as(operatorToken, "198.51.100.1")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", operator...).status)
	require.Contains(t, string(r.ask("GET", "/metrics", "", operator...).body),
		fmt.Sprintf("touchline_http_requests_total{route=\"/api/login\",status=\"429\"} %d\n", statuses[http.StatusTooManyRequests]))
}

// TestBearerLimit: wrong bearer tokens use up the same limit, on every route that needs a token.
func TestBearerLimit(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	var log bytes.Buffer
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: console.Config{Token: token}, Log: zerolog.New(zerolog.SyncWriter(&log))})
	for range 50 {
		require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "").status, "no token is no attempt")
	}
	statuses := r.many(100, func(i int) (answer, error) {
		return r.try("GET", []string{"/api/status", "/metrics", "/rtc"}[i%3], "", "Authorization", "Bearer wrong")
	})
	began, last := time.Now(), r.ask("GET", "/api/status", "", "Authorization", "Bearer wrong")
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond, "it waits for its answer")
	require.Equal(t, http.StatusTooManyRequests, last.status)
	require.LessOrEqual(t, statuses[http.StatusUnauthorized], 20)
	require.GreaterOrEqual(t, statuses[http.StatusUnauthorized], 5, "a script may have an old token")
	code, _, _ := last.problem(t)
	require.Equal(t, "too_many_logins", code)
	wait, err := strconv.Atoi(last.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, wait)
	require.Equal(t, http.StatusTooManyRequests, r.ask("POST", "/api/login", `{"token":"`+token+`"}`).status, "one limit for both")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Authorization", "Bearer "+token).status,
		"the API stays, also behind a proxy whose clients share an address: SECURITY.md says that a right guess is accepted")
	r.close()
	require.LessOrEqual(t, strings.Count(log.String(), "login refused"), 5)
	require.Contains(t, log.String(), "login refused")
	require.NotContains(t, log.String(), "wrong")
}

// TestCookieLimit: wrong cookies are limited and logged as wrong tokens are. They stop no login, and no request with the right cookie.
func TestCookieLimit(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	var log bytes.Buffer
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}, Config: console.Config{Token: token}, Log: zerolog.New(zerolog.SyncWriter(&log))})
	for range 40 { // pages of five people with the cookie of an earlier token
		require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", "Cookie", "touchline_token=old").status)
	}
	statuses := r.many(600, func(i int) (answer, error) {
		return r.try("GET", "/api/status", "", "Cookie", "touchline_token=wrong"+strconv.Itoa(i))
	})
	require.Greater(t, statuses[http.StatusTooManyRequests], 300, "%v", statuses)
	a := r.ask("POST", "/api/login", `{"token":"`+token+`"}`)
	require.Equal(t, http.StatusNoContent, a.status)
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", "Cookie", cookie).status)
	counted := string(r.ask("GET", "/metrics", "", "Cookie", cookie).body)
	require.Contains(t, counted, `touchline_http_requests_total{route="/api/status",status="429"} `+strconv.Itoa(statuses[http.StatusTooManyRequests]))
	r.close()
	require.LessOrEqual(t, strings.Count(log.String(), "login refused"), 10)
	require.Contains(t, log.String(), "login refused")
	require.NotContains(t, log.String(), "wrong")
}

// TestManyCookies: a request has few cookies whose signatures are checked, and a header without space for many.
func TestManyCookies(t *testing.T) {
	t.Parallel()
	r, as := crowd(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk()}}, console.Unlimited)
	good := granted(t, crowdKeys, access.Watch, "final")
	wrong := good[:strings.LastIndexByte(good, '.')+1] + strings.Repeat("A", 43)
	forwarded := as("", "192.0.2.1")[2:] // such a client needs a token
	for before, status := range map[int]int{0: http.StatusOK, 3: http.StatusOK, 4: http.StatusUnauthorized, 40: http.StatusUnauthorized} {
		cookies := strings.Repeat("touchline_token="+wrong+"; ", before) + "touchline_token=" + good
		require.Equal(t, status, r.ask("GET", "/api/status", "", append(forwarded, "Cookie", cookies)...).status, "%d wrong ones", before)
	}
	own := r.ask("POST", "/api/login", `{"token":"`+operatorToken+`"}`).header.Get("Set-Cookie")
	own, _, _ = strings.Cut(own, ";")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "", append(forwarded, "Cookie", strings.Repeat("touchline_token=x; ", 40)+own)...).status)
	a, err := r.try("GET", "/healthz", "", "X-Long", strings.Repeat("x", 24<<10))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status)
	a, err = r.try("GET", "/healthz", "", "X-Long", strings.Repeat("x", 320<<10))
	require.True(t, err != nil || a.status == http.StatusRequestHeaderFieldsTooLarge, "%d", a.status) // the connection may close first
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opts console.Options
		want string
	}{
		{"no port", console.Options{Config: console.Config{Listen: "127.0.0.1"}}, "HOST:PORT"},
		{
			"short token where one is needed",
			console.Options{Config: console.Config{Listen: ":0", Token: "short"}},
			"at least 16 characters",
		},
		{
			"short token on loopback, where a proxy may forward to it",
			console.Options{Config: console.Config{Listen: "127.0.0.1:0", Token: "short"}},
			"at least 16 characters",
		},
		{
			"bad allowed host",
			console.Options{Config: console.Config{Listen: "localhost:0", AllowedHosts: []string{"http://x/"}}},
			"http://x/",
		},
		{"bad quality", console.Options{Room: console.Room{JPEGQuality: 101}, Config: console.Config{Listen: "localhost:0"}}, "101"},
		{
			"bad LiveKit URL",
			console.Options{Config: console.Config{Listen: "localhost:0"}, SignalURL: "127.0.0.1:7880"},
			"LiveKit's URL",
		},
		{
			"certificate without key",
			console.Options{Config: console.Config{Listen: "localhost:0", TLSCert: "a.pem"}},
			"set together",
		},
		{
			"certificate twice", console.Options{Config: console.Config{
				Listen: "localhost:0", TLSCert: "a.pem", TLSKey: "b.pem", SelfSigned: true,
			}}, "exclude each other",
		},
		{
			"certificate that is not there", console.Options{Config: console.Config{
				Listen: "localhost:0", TLSCert: "a.pem", TLSKey: "b.pem",
			}}, "a.pem",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := console.New(tt.opts)
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "short\"", "a token is not printed")
		})
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{})
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	s, err := console.New(console.Options{Config: console.Config{Listen: u.Host}})
	require.NoError(t, err)
	require.ErrorContains(t, s.Run(t.Context()), "console.listen")
	require.Empty(t, s.URL())
}

// FuzzHostName: an accepted Host may be repeated in a header.
func FuzzHostName(f *testing.F) {
	for _, s := range []string{"localhost", "LOCALHOST.:80", "[::1]:8199", "[::1", "::1", "a:b:c", "127.0.0.1", "[fe80::1%eth0]", ":1", ".", "x;y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, ok := console.HostName(host)
		if !ok {
			return
		}
		require.NotEmpty(t, name)
		for _, c := range []byte(host) {
			good := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._:[]", c) >= 0
			require.True(t, good, "%q in %q", c, host)
		}
		again, ok := console.HostName(name)
		require.True(t, ok)
		require.Equal(t, name, again)
	})
}
