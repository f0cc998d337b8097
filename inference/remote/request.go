package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/internal/backoff"
)

// request is the body of POST /chat/completions. Zero fields are left out.
type request struct {
	Messages  []message `json:"messages"`
	Model     string    `json:"model"`
	Stream    bool      `json:"stream,omitempty"`
	MaxTokens int       `json:"max_tokens,omitempty"`
	// MaxCompletionTokens is the successor of MaxTokens.
	MaxCompletionTokens int `json:"max_completion_tokens,omitempty"`
	// The settings of sampling. vLLM, SGLang and llama-server support all four.
	Temperature       *float64 `json:"temperature,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	// Format is the result of answerFormat.
	Format json.RawMessage `json:"response_format,omitempty"`
	// Template are settings of the model's chat template.
	Template map[string]any `json:"chat_template_kwargs,omitempty"`
	// Effort is "none" for models that would think; Ollama has no other switch.
	Effort string `json:"reasoning_effort,omitempty"`

	several bool // has more than one picture
	single  bool // has one picture in place of several
	folded  bool // has the system's text in the user's message
}

// message is one message of a conversation. Its content is a string or a []part.
type message struct {
	Content any    `json:"content"`
	Role    string `json:"role"`
}

// part is a text or a picture of a message.
type part struct {
	Picture *picture `json:"image_url,omitempty"`
	Text    string   `json:"text,omitempty"`
	Type    string   `json:"type"`
}

type picture struct {
	URL string `json:"url"`
}

// sample sets the sampling.
func (r *request) sample(s inference.Sampling) {
	r.Temperature, r.TopP, r.TopK, r.RepetitionPenalty = s.Temperature, s.TopP, s.TopK, s.RepetitionPenalty
	if s.TopK != nil && *s.TopK == 0 {
		r.TopK = new(-1) // servers refuse 0
	}
}

// answerFormat returns the response_format of a schema, whose properties keep their order.
func answerFormat(schema json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"type": "json_schema", "json_schema": map[string]any{"name": "answer", "strict": true, "schema": schema},
	})
}

// body returns the JSON of the request.
func (r request) body() ([]byte, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	err := to.Encode(r)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// send sends a request to a path below the server's address and returns the response, whose body the caller closes. The error wraps
// one of this package; after a refusal it also wraps a *statusError.
func (m *Model) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, m.cfg.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "touchline")
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if m.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+string(m.cfg.APIKey))
	}
	res, err := m.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, m.fault(ctx, ErrUnreachable, err)
	}
	if res.StatusCode >= http.StatusBadRequest || ctx.Err() != nil {
		defer res.Body.Close()
		return nil, m.fault(ctx, ErrRefused, refusalOf(res, m.now()))
	}
	return res, nil
}

// fault wraps err with kind, or returns ErrTimeout if the context has ended.
func (m *Model) fault(ctx context.Context, kind, err error) error {
	if ctx.Err() != nil {
		kind, err = ErrTimeout, context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w: %w", m.server, kind, err)
}

// maxRefusal is the largest size of an error response in bytes; the rest is ignored.
const maxRefusal = 64 << 10

// statusError is a refusal with its HTTP status, or with that of an error inside an answer.
type statusError struct {
	code   int
	text   string
	whole  string        // the text before it was shortened
	after  time.Duration // Retry-After
	inside bool
}

// refusalOf reads an answer that is an error.
func refusalOf(res *http.Response, now time.Time) *statusError {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		body = nil // The status suffices.
	}
	whole := string(body)
	var value any
	if strings.Contains(whole, `"loc"`) && json.Unmarshal(body, &value) == nil {
		whole = fault.Messages(value) // without the request, which FastAPI repeats beside the fault
	}
	return &statusError{
		code: res.StatusCode, text: fault.Text(body), whole: whole,
		after: min(backoff.RetryAfter(res.Header, now), time.Hour),
	}
}

// Error returns the status and the server's message.
func (e *statusError) Error() string {
	if e.inside {
		return e.text
	}
	text := strings.TrimSpace(strconv.Itoa(e.code) + " " + http.StatusText(e.code))
	if e.text != "" {
		text += ": " + e.text
	}
	return text
}

// refused reports whether an error is a refusal with one of the statuses.
func refused(err error, statuses ...int) bool {
	refusal, ok := errors.AsType[*statusError](err)
	return ok && slices.Contains(statuses, refusal.code)
}
