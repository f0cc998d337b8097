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

	require.Equal(t, access.Instruct, access.Needed("GET /looks"), "a sheet and orders of others are in it")
	require.Equal(t, access.Instruct, access.Needed("GET /looks/next"))
	none := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk()}})
	require.Equal(t, http.StatusServiceUnavailable, none.ask("GET", "/api/looks", "").status)
}
