package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/inference"
)

// addRoom shows a room with a desk of its own.
// TestReadyWithTheEngine: a console of many rooms is ready when the engine that they will get is, with a room or without.
func TestReadyWithTheEngine(t *testing.T) {
	t.Parallel()
	var status inference.Status
	r := open(t, console.Options{Rooms: console.NewRooms(0, zerolog.Nop()), Engine: func() inference.Status { return status }})
	for _, tt := range []struct {
		status inference.Status
		code   int
		detail string
	}{
		{inference.Status{Phase: inference.PhaseLoading, Percent: 40}, 503, "the model is loading: 40 %"},
		{inference.Status{Phase: inference.PhaseWarming, Percent: 80, Detail: "first run"}, 503, "first run"},
		{inference.Status{Phase: inference.PhaseFailed, Detail: "no such file"}, 503, "no such file"},
		{inference.Status{Phase: inference.PhaseReady, Percent: 100}, 200, "rooms: 0"},
		{inference.Status{Phase: inference.PhaseReady, Percent: 100, Problem: "1 of 2 GPUs in use"}, 200, "rooms: 0; 1 of 2 GPUs in use"},
		{inference.Status{Phase: inference.PhaseUnloaded, Detail: "loads again on demand"}, 200, "rooms: 0"},
	} {
		status = tt.status
		a := r.ask("GET", "/readyz", "")
		require.Equal(t, tt.code, a.status, "%v", tt.status)
		require.Contains(t, string(a.body), tt.detail)
	}
}

func addRoom(tb testing.TB, rooms *console.Rooms, name string) (*desk, *events.Hub, func()) {
	tb.Helper()
	d, hub := newDesk(), events.NewHub(events.Options{History: -1})
	remove, err := rooms.Add(console.Room{Name: name, Bot: d, Hub: hub, Tokens: mint{}})
	require.NoError(tb, err)
	return d, hub, remove
}

func TestManyRooms(t *testing.T) {
	t.Parallel()
	rooms := console.NewRooms(3, zerolog.Nop())
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	r := open(t, console.Options{Rooms: rooms, Keys: keys})
	code, _, _ := r.ask("GET", "/api/status", "").problem(t)
	require.Equal(t, "no_room", code)
	require.Equal(t, http.StatusOK, r.ask("GET", "/readyz", "").status)

	north, _, removeNorth := addRoom(t, rooms, "north")
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "").status, "the only room is meant")
	const odd = "süd/ 2?"
	south, hub, removeSouth := addRoom(t, rooms, odd)
	a := r.ask("GET", "/api/status", "")
	code, message, _ := a.problem(t)
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, "several_rooms", code)
	require.Contains(t, message, `"north"`)
	require.Contains(t, message, `"süd/ 2?"`)
	link := granted(t, keys, access.AllInRoom, "north")
	for _, path := range []string{"/api/status", "/api/mjpeg", "/api/frame", "/api/settings", "/api/sources"} {
		a = r.ask("GET", path, "", "Authorization", "Bearer "+link, "X-Forwarded-For", "192.0.2.1")
		code, message, _ = a.problem(t)
		require.Equal(t, "several_rooms", code, path)
		require.Equal(t, "there are several rooms: use /api/rooms/{room}/...", message, "a link for one room names no other")
	}
	a = r.ask("GET", "/api/rooms/west/status", "")
	code, _, _ = a.problem(t)
	require.Equal(t, http.StatusNotFound, a.status)
	require.Equal(t, "no_such_room", code)

	// An order acts in its room alone.
	const path = "/api/rooms/s%C3%BCd%2F%202%3F"
	a = r.ask("POST", path+"/instruction", `{"instruction":"the keeper"}`)
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.Len(t, south.orders(), 1)
	require.Empty(t, north.orders())

	// Its events are its own, and end with it.
	events := r.events(path + "/events")
	events.want("snapshot")
	events.want("history")
	hub.Record(look.Record{Outcome: "shown", Text: "A goal."})
	require.Contains(t, events.until("record").data, "A goal.")
	removeSouth()
	removeSouth()
	for {
		if _, err := events.next(); err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	require.Equal(t, http.StatusNotFound, r.ask("GET", path+"/status", "").status)
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "").status)

	// One name once, and no more rooms than fit.
	_, err := rooms.Add(console.Room{Name: "north"})
	require.ErrorIs(t, err, console.ErrRoomKnown)
	_, err = rooms.Add(console.Room{})
	require.ErrorIs(t, err, console.ErrConfig)
	addRoom(t, rooms, "east")
	addRoom(t, rooms, "west")
	_, err = rooms.Add(console.Room{Name: "one more"})
	require.ErrorIs(t, err, console.ErrTooManyRooms)
	removeNorth()
	_, err = rooms.Add(console.Room{Name: "one more"})
	require.NoError(t, err)
}

func TestEventsOfAllRooms(t *testing.T) {
	t.Parallel()
	rooms := console.NewRooms(0, zerolog.Nop())
	r := open(t, console.Options{Rooms: rooms})
	all := r.events("/api/events")
	require.Equal(t, "[]", all.want("rooms").data)
	_, north, _ := addRoom(t, rooms, "north")
	south, hub, removeSouth := addRoom(t, rooms, `so"uth`)
	north.Record(look.Record{Type: "cycle_end", Cycle: 1, Outcome: "shown", Text: "A goal."})
	hub.Caption(agent.Caption{Segment: "s", Delta: "Offside"})
	hub.State(agent.Status{Activity: "speaking"})

	// Each event names its room.
	seen := map[string]string{}
	var last event
	for len(seen) < 3 {
		ev, err := all.next()
		require.NoError(t, err)
		if ev.name == "rooms" || ev.name == "room" { // lists of a reader that is slow
			continue
		}
		var data map[string]any
		require.NoError(t, json.Unmarshal([]byte(ev.data), &data))
		seen[ev.name] = data["room"].(string)
		last = ev
	}
	require.Equal(t, map[string]string{"record": "north", "caption": `so"uth`, "status": `so"uth`}, seen)
	// The first list for a reader may come late.
	south.change(func(s *agent.Snapshot) { s.Comments = 41 })
	ev, err := all.next()
	for ; !strings.Contains(ev.data, `"comments":41`); ev, err = all.next() {
		require.NoError(t, err)
	}
	// A changed room is sent alone, and so is a removed one.
	south.change(func(s *agent.Snapshot) { s.Comments = 42 })
	for ev = all.until("room"); !strings.Contains(ev.data, `"comments":42`); ev = all.until("room") {
	}
	var info map[string]any
	require.NoError(t, json.Unmarshal([]byte(ev.data), &info))
	require.Equal(t, `so"uth`, info["room"])
	require.Empty(t, ev.id, "it is not repeated")
	removeSouth()
	require.JSONEq(t, `{"room":"so\"uth"}`, all.until("gone").data)
	addRoom(t, rooms, "west")
	for !strings.Contains(all.until("room").data, `"room":"west"`) {
	}

	// A reader that reconnects gets the missed events.
	north.Record(look.Record{Type: "cycle_end", Cycle: 2, Outcome: "shown", Text: "A corner."})
	again := r.events("/api/events", "Last-Event-ID", last.id)
	again.want("rooms")
	require.Contains(t, again.want("record").data, "A corner.")
	// A room's own stream is its own.
	own := r.events("/api/rooms/north/events")
	own.want("snapshot")
	require.Contains(t, own.want("history").data, "A corner.")
	north.State(agent.Status{Activity: "idle"})
	require.Contains(t, own.until("status").data, `{"room":"north",`)
	// The original's stream has the record as it was.
	stream := r.events("/api/rooms/north/stream")
	north.Record(look.Record{Type: "cycle_end", Cycle: 3, Outcome: "silent"})
	ev, err = stream.next()
	require.NoError(t, err)
	require.NotContains(t, ev.data, `"room"`)
}

// TestVeryManyRoomsChangeAtOnce: the list is sent instead of each room, so that no reader's queue overflows.
func TestVeryManyRoomsChangeAtOnce(t *testing.T) {
	t.Parallel()
	rooms := console.NewRooms(0, zerolog.Nop())
	r := open(t, console.Options{Rooms: rooms})
	desks := make([]*desk, 2*console.MaxChanges+2) // too many, even if one look sees the first half only
	for n := range desks {
		desks[n], _, _ = addRoom(t, rooms, fmt.Sprint("pitch-", n))
	}
	all := r.events("/api/events")
	require.Equal(t, len(desks), strings.Count(all.want("rooms").data, `"room":"pitch-`))
	desks[0].change(func(s *agent.Snapshot) { s.Comments = 41 })
	for ev, err := all.next(); !strings.Contains(ev.data, `"comments":41`); ev, err = all.next() {
		require.NoError(t, err)
	}
	for _, d := range desks {
		d.change(func(s *agent.Snapshot) { s.Comments = 42 })
	}
	for !strings.Contains(all.until("rooms").data, `"comments":42`) {
	}
	require.Contains(t, string(r.ask("GET", "/metrics", "").body), "touchline_sse_lost_items_of_all_rooms_total 0\n")
}

func TestMetricsOfManyRooms(t *testing.T) {
	t.Parallel()
	rooms := console.NewRooms(0, zerolog.Nop())
	r := open(t, console.Options{Rooms: rooms})
	totals := prometheus.NewRegistry()
	totals.MustRegister(rooms.Totals())
	long := strings.Repeat("ü", 200)
	_, hub, removeLong := addRoom(t, rooms, long)
	hub.Record(look.Record{Outcome: "spoken"})
	// A name that is the label of another one must not break the scrape.
	addRoom(t, rooms, "other")
	_, same, _ := addRoom(t, rooms, console.RoomLabel(long))
	same.Record(look.Record{Outcome: "shown"})
	var removeLast func()
	for n := range console.LabelledRooms + 10 {
		var h *events.Hub
		_, h, removeLast = addRoom(t, rooms, fmt.Sprintf("room-%02d", n))
		h.Record(look.Record{Outcome: "silent"})
	}
	scrape := func() string {
		a := r.ask("GET", "/metrics", "")
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		return string(a.body)
	}
	body := scrape()
	require.Contains(t, body, fmt.Sprintf("touchline_rooms %d\n", console.LabelledRooms+13))
	require.Contains(t, body, `touchline_cycles_total{outcome="silent",room="room-00"} 1`)
	require.Contains(t, body, `touchline_cycles_total{outcome="silent",room="other"} 11`)
	require.Contains(t, body, `touchline_cycles_total{outcome="shown",room="other"} 1`)
	require.Contains(t, body, `touchline_cycles_total{outcome="spoken",room="`+console.RoomLabel(long)+`"} 1`)
	require.Contains(t, body, `touchline_agent_state{room="other",state="listening"} 13`)
	require.Contains(t, body, `touchline_delay_seconds{room="room-00"} 2.4`)
	require.Contains(t, body, `touchline_delay_seconds{room="other"} 2.4`, "the largest")
	require.NotContains(t, body, `touchline_source_fps{room="other"}`)
	require.Equal(t, console.LabelledRooms+1, strings.Count(body, "touchline_model_loaded{"))
	require.LessOrEqual(t, len(console.RoomLabel(long)), 80)

	// What was counted is not forgotten when one of the rest goes, and its place goes to another.
	removeLast()
	require.Contains(t, scrape(), `touchline_cycles_total{outcome="silent",room="other"} 11`)
	removeLong()
	addRoom(t, rooms, "late")
	require.Contains(t, scrape(), `touchline_model_loaded{room="late"} 1`)

	// All together, without a name.
	families, err := totals.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				require.NotEqual(t, "room", l.GetName())
				if f.GetName() == "touchline_cycles_total" {
					found[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	require.Equal(t, map[string]float64{"silent": console.LabelledRooms + 10, "spoken": 1, "shown": 1}, found)
}

// betweenLooks is the ended context of a request. It calls between after the check of the client's rights, when the context of the handler
// is derived from it.
type betweenLooks struct {
	context.Context //nolint:containedctx // it is one

	between func()
}

func (c betweenLooks) Done() <-chan struct{} {
	c.between()
	return c.Context.Done()
}

// TestRoomOfTheRights: a request without a room in its path acts in the room that the client's rights were checked for, even if rooms begin
// and end in between.
func TestRoomOfTheRights(t *testing.T) {
	t.Parallel()
	keys := crowdKeys
	keys.Links = access.NewLinks(nil, nil, time.Now())
	link := granted(t, keys, access.AllInRoom, "mine")
	// ask makes a request with the link while the rooms before are those of the console, which change to after behind the check.
	ask := func(method, path, body string, before, after []string) (answer, map[string]*desk) {
		rooms := console.NewRooms(0, zerolog.Nop())
		desks, remove := map[string]*desk{}, map[string]func(){}
		change := func(to []string) {
			for _, end := range remove {
				end()
			}
			clear(remove)
			for _, name := range to {
				desks[name], _, remove[name] = addRoom(t, rooms, name)
			}
		}
		change(before)
		s, err := console.New(console.Options{
			Rooms: rooms, Keys: keys, Config: console.Config{Listen: "127.0.0.1:0", Token: operatorToken}, WebDir: t.TempDir(),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // streams end at once
		var once sync.Once
		changed := false
		r := httptest.NewRequestWithContext(betweenLooks{ctx, func() { once.Do(func() { changed = true; change(after) }) }},
			method, "http://127.0.0.1"+path, strings.NewReader(body))
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Set("Authorization", "Bearer "+link)
		w := httptest.NewRecorder()
		console.Handler(s).ServeHTTP(w, r)
		require.True(t, changed, "%s %s", method, path)
		return answer{status: w.Code, header: w.Header(), body: w.Body.Bytes()}, desks
	}
	n := 0
	s, err := console.New(console.Options{
		Rooms: console.NewRooms(0, zerolog.Nop()), Config: console.Config{Listen: "127.0.0.1:0"}, WebDir: t.TempDir(),
	})
	require.NoError(t, err)
	for _, route := range console.Routes(s) {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/api/rooms") || path == "/api/events" || path == "/api/login" {
			continue
		}
		n++
		path = strings.NewReplacer("{id}", "1", "{name}", "x").Replace(path)
		for _, tt := range []struct {
			before []string
			code   string
		}{{[]string{"secret", "other"}, "several_rooms"}, {nil, "no_room"}} {
			a, desks := ask(method, path, "", tt.before, []string{"secret"})
			code, _, _ := a.problem(t)
			require.Equal(t, tt.code, code, "%s from %v: %d", route, tt.before, a.status)
			require.Empty(t, desks["secret"].orders(), route)
		}
	}
	require.Greater(t, n, 50)

	// One room takes the place of the other.
	a, desks := ask("POST", "/api/instruction", `{"instruction":"the keeper"}`, []string{"mine"}, []string{"secret"})
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.Len(t, desks["mine"].orders(), 1)
	require.Empty(t, desks["secret"].orders())
	a, _ = ask("POST", "/api/links", `{"rights":["watch"],"for":"30m"}`, []string{"mine"}, []string{"secret"})
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	require.Len(t, keys.Links.List("mine", "", time.Now()), 1)
	require.Empty(t, keys.Links.List("secret", "", time.Now()))
}
