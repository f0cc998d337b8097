package console_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/settings"
)

// engines are scripted ones.
type engines struct{ chosen []agent.EngineChoice }

func (*engines) Engines(context.Context) []agent.EngineOption {
	return []agent.EngineOption{
		{EngineChoice: agent.EngineChoice{Engine: "scene"}, InForce: true},
		{EngineChoice: agent.EngineChoice{Engine: "minicpmo"}, Refused: "no model is installed"},
	}
}

func (*engines) Voices() []agent.VoiceOption {
	return []agent.VoiceOption{{ID: "flite:slt", Language: "en", Speaks: true}}
}

func (e *engines) ChangeEngine(_ context.Context, choice agent.EngineChoice, by string) error {
	if choice.Engine != "nano" || by == "" {
		return &settings.RangeError{Name: "engine", Want: "one of nano", Got: choice.Engine}
	}
	e.chosen = append(e.chosen, choice)
	return nil
}

func TestEngines(t *testing.T) {
	t.Parallel()
	e := &engines{}
	r := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Engines: e}})
	for _, base := range []string{"/api", "/api/rooms/final"} {
		a := r.ask("GET", base+"/engines", "")
		require.Equal(t, http.StatusOK, a.status)
		require.JSONEq(t, `{"engines":[{"engine":"scene","in_force":true},{"engine":"minicpmo","in_force":false,"refused":"no model is installed"}],
			"voices":[{"id":"flite:slt","language":"en","speaks":true}]}`, string(a.body))
		a = r.ask("POST", base+"/engine", `{"engine":"nano"}`)
		require.Equal(t, http.StatusAccepted, a.status)
		require.Contains(t, string(a.body), `"engine"`)
	}
	require.Len(t, e.chosen, 2)
	a := r.ask("POST", "/api/engine", `{"engine":"magic"}`)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Contains(t, string(a.body), "engine: expected one of nano, got magic")
	a.problem(t)
	require.Equal(t, http.StatusBadRequest, r.ask("POST", "/api/engine", `{"engines":"nano"}`).status)

	require.Equal(t, access.Settings, access.Needed("GET /engines"))
	require.Equal(t, access.Settings, access.Needed("POST /engine"))
	none := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk()}})
	require.Equal(t, http.StatusServiceUnavailable, none.ask("GET", "/api/engines", "").status)
	require.Equal(t, http.StatusServiceUnavailable, none.ask("POST", "/api/engine", `{"engine":"nano"}`).status)
}
