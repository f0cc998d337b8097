package remote_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"image/jpeg"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
)

// strict is a server that judges the body of each request: a refusal, or "" for an answer.
func strict(t *testing.T, code int, judge func(body map[string]any) string) (s *httptest.Server, bodies *[]map[string]any) {
	t.Helper()
	bodies = new([]map[string]any)
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, list("x", "m"))
			return
		}
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		*bodies = append(*bodies, body)
		if reason := judge(body); reason != "" {
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, reason)
			return
		}
		stream(w, delta("Red"), stop)
	}))
	t.Cleanup(s.Close)
	return s, bodies
}

// images returns the number of pictures of a request.
func images(body map[string]any) int {
	return strings.Count(fmt.Sprint(body["messages"]), "data:image")
}

// role returns whether a request has a system message.
func hasSystem(body map[string]any) bool {
	return strings.Contains(fmt.Sprint(body["messages"]), "role:system")
}

// TestPartsRefused: what a server refuses is left out or replaced, remembered, and shown.
func TestPartsRefused(t *testing.T) {
	unsupported := func(names ...string) func(map[string]any) string {
		return func(body map[string]any) string {
			for _, n := range names {
				if _, ok := body[n]; ok {
					return "Unsupported parameter: '" + n + "' is not supported with this model."
				}
			}
			return ""
		}
	}
	vague := func(judge func(map[string]any) string) func(map[string]any) string {
		return func(body map[string]any) string {
			if judge(body) != "" {
				return "Extra inputs are not permitted"
			}
			return ""
		}
	}
	onePicture := func(body map[string]any) string {
		if images(body) > 1 {
			return "At most 1 image(s) may be provided in one request."
		}
		return ""
	}
	noSystem := func(body map[string]any) string {
		if hasSystem(body) {
			return "System role not supported"
		}
		return ""
	}
	effort := func(allowed ...string) func(map[string]any) string {
		return func(body map[string]any) string {
			for _, a := range allowed {
				if body["reasoning_effort"] == a {
					return ""
				}
			}
			return "Unsupported value: 'reasoning_effort' does not support 'none'. Supported values are: '" + strings.Join(allowed, "', '") + "'."
		}
	}
	tests := []struct {
		name  string
		code  int
		judge func(map[string]any) string
		tries int // of the warm-up
		notes string
	}{
		{"everything taken", 400, func(map[string]any) string { return "" }, 1, ""},
		{"max_tokens", 400, unsupported("max_tokens"), 2, "; max_completion_tokens"},
		{"both limits", 400, unsupported("max_tokens", "max_completion_tokens"), 3, "; no max_tokens"},
		{"template", 422, unsupported("chat_template_kwargs"), 2, "; no chat_template_kwargs"},
		{"effort", 400, unsupported("reasoning_effort"), 2, "; no reasoning_effort"},
		{"effort minimal", 400, effort("minimal", "low", "medium"), 2, "; reasoning_effort minimal"},
		{"effort low", 400, effort("low", "medium"), 2, "; reasoning_effort low"},
		{"by a server error", 500, unsupported("chat_template_kwargs"), 2, "; no chat_template_kwargs"},
		{"stream", 400, unsupported("stream"), 2, "; no streaming"},
		{
			"four", 400, unsupported("chat_template_kwargs", "reasoning_effort", "max_tokens"), 4,
			"; no chat_template_kwargs, no reasoning_effort, max_completion_tokens",
		},
		{"one picture", 400, onePicture, 2, "; one picture a request"},
		{"system role", 400, noSystem, 2, "; no system role"},
		{"vague template", 400, vague(unsupported("chat_template_kwargs")), 2, "; no chat_template_kwargs"},
		{
			"vague, two fields", 422, vague(unsupported("chat_template_kwargs", "reasoning_effort")), 3,
			"; no chat_template_kwargs, no reasoning_effort",
		},
		{"vague limit", 400, vague(unsupported("max_tokens")), 4, "max_completion_tokens"},
		{"vague pictures", 400, vague(onePicture), 5, "one picture a request"},
		{"vague system role", 400, vague(noSystem), 6, "no system role"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, bodies := strict(t, tt.code, tt.judge)
			m := open(t, s.URL, func(c *remote.Config) { c.Retries = 0 })
			require.NoError(t, m.Warm(t.Context(), nil))
			require.Len(t, *bodies, tt.tries)
			se := session(t, m)
			p := prompt
			p.Frames = []inference.Frame{frame(1, 64, 36, color.RGBA{R: 200, A: 255}), frame(2, 64, 36, color.RGBA{B: 200, A: 255})}
			text, err := ask(t.Context(), se, p)
			require.NoError(t, err)
			require.Equal(t, "Red", text)
			require.Len(t, *bodies, tt.tries+1, "remembered")
			require.Contains(t, m.Status().Detail, tt.notes)
			require.True(t, strings.HasSuffix(m.Status().Detail, m.Notes()))
			require.Equal(t, tt.notes != "", strings.Contains(m.Status().Detail, ";"), m.Status().Detail)
		})
	}
}

// TestSamplingRefused: a setting of sampling that the server names is left out, in a room too.
func TestSamplingRefused(t *testing.T) {
	s, bodies := strict(t, http.StatusBadRequest, func(body map[string]any) string {
		if v, ok := body["temperature"]; ok && v != 1.0 {
			return "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported."
		}
		return ""
	})
	m := open(t, s.URL)
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	m.SetNow(func() time.Time { return now })
	require.NoError(t, m.Warm(t.Context(), nil))
	se := session(t, m)
	for _, want := range []int{3, 4, 6} { // after a day it is tried again
		_, err := ask(t.Context(), se, inference.Prompt{Text: "x", Sampling: inference.Sampling{Temperature: new(0.2), TopP: new(0.9)}})
		require.NoError(t, err)
		require.Len(t, *bodies, want)
		require.Contains(t, m.Status().Detail, "; no temperature")
		require.NotNil(t, (*bodies)[want-1]["top_p"])
		now = now.Add(15 * time.Hour)
	}
}

// TestRecall: what was learnt outlives a reload.
func TestRecall(t *testing.T) {
	s, bodies := strict(t, http.StatusBadRequest, func(body map[string]any) string {
		if _, ok := body["max_tokens"]; ok {
			return "max_tokens is not supported"
		}
		return ""
	})
	first := open(t, s.URL)
	require.NoError(t, first.Warm(t.Context(), nil))
	require.Len(t, *bodies, 2)
	second := open(t, s.URL)
	second.Recall(first)
	require.NoError(t, second.Warm(t.Context(), nil))
	require.Len(t, *bodies, 3)
	require.Equal(t, "max_completion_tokens", second.Notes())
}

// TestVagueAfterADay: a part that was refused without a name is left out again after its daily retry in a room.
func TestVagueAfterADay(t *testing.T) {
	s, bodies := strict(t, http.StatusBadRequest, func(body map[string]any) string {
		if _, ok := body["chat_template_kwargs"]; ok {
			return "invalid request"
		}
		return ""
	})
	m := open(t, s.URL)
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	m.SetNow(func() time.Time { return now })
	require.NoError(t, m.Warm(t.Context(), nil))
	now = now.Add(25 * time.Hour)
	_, err := ask(t.Context(), session(t, m), prompt)
	require.NoError(t, err)
	require.Len(t, *bodies, 4)
}

// TestNothingToLearn: some refusals say nothing about the parts of a request.
func TestNothingToLearn(t *testing.T) {
	for code, reason := range map[int]string{
		401: "no key", 403: "chat_template_kwargs", 404: "max_tokens", 413: "image too large", 429: "max_tokens per minute",
		400: "max_tokens is too large: the maximum context length is 100 tokens",
	} {
		s, bodies := strict(t, code, func(map[string]any) string { return reason })
		m := open(t, s.URL, func(c *remote.Config) { c.Retries = 0 })
		require.ErrorContains(t, m.Warm(t.Context(), nil), reason)
		require.Len(t, *bodies, 1, code)
	}
	// After all tries, the error is the first refusal.
	n := 0
	s, bodies := strict(t, 400, func(map[string]any) string { n++; return fmt.Sprintf("bad request %d", n) })
	require.ErrorContains(t, open(t, s.URL, func(c *remote.Config) { c.Retries = 0 }).Warm(t.Context(), nil), "400 Bad Request: bad request 1")
	require.Len(t, *bodies, 6)
}

// TestOnePicture: a server that takes one picture gets a numbered grid, or the newest.
func TestOnePicture(t *testing.T) {
	for _, way := range []string{remote.OneGrid, remote.OneNewest} {
		s := serve(t, list("x", "m"), func(w http.ResponseWriter, r request, _ int) {
			if strings.Count(string(r.Messages[1].Content), "image_url") > 2 {
				http.Error(w, "only one image is allowed", http.StatusBadRequest)
				return
			}
			stream(w, delta("Red"), stop)
		})
		se := session(t, open(t, s.URL, func(c *remote.Config) { c.OnePicture = way }))
		p := prompt
		for i, c := range []color.RGBA{{R: 200, A: 255}, {G: 200, A: 255}, {B: 200, A: 255}} {
			p.Frames = append(p.Frames, frame(time.Duration(i), 64, 64, c))
		}
		_, err := ask(t.Context(), se, p)
		require.NoError(t, err)
		parts := s.last().parts(t)
		require.Len(t, parts, 2)
		data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(parts[0].ImageURL.URL, "data:image/jpeg;base64,"))
		require.NoError(t, err)
		pic, err := jpeg.Decode(bytes.NewReader(data))
		require.NoError(t, err)
		at := func(x, y int) [3]bool {
			r, g, b, _ := pic.At(x, y).RGBA()
			return [3]bool{r > 0x8000, g > 0x8000, b > 0x8000}
		}
		if way == remote.OneNewest {
			require.Equal(t, 64, pic.Bounds().Dx())
			require.Equal(t, [3]bool{false, false, true}, at(40, 40))
			continue
		}
		require.Equal(t, 128, pic.Bounds().Dx())
		require.Equal(t, 128, pic.Bounds().Dy())
		require.Equal(t, [][3]bool{{true, false, false}, {false, true, false}, {false, false, true}, {}},
			[][3]bool{at(40, 40), at(104, 40), at(40, 104), at(104, 104)})
		require.Contains(t, parts[1].Text, "3 moments, numbered from the oldest")
		require.Equal(t, [3]bool{}, at(0, 0), "the box of a number")
	}
	require.Error(t, remote.Config{OnePicture: "both"}.Validate())
}

// TestUnopenedThoughts: thoughts that end with a mark alone are not spoken once the warm-up has shown them.
func TestUnopenedThoughts(t *testing.T) {
	think := []string{delta("Okay, the user wants"), delta(" one sentence."), delta("</th"), delta("ink>"), delta("A red "), delta("player shoots."), stop}
	cut := "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
	s := serve(t, list("x", "m"), func(w http.ResponseWriter, r request, _ int) {
		if r.MaxTokens <= 8 {
			stream(w, delta("Okay, the user"), cut)
			return
		}
		stream(w, think...)
	})
	m := open(t, s.URL)
	require.NoError(t, m.Warm(t.Context(), nil))
	require.Equal(t, 2, s.count(), "the second prompt shows the closing mark")
	se := session(t, m)
	text, err := ask(t.Context(), se, prompt)
	require.NoError(t, err)
	require.Equal(t, "A red player shoots.", text)
	require.Contains(t, m.Status().Detail, "thoughts without an opening mark")
	think = []string{delta("Okay, the user"), cut}
	text, err = ask(t.Context(), se, prompt)
	require.ErrorIs(t, err, remote.ErrNoAnswer)
	require.ErrorContains(t, err, "on thinking")
	require.Empty(t, text)
	// Without a warm-up, the first answer is held.
	think = []string{delta("hm"), delta("</think>Red"), stop}
	text, err = ask(t.Context(), session(t, open(t, s.URL)), prompt)
	require.NoError(t, err)
	require.Equal(t, "Red", text)
}

// TestPlainTextIsNotHeld: the words of a model without such thoughts arrive as the server sends them.
func TestPlainTextIsNotHeld(t *testing.T) {
	next := make(chan struct{})
	s := serve(t, list("x", "m"), func(w http.ResponseWriter, _ request, n int) {
		stream(w, delta("Red"))
		if n > 1 {
			<-next
		}
		stream(w, delta(" scores"), stop)
	})
	m := open(t, s.URL)
	require.NoError(t, m.Warm(t.Context(), nil))
	var words []string
	for c, err := range session(t, m).Generate(t.Context(), prompt) {
		require.NoError(t, err)
		if words = append(words, c.Text); len(words) == 1 {
			close(next)
		}
	}
	require.Equal(t, []string{"Red", " scores"}, words)
}

// TestSilentAnswers: an answer without words has a reason, and the status shows it after three in a row.
func TestSilentAnswers(t *testing.T) {
	finish := func(reason string) string {
		return fmt.Sprintf("data: {\"choices\":[{\"delta\":{},\"finish_reason\":%q}]}\n\n", reason)
	}
	field := func(json string) string { return "data: {\"choices\":[{\"delta\":{" + json + "}}]}\n\n" }
	for reason, events := range map[string][]string{
		"its answer is empty (finish_reason stop)":            {role, stop},
		"spent its 64 tokens on thinking":                     {field(`"reasoning":"hm"`), finish("length")},
		"spent its 64 tokens on thinking; choose":             {role, finish("length")},
		"all of its answer is in the field for reasoning":     {field(`"reasoning_content":"A red player"`), stop},
		"it refused: I cannot help with that":                 {field(`"refusal":"I cannot help with that","content":null`), stop},
		"a content filter stopped it":                         {finish("content_filter")},
		"it called a tool":                                    {field(`"tool_calls":[{"index":0,"function":{"name":"f"}}]`), finish("tool_calls")},
		"it called a tool instead":                            {delta(`<tool_call>{"name":"f"}</tool_call>`), stop},
		"it ended after its thoughts":                         {delta("<think>hm</think>"), stop},
		"its answer is empty (finish_reason none); check its": {done},
	} {
		s := serve(t, list("x", "m"), func(w http.ResponseWriter, _ request, _ int) { stream(w, events...) })
		m := open(t, s.URL)
		se := session(t, m)
		for n := range 3 {
			text, err := ask(t.Context(), se, prompt)
			require.ErrorIs(t, err, remote.ErrNoAnswer)
			require.ErrorContains(t, err, reason)
			require.Empty(t, text)
			require.Equal(t, n == 2, strings.Contains(m.Status().Detail, "3 answers in a row without words: "+s.URL), m.Status().Detail)
		}
		last := ""
		require.NoError(t, m.Warm(t.Context(), func(_ int, detail string) { last = detail }), "it loads: a later answer may have words")
		require.Contains(t, last, "is ready, but its first answer had no words: "+s.URL)
		require.Equal(t, last, m.Status().Detail)
	}
}

// TestEmptyWarmUp: an empty answer teaches nothing about thoughts, and a longer one may have words.
func TestEmptyWarmUp(t *testing.T) {
	s := serve(t, list("x", "m"), func(w http.ResponseWriter, r request, _ int) {
		if r.MaxTokens < 16 {
			stream(w, stop)
			return
		}
		stream(w, delta("Grey"), stop)
	})
	m := open(t, s.URL)
	require.NoError(t, m.Warm(t.Context(), nil))
	require.Contains(t, m.Status().Detail, "first word after")
}
