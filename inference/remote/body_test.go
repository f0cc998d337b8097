package remote_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
		{"parts of a whole answer", "application/json",
			`{"choices":[{"message":{"content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Red scores."}]}}]}`},
		{"text of a completion", "application/json", `{"choices":[{"text":"Red scores.","finish_reason":"stop"}]}`},
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
