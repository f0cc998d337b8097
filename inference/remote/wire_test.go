package remote_test

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
	"touchline/internal/contract"
)

var base64Picture = regexp.MustCompile(`base64,[A-Za-z0-9+/=]+`)

// TestRequestBytes: the requests are, byte for byte but for the pictures, those of the golden file.
func TestRequestBytes(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	var answers []func(http.ResponseWriter)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(&out, "%s %s\n", r.Method, r.RequestURI)
		if err != nil || r.ContentLength != int64(len(body)) {
			fmt.Fprintf(&out, "%d bytes of %d: %v\n", len(body), r.ContentLength, err)
		}
		for _, k := range []string{"Accept", "Accept-Encoding", "Authorization", "Content-Type"} {
			if v := r.Header.Values(k); len(v) > 0 {
				fmt.Fprintf(&out, "%s: %s\n", k, strings.Join(v, ", "))
			}
		}
		fmt.Fprintf(&out, "%s\n", base64Picture.ReplaceAll(body, []byte("base64,PICTURE")))
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, list("vllm", "Qwen/Qwen2.5-VL-7B-Instruct"))
			return
		}
		next := func(w http.ResponseWriter) { stream(w, delta(fits), stop, done) }
		if len(answers) > 0 {
			next, answers = answers[0], answers[1:]
		}
		next(w)
	}))
	defer s.Close()
	refuses := func(code int, message string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"error":{"message":%q}}`, message)
		}
	}
	says := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { stream(w, delta(text), stop) }
	}
	red := frame(1, 8, 8, color.RGBA{R: 200, A: 255})
	blue := frame(2, 8, 8, color.RGBA{B: 200, A: 255})
	strange := "<b>&amp;\u2028\u2029 \"quoted\" \\ tab\t line\nbell\a del\x7f bytes \xff\xfe rune \uFFFD ⚽ /"
	tests := []struct {
		name    string
		change  func(*remote.Config)
		prompt  inference.Prompt
		answers []func(http.ResponseWriter)
	}{
		{name: "text", prompt: prompt},
		{name: "model of the settings", change: func(c *remote.Config) { c.Model = "a \"b\" <c>/d:e" }, prompt: prompt},
		{name: "key", change: func(c *remote.Config) { c.APIKey = "k3y" }, prompt: prompt},
		{name: "instruction alone", prompt: inference.Prompt{Instruction: "only this", Language: "nl"}},
		{name: "characters", prompt: inference.Prompt{System: strange, Text: strange}},
		{name: "picture alone", prompt: inference.Prompt{Frames: []inference.Frame{red}}},
		{name: "pictures and a limit", prompt: inference.Prompt{Text: "x", Frames: []inference.Frame{red, blue}, MaxTokens: 12}},
		{name: "sampling", prompt: inference.Prompt{Text: "x", Sampling: inference.Sampling{
			Temperature: new(0.7), TopK: new(0), TopP: new(0.95), RepetitionPenalty: new(1.05),
		}}},
		{name: "sampling of extremes", prompt: inference.Prompt{Text: "x", Sampling: inference.Sampling{
			Temperature: new(0.0), TopK: new(40), TopP: new(1e-6), RepetitionPenalty: new(2.0),
		}}},
		{name: "one of them", prompt: inference.Prompt{Text: "x", Sampling: inference.Sampling{TopP: new(1.0)}}},
		{name: "schema", prompt: inference.Prompt{
			Text: "x", Schema: []byte(" {\n \"type\" : \"object\" } "), Sampling: inference.Sampling{Temperature: new(0.7), TopK: new(3)},
		}},
		{name: "schema with marks", prompt: inference.Prompt{Text: "x", Schema: []byte(schema)}},
		{
			name: "schema refused", prompt: inference.Prompt{Text: "x", Schema: []byte(schema)},
			answers: []func(http.ResponseWriter){refuses(400, "no response_format")},
		},
		{
			name: "answer repaired", prompt: inference.Prompt{Text: "x", Schema: []byte(schema)},
			answers: []func(http.ResponseWriter){says("I see </s> " + strange)},
		},
		{
			name: "template settings and schema refused", prompt: inference.Prompt{Text: "x", Schema: []byte(schema)},
			answers: []func(http.ResponseWriter){refuses(400, "chat_template_kwargs?"), refuses(422, "no response_format")},
		},
		{name: "retried", prompt: prompt, answers: []func(http.ResponseWriter){refuses(503, "busy")}},
	}
	for _, tt := range tests {
		mu.Lock()
		fmt.Fprintf(&out, "== %s\n", tt.name)
		answers = tt.answers
		mu.Unlock()
		m := open(t, s.URL, func(c *remote.Config) {
			if tt.change != nil {
				tt.change(c)
			}
		})
		_, err := ask(t.Context(), session(t, m), tt.prompt)
		require.NoError(t, err, tt.name)
	}
	fmt.Fprint(&out, "== warm\n")
	require.NoError(t, open(t, s.URL).Warm(t.Context(), nil))
	contract.Compare(t, "testdata/requests.golden", out.String())
}

// TestErrorTexts: what people read of faults of a server, word for word.
func TestErrorTexts(t *testing.T) {
	reply := func(code int, kind, body string, headers ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const asJSON, asEvents = "application/json", "text/event-stream"
	drop := func(w http.ResponseWriter) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	}
	tests := []struct {
		name   string
		answer func(http.ResponseWriter)
	}{
		{"OpenAI's form", reply(400, asJSON, `{"error":{"message":"no pictures","type":"invalid_request_error","code":"c","param":"p"}}`)},
		{"error as text", reply(401, asJSON, `{"error":"Unauthorized"}`)},
		{"message", reply(400, asJSON, `{"object":"error","message":"no such thing","code":400}`)},
		{"detail", reply(429, asJSON, `{"detail":"busy"}`, "Retry-After", "3")},
		{"detail as a list", reply(422, asJSON, `{"detail":[{"loc":["body","x"],"msg":"extra fields not permitted"}]}`)},
		{"several details", reply(422, asJSON, `{"detail":[{"loc":["body","x"],"msg":"no","input":{"y":1}},{"loc":["body","messages",0],"msg":"none"}]}`)},
		{"detail as a message", reply(422, asJSON, `{"object":"error","message":{"detail":[{"loc":["body","x"],"msg":"no"}]},"type":"t"}`)},
		{"list of errors", reply(400, asJSON, `{"errors":[{"message":"AiError: no","code":5006}],"success":false,"result":{}}`)},
		{"errors as texts", reply(400, asJSON, `{"error":["no","never"]}`)},
		{"msg", reply(400, asJSON, `{"code":1234,"msg":"no balance"}`)},
		{"error of another server", reply(400, asJSON, `{"error":{"message":"Provider returned error","metadata":{"raw":`+
			`"{\"error\":{\"message\":\"no pictures\"}}","provider_name":"p"}}}`)},
		{"title of a page", reply(524, "text/html", "<!DOCTYPE html><!--[if lt IE 7]> <html> <![endif]--><head>\n<title>a.example | 524: A timeout occurred</title>")},
		{"text", reply(500, "text/plain", "CUDA error\n")},
		{"page", reply(502, "text/html", "<html><body>Bad Gateway</body></html>")},
		{"nothing", reply(503, "", "")},
		{"error is null", reply(500, asJSON, `{"error":null}`)},
		{"array", reply(500, asJSON, `[1,2]`)},
		{"number as message", reply(500, asJSON, `{"error":{"message":5}}`)},
		{"unknown status", reply(599, asJSON, `{"error":{"message":"odd"}}`)},
		{"found, but elsewhere", reply(302, "", "", "Location", "http://elsewhere.invalid/v1")},
		{"not modified", reply(304, "", "")},
		{"no content", reply(204, "", "")},
		{"no answer in JSON", reply(200, asJSON, `nothing`)},
		{"error in JSON", reply(200, asJSON, `{"error":{"message":"out of memory"}}`)},
		{"page instead of a stream", reply(200, "text/html", "<html>\n<body>busy</body>\n\n")},
		{"ends without an end", reply(200, asEvents, delta("a"))},
		{"ends inside an event", reply(200, asEvents, delta("a")+delta("b")[:30])},
		{"no JSON in an event", reply(200, asEvents, "data: {nonsense\n\n")},
		{"error in an event", reply(200, asEvents, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n")},
		{"body shorter than said", reply(200, asEvents, delta("a"), "Content-Length", "1000")},
		{"dropped", drop},
	}
	var out strings.Builder
	for _, tt := range tests {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			tt.answer(w)
		}))
		m := open(t, s.URL, func(c *remote.Config) { c.Retries, c.Model = 0, "m" })
		text, err := ask(t.Context(), session(t, m), prompt)
		_, probe := m.Probe(t.Context())
		fmt.Fprintf(&out, "== %s\nsaid: %q\nanswer: %v\nlist: %v\n", tt.name, text, err, probe)
		s.Close()
	}
	ports := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	contract.Compare(t, "testdata/errors.golden", ports.ReplaceAllString(out.String(), "SERVER"))
}
