package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/schema"
	"touchline/internal/sse"
)

const (
	// firstBackoff doubles with each attempt up to maxBackoff, and varies by half either way.
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 4 * time.Second
)

// session is one conversation. Each prompt is a separate request that contains
// the previous comments.
type session struct {
	m        *Model
	pictures pictures
}

// Generate requests an answer from the server. The first word must arrive within
// FirstTokenTimeout, all attempts included, and each further word within
// IdleTimeout. Reasoning counts as words. The whole answer is limited by
// MaxTokens and answerTimeout. Generate retries up to Retries times if, before
// the first word, the server refuses the connection, answers 408, 429 or 5xx, or
// closes the connection. Errors come from this package,
// *inference.ModelMissingError, or the context's.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		a := answer{
			m: s.m, yield: yield, limit: cmp.Or(max(p.MaxTokens, 0), s.m.maxTokens),
			sampling: p.Sampling, urgent: p.Urgent, trace: trace{to: p.Trace},
		}
		if p.Structured() {
			a.schema, a.sampling = p.Schema, inference.Sampling{Temperature: new(0.0)}
			a.form, _ = schema.Parse(p.Schema)
		}
		if err := s.run(ctx, p, &a); err != nil && !a.stopped {
			if cause := ctx.Err(); cause != nil {
				err = cause
			} else {
				s.m.report(false, err.Error())
			}
			yield(inference.Chunk{}, err)
		}
	}
}

// Observe does nothing: pictures are encoded for the request.
func (*session) Observe(inference.Frame) {}

// Close releases the encoded pictures.
func (s *session) Close() error {
	s.pictures = pictures{quality: s.pictures.quality}
	return nil
}

func (s *session) run(ctx context.Context, p inference.Prompt, a *answer) error {
	messages, err := s.messages(p)
	if err != nil {
		return err
	}
	if p.Structured() && !json.Valid(p.Schema) {
		return fmt.Errorf("the prompt's schema is not JSON: %q", shorten(string(p.Schema)))
	}
	if err := s.m.limit.acquire(ctx, a.urgent); err != nil {
		return err
	}
	var good time.Duration // to the first word
	defer func() { s.m.limit.release(good) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := s.m.cfg
	a.start = time.Now()
	whole := time.AfterFunc(answerTimeout(cfg, a.limit), func() { cancel(errAnswerTimeout) })
	defer whole.Stop()
	a.idle = cfg.IdleTimeout
	a.timer = time.AfterFunc(cfg.FirstTokenTimeout, func() { cancel(errWordTimeout) })
	defer a.timer.Stop()

	for attempt := 0; ; attempt++ {
		err := s.attempt(ctx, messages, a)
		if err == nil || a.stopped {
			good = a.first
			return nil
		}
		s.m.slowDown(err, context.Cause(ctx))
		if late := a.late(context.Cause(ctx), cfg); late != nil {
			return late
		}
		again, wait := retry(err, attempt)
		if a.begun || !again || attempt >= cfg.Retries || ctx.Err() != nil {
			return s.m.missing(ctx, err)
		}
		s.m.log.Warn().Err(err).Int("attempt", attempt+1).Int64("retry_in_ms", wait.Milliseconds()).Msg("retrying the model server")
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if late := a.late(context.Cause(ctx), cfg); late != nil {
				return fmt.Errorf("%w; last: %w", late, err)
			}
			return ctx.Err()
		}
	}
}

// slowDown reduces the number of concurrent requests after a failure of an overloaded server.
func (m *Model) slowDown(err, cause error) {
	if refused(err, http.StatusTooManyRequests, http.StatusServiceUnavailable) ||
		errors.Is(cause, errWordTimeout) || errors.Is(cause, errAnswerTimeout) {
		if now, changed := m.limit.cut(m.now()); changed {
			m.log.Warn().Err(err).Int("parallel", now).Int("parallel_most", m.limit.most).
				Msg("model server overloaded; parallelism reduced")
		}
	}
}

// errWordTimeout and errAnswerTimeout are the causes of a context that ended by
// the timeout of the next word or of the whole answer.
var (
	errWordTimeout   = errors.New("timeout of the next word")
	errAnswerTimeout = errors.New("timeout of the answer")
)

// tokenTimeout is the mean time per token above which an answer is given up.
const tokenTimeout = 250 * time.Millisecond

// answerTimeout returns the timeout of an answer, all attempts and reasoning included.
func answerTimeout(cfg Config, tokens int) time.Duration {
	return 3*cfg.FirstTokenTimeout + time.Duration(tokens)*tokenTimeout
}

// messages builds the conversation: the system prompt, then the pictures and the text.
func (s *session) messages(p inference.Prompt) ([]message, error) {
	urls, err := s.pictures.urls(p.Frames)
	if err != nil {
		return nil, err
	}
	parts := make([]part, 0, len(urls)+1)
	for _, u := range urls {
		parts = append(parts, part{Type: "image_url", Picture: &picture{URL: u}})
	}
	if text := escape(strings.ToValidUTF8(cmp.Or(p.Text, p.Instruction), "\uFFFD")); text != "" {
		parts = append(parts, part{Type: "text", Text: text})
	}
	if len(parts) == 0 {
		return nil, errors.New("the prompt has neither picture nor text")
	}
	return []message{
		{Role: "system", Content: strings.TrimSpace(p.System + "\n\n" + inference.AskFor(p.Language))}, {Role: "user", Content: parts},
	}, nil
}

// attempt sends one request and delivers its answer. A request with a schema that is
// refused is repeated without it; if that succeeds, the refusal is remembered. An
// answer that does not follow the schema is repaired once.
func (s *session) attempt(ctx context.Context, messages []message, a *answer) error {
	m := s.m
	name, err := m.modelName(ctx)
	if err != nil {
		return err
	}
	r := request{Messages: messages, Model: name, Stream: true, MaxTokens: a.limit}
	r.sample(a.sampling)
	if a.schema != nil && m.takesSchema(name, m.now()) {
		if r.Format, err = answerFormat(a.schema); err != nil {
			return err
		}
	}
	res, err := m.ask(ctx, r, &a.trace) //nolint:bodyclose // read closes it
	if r.Format != nil && refused(err, http.StatusBadRequest, http.StatusUnprocessableEntity) {
		reason := err
		r.Format = nil
		if res, err = m.ask(ctx, r, &a.trace); err == nil { //nolint:bodyclose // read closes it
			m.noSchema(name, m.now())
			m.log.Warn().Err(reason).Str("model", name).Int64("retry_in_s", int64(schemaRetry.Seconds())).
				Msg("JSON schema refused by the model server")
		}
	}
	if err != nil {
		return err
	}
	if err := a.read(res); err != nil || a.stopped {
		return err
	}
	if a.schema != nil {
		if !m.takesSchema(name, m.now()) {
			r.Format = nil // refused for another answer since then
		}
		if err := m.follow(ctx, r, a); err != nil || a.stopped {
			return err
		}
	}
	m.settle(name)
	m.report(true, fmt.Sprintf("%s on %s, first word after %.2f s", name, m.server, a.first.Seconds()))
	return nil
}

// answer is the state of one answer.
type answer struct {
	m        *Model
	yield    func(inference.Chunk, error) bool
	timer    *time.Timer   // of the next word
	idle     time.Duration // the timeout between two words
	limit    int           // tokens
	urgent   bool
	schema   json.RawMessage // nil for none
	form     *schema.Schema  // nil for a schema with other keywords, which the server alone enforces
	sampling inference.Sampling
	trace    trace
	start    time.Time
	first    time.Duration // to the first word

	whole    strings.Builder // the text of an answer with a schema, which is validated before it is delivered
	filter   thinkFilter
	bytes    int  // of delivered text
	received int  // bytes of text and reasoning
	begun    bool // text or reasoning has arrived
	stopped  bool // by the caller
}

// event holds the relevant fields of one event of the stream, or of an answer without streaming.
type event struct {
	Choices []struct {
		Delta        words  `json:"delta"`
		Message      words  `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Error json.RawMessage `json:"error"`
}

// words is the text of one step. Servers use three names for reasoning.
type words struct {
	Content          string `json:"content"`
	Reasoning        string `json:"reasoning"`
	ReasoningContent string `json:"reasoning_content"`
	Thinking         string `json:"thinking"`
}

func (w words) reasoning() string { return w.Reasoning + w.ReasoningContent + w.Thinking }

// read delivers the answer and closes the response. An answer without an end mark or a finish reason is incomplete.
func (a *answer) read(res *http.Response) (err error) {
	defer res.Body.Close()
	defer func() { a.trace.end(err) }()
	a.filter = thinkFilter{}
	a.whole.Reset()
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil && kind == "application/json" {
		return a.readWhole(res.Body)
	}
	for events := sse.NewReader(res.Body, maxEvent); ; {
		e, end := events.Next()
		if end == nil || errors.Is(end, sse.ErrInside) { // The last event of some servers has no end.
			finished, err := a.event(e)
			if finished || err != nil || a.stopped {
				return a.end(err)
			}
		}
		if errors.Is(end, io.EOF) {
			end = errors.New("the connection was closed before its end")
		}
		if end != nil {
			return a.end(fmt.Errorf("%s: %w: %w", a.m.server, ErrCut, end))
		}
	}
}

// readWhole delivers an answer that the server did not stream.
func (a *answer) readWhole(body io.Reader) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", a.m.server, ErrCut, err)
	}
	_, err = a.data(string(text))
	return a.end(err)
}

// event handles one event; finished reports whether it was the last.
func (a *answer) event(e sse.Event) (finished bool, err error) {
	if e.Type == "error" && len(e.Data) > 0 {
		return false, a.refused(e.Data)
	}
	return a.data(string(e.Data))
}

// refused returns the error of an answer that the server breaks off.
func (a *answer) refused(reason []byte) error {
	return fmt.Errorf("%s: %w in the middle of its answer: %s", a.m.server, ErrRefused, errorText(reason))
}

// data handles the data of one event, or an answer without streaming.
func (a *answer) data(text string) (finished bool, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return false, nil
	}
	if strings.HasPrefix(text, "[DONE]") {
		return true, nil
	}
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		// Some servers put no blank lines between events.
		if lines := strings.Split(text, "\n"); len(lines) > 1 {
			for _, line := range lines {
				if finished, err := a.data(line); finished || err != nil || a.stopped {
					return finished, err
				}
			}
			return false, nil
		}
		return false, fmt.Errorf("%s: %w: expected JSON, got %q", a.m.server, ErrCut, shorten(text))
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return false, a.refused(e.Error)
	}
	if len(e.Choices) == 0 {
		return false, nil // usage figures or keep-alive
	}
	c := e.Choices[0]
	text, reasoning := c.Delta.Content+c.Message.Content, c.Delta.reasoning()+c.Message.reasoning()
	a.received += len(text) + len(reasoning)
	a.trace.answer(text, reasoning)
	if reasoning != "" {
		a.filter.reasoned = true
	}
	if text != "" || reasoning != "" {
		if !a.begun {
			a.begun, a.first = true, time.Since(a.start)
		}
		a.timer.Reset(a.idle)
	}
	if text != "" {
		a.deliver(a.filter.write(text))
	}
	// Some servers do not count reasoning against max_tokens.
	return c.FinishReason != "" || a.received >= a.limit*bytesPerToken, nil
}

// deliver yields text. The timer is stopped while the caller handles it.
func (a *answer) deliver(text string) {
	if text == "" || a.stopped {
		return
	}
	if room := a.limit*bytesPerToken - a.bytes; len(text) > room {
		text = strings.ToValidUTF8(text[:max(room, 0)], "")
		a.m.log.Warn().Int("max_tokens", a.limit).Msg("the model server ignores max_tokens: answer cut")
	}
	a.bytes += len(text)
	if len(a.schema) > 0 {
		a.whole.WriteString(text)
		return
	}
	a.timer.Stop()
	if !a.yield(inference.Chunk{Text: text}, nil) {
		a.stopped = true
		return
	}
	a.timer.Reset(a.idle)
}

// end delivers the rest of the text. An answer of reasoning alone is an error.
func (a *answer) end(err error) error {
	a.deliver(a.filter.flush())
	if err == nil && a.bytes == 0 && a.filter.reasoned && !a.stopped {
		return fmt.Errorf("%s: %w: it spent its %d tokens on thinking; choose a model without reasoning, "+
			"or raise inference.max_tokens (inference.voice.max_tokens for speech)", a.m.server, ErrNoAnswer, a.limit)
	}
	return err
}

// late returns the error of a timeout; nil for another cause.
func (a *answer) late(cause error, cfg Config) error {
	switch {
	case errors.Is(cause, errAnswerTimeout):
		return fmt.Errorf("%s: %w: the answer of at most %d tokens took longer than %v (three times "+
			"inference.remote.first_token_timeout and %v a token); the server is overloaded or the model too slow",
			a.m.server, ErrTimeout, a.limit, answerTimeout(cfg, a.limit), tokenTimeout)
	case !errors.Is(cause, errWordTimeout):
		return nil
	case a.begun:
		return fmt.Errorf("%s: %w: no further word within %v (inference.remote.idle_timeout)",
			a.m.server, ErrTimeout, cfg.IdleTimeout)
	}
	return fmt.Errorf("%s: %w: no word within %v (inference.remote.first_token_timeout)",
		a.m.server, ErrTimeout, cfg.FirstTokenTimeout)
}

// missing converts a refusal into ModelMissingError if the server does not have the model.
func (m *Model) missing(ctx context.Context, err error) error {
	if !refused(err, http.StatusNotFound, http.StatusBadRequest) {
		return err
	}
	m.forget()
	models, _, listErr := m.list(ctx)
	if listErr != nil {
		return err
	}
	if _, chooseErr := m.choose(models); chooseErr != nil {
		return chooseErr
	}
	return err
}

// retry reports whether another attempt may succeed, and the wait before it.
func retry(err error, attempt int) (again bool, wait time.Duration) {
	wait = min(firstBackoff<<min(attempt, 10), maxBackoff)
	wait = wait/2 + rand.N(wait) // so that many bots do not retry in step
	var refusal *statusError
	switch {
	case errors.As(err, &refusal):
		wait = max(wait, refusal.after)
		return refusal.code >= 500 || slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooManyRequests}, refusal.code), wait
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrCut):
		return true, wait
	}
	return false, 0
}
