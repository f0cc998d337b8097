package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/look"
	"touchline/inference"
)

// looks are scripted ones.
type looks struct {
	list []look.Trace
	err  error
	seen *look.Sight
}

func (l *looks) Sight() (look.Sight, bool) {
	if l.seen == nil {
		return look.Sight{}, false
	}
	return *l.seen, true
}

func (l *looks) Traces() []look.Trace { return l.list }

func (l *looks) NextPrompt() (look.Trace, error) {
	return look.Trace{Kind: look.TraceNext, Text: "Comment on the newest picture."}, l.err
}

func TestLooks(t *testing.T) {
	t.Parallel()
	l := &looks{list: []look.Trace{{
		ID: 2, Kind: look.TraceRules, Text: "Rules:", Schema: []byte(`{"type":"object"}`), Answer: `{"fired":[]}`,
		Exchanges: []inference.Exchange{{Request: `{"model":"m"}`, Answer: "<no>"}},
	}}}
	r := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Looks: l}})
	for _, path := range []string{"/api/looks", "/api/rooms/final/looks"} {
		a := r.ask("GET", path, "")
		require.Equal(t, http.StatusOK, a.status)
		for _, part := range []string{`{"looks":[{"id":2,"kind":"rules"`, `"schema":{"type":"object"}`, `"exchanges":[{"request":"{\"model\":\"m\"}"`} {
			require.Contains(t, string(a.body), part)
		}
	}
	a := r.ask("GET", "/api/looks/next", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, string(a.body), `"kind":"next"`)
	l.err = look.ErrNoPicture
	a = r.ask("GET", "/api/rooms/final/looks/next", "")
	require.Equal(t, http.StatusConflict, a.status)
	require.Contains(t, string(a.body), "no_picture")
	a.problem(t)

	a = r.ask("GET", "/api/sight", "")
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, string(a.body), "no_sight")
	a.problem(t)
	l.seen = &look.Sight{
		PTS: 2.5, Things: []inference.Thing{{Name: "person", Track: 3, Score: 0.75, Box: inference.Box{X1: 0.5, Y1: 1}}},
		Facts: []look.Fact{{PTS: 2, Text: "enter: person from the left"}},
	}
	a = r.ask("GET", "/api/rooms/final/sight", "")
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, `{"at":"0001-01-01T00:00:00Z","pts":2.5,"things":[{"name":"person","track":3,"score":0.75,"x0":0,"y0":0,"x1":0.5,"y1":1}],`+
		`"facts":[{"pts":2,"text":"enter: person from the left"}]}`, string(a.body))

	require.Equal(t, access.Watch, access.Needed("GET /sight"), "the picture shows it")
	require.Equal(t, access.Instruct, access.Needed("GET /looks"), "a sheet and orders of others are in it")
	require.Equal(t, access.Instruct, access.Needed("GET /looks/next"))
	none := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk()}})
	require.Equal(t, http.StatusServiceUnavailable, none.ask("GET", "/api/looks", "").status)
}
