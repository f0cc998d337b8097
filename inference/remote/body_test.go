package remote_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
)

// TestBodies: answers in the forms that servers and proxies send, whatever type they declare.
func TestBodies(t *testing.T) {
	const (
		whole  = `{"choices":[{"message":{"content":"Red scores."},"finish_reason":"stop"}]}`
		ollama = `{"model":"m","message":{"role":"assistant","content":"Red "},"done":false}` + "\n" +
			`{"message":{"content":"scores."},"done":false}` + "\n" + `{"message":{"content":""},"done":true,"done_reason":"stop"}` + "\n"
	)
	events := delta("Red ") + delta("scores.") + stop + done
	part := func(content string) string {
		return `data: {"choices":[{"delta":{"content":` + content + `}}]}` + "\n\n"
	}
	choice := func(fields string) string { return `data: {"choices":[{` + fields + "}]}\n\n" }
	lines := strings.ReplaceAll(strings.ReplaceAll(events, "data: ", ""), "\n\n", "\n")
	tests := []struct{ name, kind, body string }{
		{"events as JSON", "application/json", events},
		{"events after a comment as JSON", "application/json", ": hello\n\n" + events},
		{"JSON as events", "text/event-stream", whole},
		{"JSON of many lines", "text/event-stream", strings.ReplaceAll(whole, ",", ",\n")},
		{"JSON without a type", "", "\n " + whole},
		{"JSON after a byte order mark", "application/json", "\uFEFF" + whole},
		{"events after a byte order mark", "text/event-stream", "\uFEFF" + events},
		{"Ollama's own lines", "application/x-ndjson", ollama},
		{"lines", "application/json", lines},
		{"list of events", "application/json", "[" + strings.Join(strings.Split(strings.TrimSuffix(lines, "[DONE]\n"), "\n")[:3], ",") + "]"},
		{"bare carriage returns", "text/event-stream", strings.ReplaceAll(events, "\n", "\r")},
		{"bare carriage returns without blank lines", "text/event-stream", strings.ReplaceAll(strings.ReplaceAll(events, "\n\n", "\n"), "\n", "\r")},
		{"parts", "text/event-stream", part(`[{"type":"text","text":"Red "}]`) + part(`{"type":"text","text":"scores."}`) + stop},
		{"parts of thoughts", "text/event-stream", part(`[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]`) +
			part(`[{"type":"text","text":"Red "},{"type":"output_text","text":"scores."}]`) + stop},
		{
			"parts of a whole answer", "application/json",
			`{"choices":[{"message":{"content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Red scores."}]}}]}`,
		},
		{"text of a completion", "application/json", `{"choices":[{"text":"Red scores.","finish_reason":"stop"}]}`},
		{"a message beside each delta", "text/event-stream", // text-generation-webui
			choice(`"message":{"content":"Red "},"delta":{"content":"Red "}`) + choice(`"message":{"content":"scores."},"delta":{"content":"scores."}`) + stop},
		{"a growing message beside the deltas", "text/event-stream", // Perplexity
			choice(`"message":{"content":"Red "},"delta":{"content":"Red "}`) +
				choice(`"message":{"content":"Red scores."},"delta":{"content":"scores."}`) +
				choice(`"message":{"content":"Red scores."},"delta":{"content":""},"finish_reason":"stop"`)},
		{
			"the whole message at the end", "text/event-stream",
			delta("Red ") + delta("scores.") + choice(`"message":{"content":"Red scores."},"finish_reason":"stop"`),
		},
		{"a finish reason with each event", "text/event-stream", // gateways to Gemini
			choice(`"delta":{"content":"Red "},"finish_reason":"stop"`) + choice(`"delta":{"content":"scores."},"finish_reason":"stop"`) +
				"data: {\"choices\":[],\"usage\":{}}\n\n"},
		{
			"a finish reason with the thoughts", "text/event-stream",
			choice(`"delta":{"reasoning_content":"hm"},"finish_reason":"stop"`) + choice(`"delta":{"content":"Red scores."},"finish_reason":"stop"`) + done,
		},
		{
			"null as a text", "text/event-stream",
			choice(`"delta":{"content":"Red "},"finish_reason":"null"`) + choice(`"delta":{"content":"scores."},"finish_reason":"stop"`) + done,
		},
		{"two events in a line", "text/event-stream", strings.TrimSpace(delta("Red ")) + strings.TrimSpace(delta("scores.")) + "\n\n" + done},
		{"a field twice", "text/event-stream", "data: " + delta("Red ") + "data: " + delta("scores.") + stop},
		{"a quoted end", "text/event-stream", delta("Red ") + delta("scores.") + "data: \"[DONE]\"\n\n"},
		{
			"details of thoughts", "text/event-stream",
			choice(`"delta":{"reasoning_details":[{"type":"reasoning.text","text":"hm"}]}`) + delta("Red scores.") + stop,
		},
		{"MedGemma's thoughts", "text/event-stream", delta("<unus") + delta("ed94>thought\nhm<unused95>") + delta("Red scores.") + stop},
		{"errors that are none", "text/event-stream", `data: {"error":{},"choices":[{"delta":{"content":"Red "}}]}` + "\n\n" +
			`data: {"error":0,"choices":[{"delta":{"content":"scores."}}]}` + "\n\n" + `data: {"error":"none","choices":[]}` + "\n\n" + stop},
		{"done as a text", "application/x-ndjson", strings.NewReplacer("false", `"false"`, "true", `"true"`).Replace(ollama)},
		{"done as a number", "application/x-ndjson", strings.NewReplacer("false", "0", "true", "1").Replace(ollama)},
		{"a second answer", "text/event-stream", choice(`"index":0,"delta":{"content":"Red "}`) + choice(`"index":1,"delta":{"content":"Blue."}`) +
			choice(`"index":1,"delta":{},"finish_reason":"stop"`) + choice(`"index":0,"delta":{"content":"scores."}`) + stop},
		{"an index of each token", "text/event-stream", choice(`"index":1,"delta":{"content":"Red "}`) +
			choice(`"index":2,"delta":{"content":"scores."}`) + choice(`"index":3,"delta":{},"finish_reason":"eos_token"`)},
		{"an index as text", "text/event-stream", choice(`"index":"0","delta":{"content":"Red "}`) +
			choice(`"index":"1","delta":{"content":"Blue."}`) + choice(`"index":"0","delta":{"content":"scores."},"finish_reason":"stop"`)},
		{"pings as text", "text/event-stream", "data: ping\n\n" + delta("Red ") + "data: keep-alive\n\n" + delta("scores.") + stop},
		{"small done", "text/event-stream", delta("Red scores.") + "data: [done]\n\n"},
		{"bare done", "text/event-stream", delta("Red scores.") + "data: DONE\n\n"},
		{"an end token", "text/event-stream", delta("Red scores.") + "data: <|endoftext|>\n\n"},
		{"an event of the type done", "text/event-stream", delta("Red scores.") + "event: done\ndata: {}\n\n"},
		{"inside data", "application/json", `{"code":200,"msg":"ok","data":` + whole + "}"},
		{"inside result", "application/json", `{"result":{"response":"Red scores."},"success":true,"errors":[],"messages":[]}`},
		{"an error after the end", "text/event-stream", delta("Red scores.") + stop + "data: {\"error\":\"usage\"}\n\n"},
		{"no choices at first", "text/event-stream", "data: {\"choices\":null}\n\ndata: {\"choices\":[],\"error\":\"\"}\n\n" + events},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) {
				w.Header()["Content-Type"] = []string{tt.kind}
				_, _ = fmt.Fprint(w, tt.body)
			})
			text, err := ask(t.Context(), session(t, open(t, s.URL, func(c *remote.Config) { c.Retries = 0 })), prompt)
			require.NoError(t, err)
			require.Equal(t, "Red scores.", text)
		})
	}
}

// TestHalfCharacters: halves of a character in two events are joined; a lone half is left out.
func TestHalfCharacters(t *testing.T) {
	raw := func(json string) string { return `data: {"choices":[{"delta":{"content":"` + json + `"}}]}` + "\n\n" }
	for want, events := range map[string][]string{
		"goal ⚽😀!":   {raw(`goal ⚽\ud83d`), raw(`\ude00!`)},
		"goal 😀":     {raw(`goal \ud83d\ude00`)},
		"goal !":     {raw(`goal \ud83d`), raw(`!`)},
		"goal it":    {raw(`goal \ude00it`)},
		`back\ud83d`: {raw(`back\\ud83d`)},
	} {
		s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) { stream(w, append(events, stop)...) })
		text, err := ask(t.Context(), session(t, open(t, s.URL)), prompt)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
}

// TestErrorAsFirstEvent: an error before the first word is retried, with the status that it names.
func TestErrorAsFirstEvent(t *testing.T) {
	for event, attempts := range map[string]int{
		`data: {"error":{"message":"EngineCore died"}}`:              2,
		"event: error\ndata: {\"message\":\"EngineCore died\"}":      2,
		`data: {"error":{"message":"busy","code":429}}`:              2,
		`{"error":{"message":"Provider returned error","code":502}}`: 2,
		`data: {"error":{"message":"no key","code":401}}`:            1,
	} {
		s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, n int) {
			if n == 1 {
				stream(w, event+"\n\n")
				return
			}
			stream(w, delta("Red"), stop)
		})
		text, err := ask(t.Context(), session(t, open(t, s.URL)), prompt)
		require.Equal(t, attempts, s.count(), event)
		if attempts == 2 {
			require.NoError(t, err)
			require.Equal(t, "Red", text)
		} else {
			require.ErrorIs(t, err, remote.ErrRefused)
		}
	}
}

// TestLastWords: a connection that stays open after the last words, which came with a finish reason, delays the end by a bounded time.
func TestLastWords(t *testing.T) {
	bubble(t, func(c *remote.Config) { c.Model, c.IdleTimeout = "m", time.Minute }, func(w http.ResponseWriter, _ int) {
		stream(w, `data: {"choices":[{"delta":{"content":"Red"},"finish_reason":"stop"}]}`+"\n\n")
		time.Sleep(4 * time.Second)
	}, func(t *testing.T, _ *server, m *remote.Model) {
		t.Helper()
		began := time.Now()
		text, err := ask(t.Context(), session(t, m), prompt)
		require.NoError(t, err)
		require.Equal(t, "Red", text)
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

// TestErrorsAsAnswers: an answer with status 200 that has no field of an answer is an error with its text.
func TestErrorsAsAnswers(t *testing.T) {
	for body, want := range map[string]string{
		`{"object":"error","message":"EngineDeadError","code":500}`:                                    "refused in the middle of its answer: EngineDeadError",
		"data: {\"object\":\"error\",\"message\":\"EngineDeadError\"}\n\n":                             "answer: EngineDeadError",
		`{"code":500,"msg":"404 NOT_FOUND","success":false}`:                                           "answer: 404 NOT_FOUND",
		`{"base_resp":{"status_code":1004,"status_msg":"login fail"}}`:                                 "login fail",
		"data: {\"text\":\"NETWORK ERROR\",\"error_code\":50001}\n\n":                                  "NETWORK ERROR",
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n":                                   `{"type":"message_stop"}`,
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"Overloaded\"}}\n\n":          "answer: Overloaded",
		`{"choices":null,"error":{"message":"Provider returned error","metadata":{"raw":"no quota"}}}`: "Provider returned error: no quota",
	} {
		s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) { _, _ = fmt.Fprint(w, body) })
		_, err := ask(t.Context(), session(t, open(t, s.URL, func(c *remote.Config) { c.Retries = 0 })), prompt)
		require.ErrorIs(t, err, remote.ErrRefused, body)
		require.ErrorContains(t, err, want, body)
	}
}

// TestModelLists: the lists of models that servers have, and their names.
func TestModelLists(t *testing.T) {
	for models, name := range map[string]string{
		`[{"id":"m","object":"model"}]`:               "m",        // Together
		`{"data":[{"id":"m"}],"models":[{}]}`:         "m",        // llama-server
		`{"data":[{"id":"other"},{"id":"models/m"}]}`: "models/m", // Gemini
		`{"data":[{"id":"m:latest"}]}`:                "m:latest", // Ollama
	} {
		s := serve(t, models, nil)
		got, err := open(t, s.URL, func(c *remote.Config) { c.Model = "m" }).Probe(t.Context())
		require.NoError(t, err)
		require.Equal(t, name, got)
	}
}

// TestPastedSettings: an address with the path of a request, and a key with a line end, work.
func TestPastedSettings(t *testing.T) {
	s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) { stream(w, delta("Red"), stop) })
	for _, path := range []string{"", "/", "/v1/", "/v1/chat/completions"} {
		m := open(t, "", func(c *remote.Config) { c.URL, c.APIKey = s.URL+path, "hunter2\r\n" })
		text, err := ask(t.Context(), session(t, m), prompt)
		require.NoError(t, err, path)
		require.Equal(t, "Red", text)
		require.Equal(t, "Bearer hunter2", s.last().header.Get("Authorization"))
	}
}

// TestRepeatedRequest: the request that FastAPI repeats beside a fault names no part that is refused.
func TestRepeatedRequest(t *testing.T) {
	s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, r request, _ int) {
		if r.TopK != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"detail":[{"type":"value_error","loc":["body"],"msg":"Value error, top_k is not supported",
				"input":{"max_tokens":64,"chat_template_kwargs":{},"reasoning_effort":"none","temperature":0.5}}]}`)
			return
		}
		stream(w, delta("Red"), stop)
	})
	p := prompt
	p.Sampling = inference.Sampling{TopK: new(7), Temperature: new(0.5)}
	text, err := ask(t.Context(), session(t, open(t, s.URL)), p)
	require.NoError(t, err)
	require.Equal(t, "Red", text)
	require.Equal(t, 2, s.count())
	require.NotNil(t, s.last().Template)
}
