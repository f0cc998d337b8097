package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/inference"
)

// looks are scripted ones.
type looks struct {
	list  []look.Trace
	err   error
	seen  *look.Sight
	quote string // before the next prompt
}

func (l *looks) Sight() (look.Sight, bool) {
	if l.seen == nil {
		return look.Sight{}, false
	}
	return *l.seen, true
}

func (l *looks) Traces() []look.Trace { return l.list }

func (l *looks) NextPrompt() (look.Trace, error) {
	return look.Trace{Kind: look.TraceNext, Text: l.quote + "Comment on the newest picture."}, l.err
}

// TestLooksThatQuote: prompts that quote people need the right to transcribe too.
func TestLooksThatQuote(t *testing.T) {
	t.Parallel()
	quote := `2 seconds ago "Ann" in the room said: "my secret".` + "\n" + prompt.RemarksNote
	l := &looks{quote: quote, list: []look.Trace{{ID: 2, Text: quote}, {ID: 1, Text: "Comment."}}}
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	r := open(t, console.Options{
		Room: console.Room{Name: "final", Bot: newDesk(), Looks: l}, Keys: keys, Config: console.Config{Listen: "0.0.0.0:0"},
	}, console.Unlimited)
	instructs := []string{"Authorization", "Bearer " + granted(t, keys, access.Watch|access.Instruct, "final")}
	hears := []string{"Authorization", "Bearer " + granted(t, keys, access.Watch|access.Instruct|access.Transcribe, "final")}
	require.Contains(t, string(r.ask("GET", "/api/looks", "", hears...).body), "my secret")
	require.Contains(t, string(r.ask("GET", "/api/looks/next", "", hears...).body), "my secret")
	l.list = []look.Trace{{ID: 2, Text: quote}, {ID: 1, Text: "Comment."}}
	list := string(r.ask("GET", "/api/looks", "", instructs...).body)
	require.Contains(t, list, `"id":1`)
	require.NotContains(t, list, "my secret")
	a := r.ask("GET", "/api/looks/next", "", instructs...)
	require.Equal(t, http.StatusForbidden, a.status)
	require.NotContains(t, string(a.body), "my secret")
	l.quote = ""
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/looks/next", "", instructs...).status)
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
