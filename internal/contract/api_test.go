package contract_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/settings"
	"touchline/internal/contract"
)

// operations returns "METHOD /path" of an OpenAPI document, sorted.
func operations(t *testing.T, document string) (list []string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(document), &doc))
	for path, methods := range doc.Paths {
		for method := range methods {
			list = append(list, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(list)
	return list
}

// TestOpenAPI: the document of the API: paths, parameters, bodies, schemas.
func TestOpenAPI(t *testing.T) {
	p := open(t, botSettings(), nil)
	status, document := p.do("GET", "/openapi.json", "")
	require.Equal(t, http.StatusOK, status)
	contract.Compare(t, "testdata/openapi.json", contract.JSON([]byte(document)))
}

// TestRights: the rights that each operation needs, with "none" for the public ones and "process" for those that no token
// of a room opens.
func TestRights(t *testing.T) {
	p := open(t, botSettings(), nil)
	_, document := p.do("GET", "/openapi.json", "")
	token := func(r access.Rights) string {
		text, err := access.Sign(keys(), access.Grant{Rooms: []string{"match"}, Rights: r, Name: "v", Expires: time.Now().Add(time.Hour)}, time.Now())
		require.NoError(t, err)
		return text
	}
	var rights []access.Rights // none, all of a room, and all but one
	for _, name := range access.AllInRoom.Names() {
		right, err := access.Parse([]string{name})
		require.NoError(t, err)
		rights = append(rights, access.AllInRoom&^right)
	}
	rights = append(rights, 0, access.AllInRoom)
	type trial struct {
		operation string
		with      access.Rights
	}
	refused := map[trial]bool{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(32)
	all := operations(t, document)
	for _, op := range all {
		method, path, _ := strings.Cut(op, " ")
		path = strings.NewReplacer("{room}", "match", "{id}", "x").Replace(path)
		for _, with := range rights {
			bearer := ""
			if with != 0 {
				bearer = token(with)
			}
			g.Go(func() error {
				status, body, err := p.ask(method, path, "", bearer)
				for err == nil && strings.Contains(body, `"too_many_requests"`) { // more changes than a person makes
					time.Sleep(100 * time.Millisecond)
					status, body, err = p.ask(method, path, "", bearer)
				}
				mu.Lock()
				defer mu.Unlock()
				refused[trial{op, with}] = strings.Contains(body, `"no_right"`) || status == http.StatusUnauthorized && strings.Contains(body, `"token_needed"`)
				return err
			})
		}
	}
	require.NoError(t, g.Wait())
	var out strings.Builder
	for _, op := range all {
		var needed []string
		switch {
		case !refused[trial{op, 0}]:
			needed = []string{"none"}
		case refused[trial{op, access.AllInRoom}]:
			needed = []string{"process"}
		default:
			for i, name := range access.AllInRoom.Names() {
				if refused[trial{op, rights[i]}] {
					needed = append(needed, name)
				}
			}
		}
		fmt.Fprintf(&out, "%s: %s\n", op, strings.Join(needed, ","))
	}
	contract.Compare(t, "testdata/rights.txt", out.String())
}

// TestRoomsAPI: the operations of a page with many rooms.
func TestRoomsAPI(t *testing.T) {
	registry := prometheus.NewRegistry()
	cfg := botSettings()
	address := make(chan string, 1)
	s, err := console.New(console.Options{
		Config: cfg.Agent.Console.Config, Rooms: console.NewRooms(2, zerolog.Nop()), Keys: keys(), Registry: registry,
		SignalURL: cfg.Agent.LiveKit.URL, Announce: func(url string) { address <- url }, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { http.DefaultClient.CloseIdleConnections(); cancel(); <-ended }() //nolint:errcheck // only its end matters
	p := &page{t: t, url: strings.TrimSuffix(<-address, "/")}
	_, document := p.do("GET", "/openapi.json", "")
	contract.Compare(t, "testdata/operations-of-rooms.txt", strings.Join(operations(t, document), "\n")+"\n")
}

// TestLiveSettings: each setting that can change while a bot runs, with its value in force and the answers to values of
// another kind, too low and too high; by POST /api/settings.
func TestLiveSettings(t *testing.T) {
	p := open(t, botSettings(), nil)
	var inForce map[string]json.RawMessage
	_, text := p.do("POST", "/api/settings", `{}`)
	require.NoError(t, json.Unmarshal([]byte(text), &inForce), text)
	names := map[string]reflect.Kind{}
	typ := reflect.TypeFor[settings.Settings]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names[name] = typ.Field(i).Type.Elem().Kind()
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&out, "%s %s = %s\n", name, names[name], inForce[name])
		values := []string{`"nonsense"`, `-1000000`, `-1`, `0`, `1000000`, `1.5`, `true`, `null`, `[]`, `["x",""]`}
		seen := map[string]bool{}
		for _, value := range values {
			status, answer := p.do("POST", "/api/settings", `{"`+name+`": `+value+`}`)
			if status == http.StatusOK {
				answer = "accepted"
				var before map[string]json.RawMessage
				require.NoError(t, json.Unmarshal([]byte(text), &before))
				if old, known := before[name]; known {
					status, body := p.do("POST", "/api/settings", `{"`+name+`": `+string(old)+`}`)
					require.Equal(t, http.StatusOK, status, body)
				}
			}
			if !seen[answer] {
				fmt.Fprintf(&out, "  %s: %d %s\n", value, status, answer)
			}
			seen[answer] = true
		}
	}
	for _, joined := range []string{
		`{"frames_per_look": 0, "capture_fps": 99, "margin": -1}`, `{"frames_per_look": 64, "frame_stride": 16}`,
		`{"color": 1}`, `{`, `[]`, `{}{}`, `{"preset": "owl", "frames_per_look": 3}`, `{"hearing": "all", "wake_words": []}`,
	} {
		status, answer := p.do("POST", "/api/settings", joined)
		fmt.Fprintf(&out, "%s: %d %s\n", joined, status, answer)
	}
	contract.Compare(t, "testdata/settings.txt", contract.Scrub(out.String()))
}

// TestAnswers: answers of the API, good ones and errors, of a bot that is not in its room.
func TestAnswers(t *testing.T) {
	p := open(t, botSettings(), nil)
	var out strings.Builder
	var last map[string]json.RawMessage // the last answer with the whole state
	for _, request := range requests() {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		status, answer := p.do(method, path, body)
		var state map[string]json.RawMessage
		if json.Unmarshal([]byte(answer), &state) == nil && state["monitor_mode"] != nil {
			now := maps.Clone(state)
			maps.DeleteFunc(state, func(name string, v json.RawMessage) bool { return string(last[name]) == string(v) })
			changed, err := json.Marshal(state)
			require.NoError(t, err)
			if last != nil {
				answer = "the state, in which this changed: " + string(changed)
			}
			last = now
		} else if json.Valid([]byte(answer)) {
			answer = strings.TrimSpace(contract.JSON([]byte(answer)))
		}
		fmt.Fprintf(&out, "%s\n%d %s\n\n", request, status, answer)
	}
	contract.Compare(t, "testdata/answers.txt", scrubbed(out.String()))
}

// scrubbed also removes the texts of the built-in prompts, random keys and ids, and folders of the test.
func scrubbed(text string) string {
	for _, r := range [][2]string{
		{`("prompt": ?)"You (are a live|are a sports|watch a|are the quiet|describe a)([^"\\]|\\.)*"`, `$1"..."`},
		{`("suggestion": ?)"([^"\\]|\\.)+"`, `$1"..."`},
		{`(?s)(\nprompt: \|-)\n.*?(\nsuggestion: ).*?\n\n`, "$1 ...$2...\n\n"},
		{`("key": ?)"[A-Z2-7]{26}"`, `$1"KEY"`},
		{`source-[a-z0-9]{8}`, "source-ID"},
		{`("id": ?)"[a-z0-9]{8}"`, `$1"ID"`},
		{`in one of \S+ runtime, bin/runtime`, "in one of FOLDERS"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return contract.Scrub(text)
}

// requests are those of TestAnswers, in order.
func requests() []string {
	return []string{
		`GET /api/status`,
		`GET /api/rooms`,
		`GET /api/rooms/match`,
		`GET /api/rooms/other`,
		`PATCH /api/rooms/match {"instruction":"Follow the ball.","profile":"sports","speech":false,"settings":{"frames_per_look":6}}`,
		`PATCH /api/rooms/match {"instruction":7,"profile":"opera","source":"scene","color":1,"settings":{"frames_per_look":65,"capture_fps":"x"}}`,
		`PATCH /api/rooms/match {"speech":true,"settings":{"speech":false}}`,
		`POST /api/rooms {"room":"x"}`,
		`POST /api/instruction {"text":"Count the people."}`,
		`POST /api/instruction {"instruction":"Count the people."}`,
		`POST /api/instruction {}`,
		`POST /api/command {"command":"softer"}`,
		`POST /api/command {"command":"undo"}`,
		`POST /api/command {"command":"repeat"}`,
		`POST /api/command {"command":"dance"}`,
		`POST /api/say {"text":"The bus leaves."}`,
		`POST /api/say {"text":""}`,
		`POST /api/say {"text":"x","color":1}`,
		`DELETE /api/instruction`,
		`GET /api/profiles`,
		`POST /api/profiles {"profile":"nature"}`,
		`POST /api/profiles {"profile":"opera"}`,
		`GET /api/profiles/default`,
		`PUT /api/profiles/club {"name":"club","label":"Our club","prompt":"You call our match."}`,
		`PUT /api/profiles/Bad%20Name {"label":""}`,
		`DELETE /api/profiles/club`,
		`DELETE /api/profiles/default`,
		`GET /api/sheet`,
		`PUT /api/sheet {"facts":["It rains"]}`,
		`PUT /api/sheet {"colour":1}`,
		`DELETE /api/sheet`,
		`GET /api/engines`,
		`POST /api/engine {"engine":"steam"}`,
		`GET /api/looks`,
		`POST /api/start {}`,
		`POST /api/start {}`,
		`POST /api/stop`,
		`POST /api/source {"source":"camera:door"}`,
		`POST /api/source {"source":"scene"}`,
		`GET /api/history`,
		`DELETE /api/heard`,
		`GET /api/frame`,
		`GET /api/frames/1`,
		`GET /api/frames/x`,
		`GET /api/sources`,
		`POST /api/sources {"address":"rtsp://camera.test/stream"}`,
		`POST /api/sources {"url":"file:///etc/passwd"}`,
		`POST /api/sources {"url":"rtsp://camera.test/stream"}`,
		`GET /api/sources/x`,
		`GET /api/rights`,
		`POST /api/links {"rights":["dance"]}`,
		`POST /api/livekit/token {"role":"king"}`,
		`GET /api/rules`,
		`POST /api/rules {"when":"somebody enters","pause":"1m","level":"critical","interrupt":true,"zone":"UTC"}`,
		`POST /api/rules {"when":"somebody enters"}`,
		`POST /api/rules {"cooldown":"x"}`,
		`POST /api/rules {"when":"","votes":"9 of 3","cadence":"x","pause":"y","level":"odd","hours":"25","days":["someday"],"zone":"Moon"}`,
		`GET /api/rules`,
		`PUT /api/rules/r1 {"when":"the light is out","name":"Light"}`,
		`PUT /api/rules/r9 {"when":"dark"}`,
		`POST /api/rules/try {"when":""}`,
		`POST /api/rules/r1/snooze {"for":"10m"}`,
		`POST /api/rules/r1/snooze {"for":"x"}`,
		`POST /api/rules/r1/test`,
		`GET /api/alerts`,
		`POST /api/alerts/x/ack`,
		`DELETE /api/alerts/x`,
		`DELETE /api/rules/r1`,
		`GET /healthz`,
		`GET /readyz`,
		`GET /health`,
		`GET /v1/models`,
		`GET /v1/audio/voices`,
		`POST /v1/audio/speech {"model":"tts-1","input":"","voice":"alloy"}`,
		`POST /v1/audio/transcriptions`,
		`POST /api/login {"token":"wrong"}`,
		`GET /api/none`,
		`PUT /api/status`,
	}
}
