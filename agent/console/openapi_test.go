package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/inference"
)

// exchange records the requests to a LiveKit server.
type exchange struct {
	mu    sync.Mutex
	calls []console.Call
	err   error
}

func (e *exchange) Dispatch(_ context.Context, c console.Call) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return "", e.err
	}
	e.calls = append(e.calls, c)
	return "AD_1", nil
}

func (e *exchange) Withdraw(_ context.Context, room string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	n := len(e.calls)
	e.calls = slices.DeleteFunc(e.calls, func(c console.Call) bool { return c.Room == room })
	if len(e.calls) == n {
		return fmt.Errorf("%w: %q", console.ErrNotServed, room)
	}
	return nil
}

func (e *exchange) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func TestRoomsAPI(t *testing.T) {
	t.Parallel()
	rooms := console.NewRooms(0, zerolog.Nop())
	calls := &exchange{}
	r := open(t, console.Options{Rooms: rooms, Dispatcher: calls})
	final, hub, _ := addRoom(t, rooms, "final")
	final.noScene = true
	other, _, _ := addRoom(t, rooms, "other one")
	said := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for n := range uint64(3) {
		hub.Record(look.Record{Type: "cycle_end", Cycle: n, Outcome: "spoken", Text: fmt.Sprint("Comment ", n), StartedAt: said})
	}
	long := strings.Repeat("x", prompt.MaxInstruction+1)
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     []string // parts of the body
	}{
		{"list", "GET", "/api/rooms", "", 200, []string{`"rooms":[{"room":"final"`, `"room":"other one"`, `"state":"listening"`, `"text":"Comment 2"`}},
		{"one", "GET", "/api/rooms/other%20one", "", 200, []string{`"room":"other one"`, `"profiles":[`, `"settings":{`}},
		{"none", "GET", "/api/rooms/west", "", 404, []string{"no_such_room", "west"}},
		{"comments", "GET", "/api/rooms/final/comments?limit=2", "", 200, []string{`"cycle":1`, `"cycle":2`}},
		{"too few comments", "GET", "/api/rooms/final/comments?limit=0", "", 422, []string{"bad_fields", "limit"}},
		{"a part", "PATCH", "/api/rooms/final", `{"instruction":"the keeper"}`, 200, []string{`"instruction":"the keeper"`, `"profile":"default"`}},
		{"all", "PATCH", "/api/rooms/final", `{"profile":"sports","speech":false,"source":"","settings":{"frames_per_look":6}}`, 200, []string{`"profile":"sports"`, `"frames_per_look":6`, `"speech":false`}},
		{
			"everything that is wrong at once", "PATCH", "/api/rooms/final",
			`{"instruction":7,"profile":"opera","source":"scene","color":1,"settings":{"frames_per_look":65,"capture_fps":"fast"}}`, 422,
			[]string{"bad_fields", "instruction: expected string", "no opera", "source: expected", "color: unexpected property", "frames_per_look: expected 1 to 64", "settings.capture_fps: expected number"},
		},
		{"wrong source", "PATCH", "/api/rooms/final", `{"source":"file:///etc/passwd"}`, 422, []string{"camera:IDENTITY"}},
		{"at odds", "PATCH", "/api/rooms/final", `{"speech":true,"settings":{"speech":false}}`, 422, []string{"settings.speech"}},
		{"no object", "PATCH", "/api/rooms/final", `[]`, 400, []string{"bad_json"}},
		{"null", "PATCH", "/api/rooms/final", `null`, 400, []string{"bad_json"}},
		{"two objects", "PATCH", "/api/rooms/final", `{}{}`, 400, []string{"bad_json"}},
		{"nothing at all", "PATCH", "/api/rooms/final", ``, 400, []string{"body"}},
		{"too much", "PATCH", "/api/rooms/final", `{"instruction":"` + strings.Repeat("x", 70000) + `"}`, 413, []string{"body_too_large"}},
		{"no room to change", "PATCH", "/api/rooms/west", `{"instruction":"x"}`, 404, []string{"no_such_room"}},
		{"call", "POST", "/api/rooms", `{"room":"new one","profile":"sports","speech":false,"track":{"source":"camera"}}`, 202, []string{`"dispatch_id":"AD_1"`}},
		{"call with all that is wrong", "POST", "/api/rooms", `{"room":"","instruction":"` + long + `","engine":"steam","colour":1}`, 422, []string{"room: ", "instruction: ", "engine: ", "colour: "}},
		{"call for a room with spaces", "POST", "/api/rooms", `{"room":" x"}`, 422, []string{"room: "}},
		{"call without a room", "POST", "/api/rooms", `{}`, 422, []string{"room"}},
		{"call without JSON", "POST", "/api/rooms", `room=x`, 400, []string{"bad_json"}},
		{"call off", "DELETE", "/api/rooms/new%20one", ``, 204, nil},
		{"call off again", "DELETE", "/api/rooms/new%20one", ``, 404, []string{"no_such_room"}},
		{"wrong method", "PUT", "/api/rooms", ``, 405, []string{"GET, HEAD, OPTIONS, POST"}},
		{"wrong method on one", "POST", "/api/rooms/final", `{}`, 405, []string{"PATCH"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := r.ask(tt.method, tt.path, tt.body, "X-Request-ID", "mine-1")
			require.Equal(t, tt.status, a.status, "%s", a.body)
			for _, want := range tt.want {
				require.Contains(t, string(a.body), want)
			}
			require.Equal(t, "mine-1", a.header.Get("X-Request-ID"))
			require.Equal(t, "no-store", a.header.Get("Cache-Control"))
			if tt.status >= 400 {
				a.problem(t)
			}
			if tt.status != http.StatusNoContent {
				require.Equal(t, "application/json; charset=utf-8", a.header.Get("Content-Type"))
			}
		})
	}
	require.Equal(t, []string{`instruction "the keeper" by the page`, "change by the page"}, final.orders(), "a refused change has no effect")
	require.Empty(t, other.orders())

	for i, engine := range inference.Engines() {
		require.Equal(t, http.StatusAccepted, r.ask("POST", "/api/rooms", fmt.Sprintf(`{"room":"with engine %d","engine":%q}`, i, engine)).status, engine)
	}
	require.Equal(t, "/api/rooms/a%2Fb", r.ask("POST", "/api/rooms", `{"room":"a/b"}`).header.Get("Location"))
	for err, status := range map[error]int{
		fmt.Errorf("%w: final", console.ErrServed):           http.StatusConflict,
		fmt.Errorf("%w: profile: no opera", console.ErrCall): http.StatusUnprocessableEntity,
		errors.New("connection refused"):                     http.StatusBadGateway,
	} {
		calls.fail(err)
		a := r.ask("POST", "/api/rooms", `{"room":"final"}`)
		require.Equal(t, status, a.status, "%s", a.body)
		a.problem(t)
	}
	// Nobody is let in by way of huma.
	a := r.ask("GET", "/api/rooms", "", "Origin", "https://elsewhere.example")
	require.Equal(t, http.StatusForbidden, a.status)
}

func TestOneRoomCallsNobody(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Name: "demo", Bot: newDesk()}})
	for _, call := range [][2]string{{"POST", "/api/rooms"}, {"DELETE", "/api/rooms/demo"}} {
		a := r.ask(call[0], call[1], `{"room":"x"}`)
		require.Equal(t, http.StatusNotImplemented, a.status)
		code, _, _ := a.problem(t)
		require.Equal(t, "one_room", code)
	}
	require.Contains(t, string(r.ask("GET", "/api/rooms", "").body), `"room":"demo"`)
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/rooms/demo/status", "").status)
	require.Equal(t, http.StatusOK, r.ask("PATCH", "/api/rooms/demo", `{"profile":"sports"}`).status)
}

// TestOpenAPI holds the document against the routes, and the answers against
// the document.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	rooms := console.NewRooms(0, zerolog.Nop())
	st := newStudio()
	voices := audioapi.New(audioapi.Options{Voices: func() []audioapi.Voice { return []audioapi.Voice{{ID: "flite:slt"}} }})
	r := open(t, console.Options{Rooms: rooms, Dispatcher: &exchange{}, SignalURL: "ws://127.0.0.1:1", Speech: voices, Transcription: transcriber()})
	d, hub := newDesk(), events.NewHub(events.Options{History: -1})
	_, err := rooms.Add(console.Room{Name: "final", Bot: d, Hub: hub, Tokens: mint{}, Pictures: st, Sound: st})
	require.NoError(t, err)
	hub.Record(look.Record{Type: "cycle_end", Cycle: 1, Outcome: "spoken", Text: "A goal.", FrameIDs: []uint64{1}})

	a := r.ask("GET", "/openapi.json", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "application/openapi+json", a.header.Get("Content-Type"))
	var raw struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(a.body, &raw))
	require.Equal(t, "3.1.0", raw.OpenAPI)
	require.NotContains(t, string(a.body), "ErrorModel")
	require.Contains(t, string(r.ask("GET", "/openapi.yaml", "").body), "/api/rooms/{room}:")

	// Every route is in it, with every method, and nothing else.
	var listed, served []string
	ids := map[string]bool{}
	for path, ops := range raw.Paths {
		for method, op := range ops {
			listed = append(listed, strings.ToUpper(method)+" "+path)
			require.False(t, ids[op.OperationID], op.OperationID)
			ids[op.OperationID] = true
			require.NotEmpty(t, op.Responses["default"].Content["application/json"].Schema.Ref, path)
		}
	}
	for _, route := range console.Routes(r.Server) {
		_, path, _ := strings.Cut(route, " ")
		if !slices.Contains([]string{"/", "/rooms/{room}", "/rtc", "/rtc/"}, path) {
			served = append(served, route)
		}
	}
	require.ElementsMatch(t, listed, served)

	// Answers are as it says.
	doc := console.OpenAPI(r.Server)
	known := doc.Components.Schemas
	checked := 0
	for _, tt := range []struct{ method, path, route, body string }{
		{"GET", "/api/rooms", "", ""},
		{"POST", "/api/rooms", "", `{"room":"x"}`},
		{"GET", "/api/rooms/final", "/api/rooms/{room}", ""},
		{"PATCH", "/api/rooms/final", "/api/rooms/{room}", `{"profile":"sports"}`},
		{"PATCH", "/api/rooms/final", "/api/rooms/{room}", `{"profile":"opera"}`},
		{"GET", "/api/rooms/west", "/api/rooms/{room}", ""},
		{"GET", "/api/rooms/final/comments", "/api/rooms/{room}/comments", ""},
		{"GET", "/api/rooms/final/status", "/api/rooms/{room}/status", ""},
		{"GET", "/api/rooms/final/profiles", "/api/rooms/{room}/profiles", ""},
		{"POST", "/api/rooms/final/settings", "/api/rooms/{room}/settings", `{"frames_per_look":6}`},
		{"POST", "/api/rooms/final/instruction", "/api/rooms/{room}/instruction", `{"instruction":"x"}`},
		{"GET", "/api/rooms/final/history", "/api/rooms/{room}/history", ""},
		{"POST", "/api/rooms/final/livekit/token", "/api/rooms/{room}/livekit/token", `{"role":"viewer","name":"V"}`},
		{"GET", "/api/status", "", ""},
		{"GET", "/api/history", "", ""},
		{"GET", "/healthz", "", ""},
		{"GET", "/readyz", "", ""},
		{"POST", "/api/login", "", `{"token":"guess"}`},
	} {
		route := tt.route
		if route == "" {
			route = tt.path
		}
		a := r.ask(tt.method, tt.path, tt.body)
		op := map[string]*huma.Operation{
			"GET": doc.Paths[route].Get, "POST": doc.Paths[route].Post, "PATCH": doc.Paths[route].Patch,
		}[tt.method]
		require.NotNil(t, op, "%s %s", tt.method, route)
		answer, ok := op.Responses[strconv.Itoa(a.status)]
		if !ok {
			require.GreaterOrEqual(t, a.status, 400, "%s %s", tt.method, route)
			answer = op.Responses["default"]
		}
		schema := answer.Content["application/json"].Schema
		require.NotNil(t, schema, "%s %s", tt.method, route)
		var body any
		require.NoError(t, json.Unmarshal(a.body, &body))
		var res huma.ValidateResult
		huma.Validate(known, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, body, &res)
		require.Empty(t, res.Errors, "%s %s: %s", tt.method, route, a.body)
		checked++
	}
	require.Greater(t, checked, 15)
	// The check itself finds the errors.
	var res huma.ValidateResult
	huma.Validate(known, known.SchemaFromRef("#/components/schemas/RoomList"), huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, map[string]any{"rooms": "none"}, &res)
	require.NotEmpty(t, res.Errors)
}

func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"instruction":"x","settings":{"frames_per_look":6}}`, `{"settings":null}`, `{"settings":[1]}`, `{"settings":{"speech":{"a":1,"b":2}}}`,
		`{"source":{"x":{"y":1,"z":2},"w":3}}`, `{"":{"":{"":1,"a":2},"b":1}}`, `[]`, `nul`, `{"speech":1e999}`,
	} {
		f.Add(seed)
	}
	check := console.PatchChecker()
	f.Fuzz(func(_ *testing.T, body string) { check([]byte(body)) })
}
