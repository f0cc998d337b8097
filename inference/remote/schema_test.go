package remote_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
)

const schema = `{"type":"object","properties":{"z":{"type":"boolean"},"a":{"enum":["<",1]}},"required":["z","a"]}`

// fits follows the schema.
const fits = `{"z":true,"a":1}`

// refuse answers like a server without schemas.
func refuse(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, `{"error":{"message":"This response_format type is unavailable now"}}`)
}

func TestSchemaIsSent(t *testing.T) {
	s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) { stream(w, delta(fits), stop, done) })
	se := session(t, open(t, s.URL))
	text, err := ask(t.Context(), se, inference.Prompt{Text: "x", Schema: []byte(schema)})
	require.NoError(t, err)
	require.Equal(t, fits, text)
	require.InDelta(t, 0, *s.last().Warmth, 0)
	format := string(s.last().Format)
	require.JSONEq(t, `{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":`+schema+`}}`, format)
	require.Less(t, strings.Index(format, `"z"`), strings.Index(format, `"a"`), "the order of the properties")

	_, err = ask(t.Context(), se, prompt)
	require.NoError(t, err)
	require.Nil(t, s.last().Format)
	_, err = ask(t.Context(), se, inference.Prompt{Text: "x", Schema: []byte("{")})
	require.ErrorContains(t, err, `the prompt's schema is not JSON: "{"`)
	require.Equal(t, 2, s.count())
}

// A refused schema is omitted for a day, for this model only.
func TestRefusedSchema(t *testing.T) {
	for _, code := range []int{http.StatusBadRequest, http.StatusUnprocessableEntity} {
		var later atomic.Bool // the server supports schemas
		s := serve(t, list("x", "m"), func(w http.ResponseWriter, r request, _ int) {
			if r.Format != nil && !later.Load() {
				refuse(w, code)
				return
			}
			stream(w, delta(fits), stop)
		})
		m := open(t, s.URL)
		now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
		m.SetNow(func() time.Time { return now })
		se := session(t, m)
		p := inference.Prompt{Text: "x", Schema: []byte(schema)}
		asked := func() (requests int, format bool) {
			before := s.count()
			text, err := ask(t.Context(), se, p)
			require.NoError(t, err)
			require.Equal(t, fits, text)
			return s.count() - before, s.last().Format != nil
		}
		steps := []struct {
			after    time.Duration
			requests int
			format   bool
		}{{0, 2, false}, {time.Hour, 1, false}, {22 * time.Hour, 1, false}, {time.Hour, 2, false}, {time.Hour, 1, false}}
		for _, tt := range steps {
			now = now.Add(tt.after)
			requests, format := asked()
			require.Equal(t, tt.requests, requests, "%d after %v", code, tt.after)
			require.Equal(t, tt.format, format)
		}
		later.Store(true)
		now = now.Add(23 * time.Hour)
		for range 2 {
			requests, format := asked()
			require.Equal(t, 1, requests)
			require.True(t, format)
		}
	}
}

// A request that fails without its schema too says nothing about schemas, nor does
// another error.
func TestOtherRefusals(t *testing.T) {
	for code, sent := range map[int]int{http.StatusBadRequest: 2, http.StatusUnauthorized: 1} {
		var working atomic.Bool
		s := serve(t, list("x", "m"), func(w http.ResponseWriter, _ request, _ int) {
			if !working.Load() {
				refuse(w, code)
				return
			}
			stream(w, delta(fits), stop)
		})
		se := session(t, open(t, s.URL, func(c *remote.Config) { c.Model, c.Retries = "m", 0 }))
		p := inference.Prompt{Text: "x", Schema: []byte(schema)}
		_, err := ask(t.Context(), se, p)
		require.ErrorIs(t, err, remote.ErrRefused)
		require.Equal(t, sent, s.count())
		working.Store(true)
		_, err = ask(t.Context(), se, p)
		require.NoError(t, err)
		require.NotNil(t, s.last().Format, "%d is no refusal of schemas", code)
	}
}

// A server that knows neither template settings nor schemas is asked without both.
func TestSchemaAndTemplateRefused(t *testing.T) {
	s := serve(t, list("x", "m"), func(w http.ResponseWriter, r request, _ int) {
		switch {
		case r.Template != nil:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: chat_template_kwargs"}}`)
		case r.Format != nil:
			refuse(w, http.StatusBadRequest)
		default:
			stream(w, delta(fits), stop)
		}
	})
	se := session(t, open(t, s.URL))
	for _, want := range []int{3, 4} {
		_, err := ask(t.Context(), se, inference.Prompt{Text: "x", Schema: []byte(schema)})
		require.NoError(t, err)
		require.Equal(t, want, s.count())
	}
}

// rulesSchema is that of an alert look with one rule.
const rulesSchema = `{"type":"object","properties":{"fired":{"type":"array","maxItems":1,"items":{"type":"object","properties":{` +
	`"rule":{"type":"integer","minimum":1,"maximum":1},"reason":{"type":"string","maxLength":160}},` +
	`"required":["rule","reason"],"additionalProperties":false}}},"required":["fired"],"additionalProperties":false}`

// TestRecordedSchemas replays answers in the forms of three servers. They are not recorded: they are written by the servers'
// documented formats. llama-server: README of tools/server in llama.cpp, with and without --reasoning-format. vLLM: the
// documents on the OpenAI-compatible server, structured outputs and reasoning outputs. Ollama: docs/openai.md and structured
// outputs; a model whose template does not suit answers in a fence or in words.
func TestRecordedSchemas(t *testing.T) {
	const goal = `{"fired":[{"rule":1,"reason":"The ball is in the net."}]}`
	tests := []struct {
		name     string
		answers  []string // in order; the last one again
		want     string   // JSON; "": an error
		requests int
	}{
		{"llama-server", []string{"llama-server/schema"}, goal, 1},
		{"llama-server, thoughts in the text", []string{"llama-server/schema-thoughts"}, goal, 1},
		{"llama-server, thoughts apart", []string{"llama-server/schema-reasoning"}, goal, 1},
		{"llama-server, cut off", []string{"llama-server/schema-length", "llama-server/schema"}, goal, 2},
		{"llama-server, schema refused", []string{"llama-server/schema-refused", "llama-server/schema"}, goal, 2},
		{"vLLM, another layout", []string{"vllm/schema"}, goal, 1},
		{"vLLM, thoughts apart", []string{"vllm/schema-reasoning"}, goal, 1},
		{"vLLM, schema refused", []string{"vllm/schema-refused", "vllm/schema"}, goal, 2},
		{"vLLM, of an old version", []string{"vllm/schema-unprocessable", "vllm/schema"}, goal, 2},
		{"Ollama", []string{"ollama/schema"}, goal, 1},
		{"Ollama, thoughts apart", []string{"ollama/schema-reasoning"}, goal, 1},
		{"Ollama, in a fence", []string{"ollama/schema-fence"}, goal, 1},
		{"Ollama, repaired", []string{"ollama/schema-words", "ollama/schema"}, goal, 2},
		{"Ollama, another rule, repaired", []string{"ollama/schema-other", "ollama/schema-fence"}, goal, 2},
		{"Ollama, not repaired", []string{"ollama/schema-words"}, "", 2},
		{"refused, then not repaired", []string{"vllm/schema-refused", "ollama/schema-words"}, "", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, list("x", "m"), func(w http.ResponseWriter, _ request, n int) {
				recorded(t, w, tt.answers[min(n, len(tt.answers))-1])
			})
			text, err := ask(t.Context(), session(t, open(t, s.URL)), inference.Prompt{Text: "x", Schema: []byte(rulesSchema)})
			require.Equal(t, tt.requests, s.count())
			if tt.want == "" {
				require.ErrorIs(t, err, remote.ErrNoAnswer)
				require.ErrorContains(t, err, "asked twice, it did not follow the JSON schema: there is no complete JSON in it")
				require.Empty(t, text)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, tt.want, text)
		})
	}
}

// TestRepair: the request for a repair has the wrong answer, its fault and the schema.
func TestRepair(t *testing.T) {
	s := serve(t, list("x", "m"), func(w http.ResponseWriter, _ request, n int) {
		if n == 1 {
			stream(w, delta(`{"fired":[{"rule":7,"reason":"<|im_end|>"}]}`), stop, done)
			return
		}
		stream(w, delta(`{"fired":[]}`), stop, done)
	})
	text, err := ask(t.Context(), session(t, open(t, s.URL)), inference.Prompt{Text: "x", Schema: []byte(rulesSchema)})
	require.NoError(t, err)
	require.JSONEq(t, `{"fired":[]}`, text)
	messages := s.last().Messages
	require.Len(t, messages, 4)
	require.Equal(t, "assistant", messages[2].Role)
	require.NotContains(t, string(messages[2].Content), "<|im_end|>")
	require.Equal(t, "user", messages[3].Role)
	require.Contains(t, string(messages[3].Content), "at /fired/items/rule: integer 7 is out of the bounds")
	require.Contains(t, string(messages[3].Content), `maxItems`)
	require.NotNil(t, s.last().Format)
}
