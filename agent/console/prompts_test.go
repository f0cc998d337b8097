package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/command"
	"touchline/agent/console"
	"touchline/agent/prompt"
	"touchline/configs"
)

func TestPrompts(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	session, err := agent.New(agent.Options{
		Agent: cfg.Agent.Config, Pacing: cfg.Pacing, Media: cfg.Media, Inference: cfg.Inference.Config, Profiles: cfg.Profiles,
		Engine: agenttest.Open(&agenttest.Engine{}), Input: &agenttest.Camera{},
		NewDecoder: func(agent.DecoderSinks) (agent.Decoder, error) { return &agenttest.Decoder{}, nil },
	})
	require.NoError(t, err)
	r := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Prompts: session}})
	big := strings.Repeat("x", 9000)
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		want                     string
	}{
		{"export", "GET", "/api/profiles/sports", "", nil, 200, "name: sports\nlabel: Sports\nprompt: |"},
		{"export none", "GET", "/api/profiles/none", "", nil, 404, "no_profile"},
		{"create", "PUT", "/api/rooms/final/profiles/cup", "label: Cup\nprompt: Call it.", []string{"If-None-Match", "*"}, 201, `{"name":"cup","label":"Cup","prompt":"Call it.","suggestion":"","kind":"own"}`},
		{"create again", "PUT", "/api/profiles/cup", "label: Cup\nprompt: Call it.", []string{"If-None-Match", "*"}, 409, "name_taken"},
		{"change, in JSON", "PUT", "/api/profiles/cup", `{"label":"Cup","prompt":"Call it: \"loud\".\n\u00a1Gol!"}`, nil, 200, `Call it: \"loud\".\n¡Gol!`},
		{"change, with a voice", "PUT", "/api/profiles/cup", `{"label":"Cup","prompt":"Call it.","voice":"","speech":"false","voice_gain":-6}`, nil, 200, `"speech":false,"voice_gain":-6`},
		{"with a voice, as YAML", "GET", "/api/profiles/cup", "", nil, 200, "speech: false\nvoice_gain: -6"},
		{"too loud", "PUT", "/api/profiles/cup", "label: Cup\nprompt: x\nvoice_gain: 20", nil, 422, "voice_gain: must be between -24 and 12 dB, is 20"},
		{"change a built-in one", "PUT", "/api/profiles/sports", "label: Ours\nprompt: <|im_end|>", nil, 200, `"kind":"changed"`},
		{"all that is wrong", "PUT", "/api/profiles/A", "label: ''\nprompt: ''", nil, 422, "label: must be 1 to 40 characters, is 0; prompt: must be"},
		{"bad name", "PUT", "/api/profiles/A", "label: A\nprompt: x", nil, 422, "name: must be up to 40 lower-case"},
		{"unknown field", "PUT", "/api/profiles/b", "labels: A", nil, 422, `unknown field \"labels\"`},
		{"alias", "PUT", "/api/profiles/b", "label: &a A\nprompt: *a", nil, 422, "anchors, aliases"},
		{"too large", "PUT", "/api/profiles/b", big, nil, 413, "larger than 8192 bytes"},
		{"reset", "DELETE", "/api/profiles/sports", "", nil, 204, ""},
		{"delete a built-in one", "DELETE", "/api/profiles/sports", "", nil, 409, `"built_in"`},
		{"delete", "DELETE", "/api/rooms/final/profiles/cup", "", nil, 204, ""},
		{"delete none", "DELETE", "/api/profiles/cup", "", nil, 404, "no_profile"},

		{"no sheet", "GET", "/api/sheet", "", nil, 200, `{"text":"","prompt":""}`},
		{"sheet", "PUT", "/api/rooms/final/sheet", "people: [{name: Ana Ruiz, number: 9}]\npronunciations: {Ruiz: roo eeth}", nil, 200, `- People: 9 Ana Ruiz."`},
		{"sheet as written", "GET", "/api/sheet", "", nil, 200, `"text":"people: [{name: Ana Ruiz, number: 9}]\npronunciations: {Ruiz: roo eeth}"`},
		{"bad sheet", "PUT", "/api/sheet", "people: [{nam: x}]\nfacts: ['']", nil, 422, `people[0]: unknown field \"nam\"; known are name, number, role, look; people[0].name: must be`},
		{"large sheet", "PUT", "/api/sheet", big, nil, 413, "larger than 8192 bytes"},
		{"the last one stays", "GET", "/api/sheet", "", nil, 200, `"pronunciations":{"ruiz":"roo eeth"}`},
		{"remove", "DELETE", "/api/sheet", "", nil, 204, ""},
		{"another method", "POST", "/api/sheet", "{}", nil, 405, "DELETE, GET, HEAD, OPTIONS, PUT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // in order
			a := r.ask(tt.method, tt.path, tt.body, tt.header...)
			require.Equal(t, tt.status, a.status, "%s", a.body)
			require.Contains(t, string(a.body), tt.want)
			if tt.status >= 400 {
				a.problem(t)
			}
		})
	}
	require.Empty(t, session.Background().Text)

	// An own profile in use cannot be deleted.
	require.Equal(t, http.StatusCreated, r.ask("PUT", "/api/profiles/cup", "label: Cup\nprompt: Call it.").status)
	_, err = session.Change(command.Change{Profile: new("cup")}, "ana")
	require.NoError(t, err)
	a := r.ask("DELETE", "/api/profiles/cup", "")
	require.Equal(t, http.StatusConflict, a.status)
	require.Contains(t, string(a.body), "in_use")
	for i := range prompt.MaxProfiles {
		a = r.ask("PUT", "/api/profiles/p"+string(rune('a'+i%26))+string(rune('a'+i/26)), "label: Cup\nprompt: Call it.")
	}
	require.Equal(t, http.StatusConflict, a.status, "too many")
	require.Contains(t, string(a.body), "too_many_profiles")
	require.Len(t, session.Profiles(), len(cfg.Profiles)+prompt.MaxProfiles)
}
