package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"touchline/inference"
)

const (
	// firstBackoff doubles with each attempt up to maxBackoff, and varies by half either way.
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 4 * time.Second
)

// session is one conversation. Every prompt stands for itself: what was said
// before is in its text.
type session struct {
	m        *Model
	pictures pictures
}

// Generate asks the server. The time limits of the settings hold: the first
// word within FirstTokenTimeout, all attempts together, then IdleTimeout
// between two. Thoughts count as words, but an answer with them is bounded: in
// tokens by MaxTokens, in time by mostTime. A server that refuses the connection, answers 408, 429 or 5xx or
// hangs up before its first word is asked again, Retries times. Errors are those of this
// package, *inference.ModelMissingError, or the context's.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		a := answer{m: s.m, yield: yield, limit: s.m.maxTokens}
		if p.MaxTokens > 0 {
			a.limit = p.MaxTokens
		}
		if err := s.run(ctx, p, &a); err != nil && !a.broken {
			if cause := ctx.Err(); cause != nil {
				err = cause
			} else {
				s.m.say(false, err.Error())
			}
			yield(inference.Chunk{}, err)
		}
	}
}

// Observe does nothing: pictures are encoded when they are sent.
func (*session) Observe(inference.Frame) {}

// Close forgets the encoded pictures.
func (s *session) Close() error {
	s.pictures = pictures{quality: s.pictures.quality}
	return nil
}

func (s *session) run(ctx context.Context, p inference.Prompt, a *answer) error {
	messages, err := s.messages(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := s.m.cfg
	a.start = time.Now()
	whole := time.AfterFunc(mostTime(cfg, a.limit), func() { cancel(errTotal) })
	defer whole.Stop()
	a.rest = cfg.IdleTimeout
	a.timer = time.AfterFunc(cfg.FirstTokenTimeout, func() {
		// Which of the two limits it was, the text so far tells.
		cancel(errLimit)
	})
	defer a.timer.Stop()

	for attempt := 0; ; attempt++ {
		err := s.attempt(ctx, messages, a)
		if err == nil || a.broken {
			return nil
		}
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

// errLimit and errTotal are the causes of a context that ended by a time limit
// of ours: for the next word, and for the whole answer.
var (
	errLimit = errors.New("time limit")
	errTotal = errors.New("time limit of the answer")
)

// slowestToken is the rate below which a model is too slow for an answer to be
// worth waiting for.
const slowestToken = 250 * time.Millisecond

// mostTime bounds an answer, all attempts and thoughts included.
func mostTime(cfg Config, tokens int) time.Duration {
	return 3*cfg.FirstTokenTimeout + time.Duration(tokens)*slowestToken
}

// messages builds the conversation: the standing order, then the pictures and the words that go with them.
func (s *session) messages(p inference.Prompt) ([]openai.ChatCompletionMessageParamUnion, error) {
	urls, err := s.pictures.urls(p.Frames)
	if err != nil {
		return nil, err
	}
	var out []openai.ChatCompletionMessageParamUnion
	out = append(out, openai.SystemMessage(strings.TrimSpace(p.System+"\n\n"+inference.AskFor(p.Language))))
	parts := make([]openai.ChatCompletionContentPartUnionParam, 0, len(urls)+1)
	for _, u := range urls {
		parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: u}))
	}
	text := p.Text
	if text == "" {
		text = p.Instruction
	}
	if text = plain(strings.ToValidUTF8(text, "\uFFFD")); text != "" {
		parts = append(parts, openai.TextContentPart(text))
	}
	if len(parts) == 0 {
		return nil, errors.New("expected a picture or a text to ask about, got neither")
	}
	return append(out, openai.UserMessage(parts)), nil
}

// attempt sends one request and delivers its answer.
func (s *session) attempt(ctx context.Context, messages []openai.ChatCompletionMessageParamUnion, a *answer) error {
	m := s.m
	name, err := m.modelName(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	noTemplate := m.noTemplate
	m.mu.Unlock()
	opts := []option.RequestOption{
		option.WithJSONSet("stream", true),
		option.WithJSONSet("max_tokens", a.limit),
	}
	if !noTemplate {
		// Models that can be told not to think are told so; the others ignore it.
		opts = append(opts, option.WithJSONSet("chat_template_kwargs", map[string]any{"enable_thinking": false}))
	}
	var res *http.Response
	_, err = m.chat.New(ctx, openai.ChatCompletionNewParams{Model: name, Messages: messages},
		append(opts, option.WithResponseBodyInto(&res))...)
	if err != nil {
		var api *openai.Error
		if !noTemplate && errors.As(err, &api) && api.StatusCode < 500 &&
			strings.Contains(api.Message, "chat_template_kwargs") {
			m.mu.Lock()
			m.noTemplate = true
			m.mu.Unlock()
			return s.attempt(ctx, messages, a)
		}
		return m.explain(ctx, err)
	}
	defer res.Body.Close()
	if err := a.read(res); err != nil || a.broken {
		return err
	}
	m.settle(name)
	m.mu.Lock()
	m.firstWord = a.first
	m.mu.Unlock()
	m.say(true, fmt.Sprintf("%s on %s, first word after %.2f s", name, m.server, a.first.Seconds()))
	return nil
}

// answer is one answer on its way to the caller.
type answer struct {
	m     *Model
	yield func(inference.Chunk, error) bool
	timer *time.Timer
	rest  time.Duration // the limit between two words
	limit int           // tokens
	start time.Time
	first time.Duration // to the first word

	filter thinkFilter
	bytes  int  // of text passed on
	heard  int  // bytes of text and thoughts that came
	begun  bool // the model has said something, aloud or in thought
	broken bool // the caller wants no more
}

// event is what matters of one event of the stream, or of a whole answer that was not streamed.
type event struct {
	Choices []struct {
		Delta        words  `json:"delta"`
		Message      words  `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Error json.RawMessage `json:"error"`
}

// words are the text of one step. Servers have three names for what is only thought.
type words struct {
	Content          string `json:"content"`
	Reasoning        string `json:"reasoning"`
	ReasoningContent string `json:"reasoning_content"`
	Thinking         string `json:"thinking"`
}

// read delivers the answer. Without an end mark or a finish reason it was cut off.
func (a *answer) read(res *http.Response) error {
	a.filter = thinkFilter{}
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil && kind == "application/json" {
		return a.readWhole(res.Body)
	}
	// The blank line at the end releases a last event that a server did not finish with one.
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(res.Body, strings.NewReader("\n\n")), res.Body}
	events := ssestream.NewDecoder(res)
	for events.Next() {
		finished, err := a.event(events.Event().Data)
		if err != nil {
			return a.end(err)
		}
		if finished || a.broken {
			return a.end(nil)
		}
	}
	err := events.Err()
	if err == nil {
		err = errors.New("the connection was closed before its end")
	}
	return a.end(fmt.Errorf("%s: %w: %w", a.m.server, ErrCut, err))
}

// readWhole takes an answer that came in one piece although a stream was asked for.
func (a *answer) readWhole(body io.Reader) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", a.m.server, ErrCut, err)
	}
	if _, err := a.event(text); err != nil {
		return a.end(err)
	}
	return a.end(nil)
}

// event takes one event's data; finished when it was the last.
func (a *answer) event(data []byte) (finished bool, err error) {
	text := strings.TrimSpace(string(data))
	if text == "" {
		return false, nil
	}
	if strings.HasPrefix(text, "[DONE]") {
		return true, nil
	}
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		// Events that a server did not part with blank lines come as one.
		if lines := strings.Split(text, "\n"); len(lines) > 1 {
			for _, line := range lines {
				if finished, err := a.event([]byte(line)); finished || err != nil || a.broken {
					return finished, err
				}
			}
			return false, nil
		}
		return false, fmt.Errorf("%s: %w: expected JSON, got %q", a.m.server, ErrCut, shorten(text))
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return false, fmt.Errorf("%s: %w in the middle of its answer: %s", a.m.server, ErrRefused, errorText(e.Error))
	}
	if len(e.Choices) == 0 {
		return false, nil // Figures of use, keep-alive.
	}
	c := e.Choices[0]
	said := c.Delta.Content + c.Message.Content
	thought := c.Delta.Reasoning + c.Delta.ReasoningContent + c.Delta.Thinking +
		c.Message.Reasoning + c.Message.ReasoningContent + c.Message.Thinking
	a.heard += len(said) + len(thought)
	if thought != "" {
		a.filter.thought = true
		a.alive()
	}
	if said != "" {
		a.alive()
		a.deliver(a.filter.write(said))
	}
	// A server that counts no thoughts against max_tokens may think for ever.
	return c.FinishReason != "" || a.heard >= a.limit*bytesPerToken, nil
}

// alive notes that the model works: from now on the shorter limit holds.
func (a *answer) alive() {
	if !a.begun {
		a.begun = true
		a.first = time.Since(a.start)
	}
	a.timer.Reset(a.rest)
}

// deliver hands text to the caller; the time it takes is not the server's.
func (a *answer) deliver(text string) {
	if text == "" || a.broken {
		return
	}
	if room := a.limit*bytesPerToken - a.bytes; len(text) > room {
		text = strings.ToValidUTF8(text[:max(room, 0)], "")
		a.m.log.Warn().Int("max_tokens", a.limit).Msg("the model server ignores max_tokens: answer cut")
	}
	a.bytes += len(text)
	a.timer.Stop()
	if !a.yield(inference.Chunk{Text: text}, nil) {
		a.broken = true
		return
	}
	a.timer.Reset(a.rest)
}

// end delivers what was held back, and tells an empty answer from a silent one.
func (a *answer) end(err error) error {
	a.deliver(a.filter.flush())
	if err == nil && a.bytes == 0 && a.filter.thought && !a.broken {
		return fmt.Errorf("%s: %w: it spent its %d tokens on thinking; choose a model that does not think, "+
			"or raise inference.max_tokens, where it speaks inference.voice.max_tokens", a.m.server, ErrNoAnswer, a.limit)
	}
	return err
}

// late returns the error of the time limit that was the cause of the end; nil for another cause.
func (a *answer) late(cause error, cfg Config) error {
	switch {
	case errors.Is(cause, errTotal):
		return fmt.Errorf("%s: %w: the answer of at most %d tokens took longer than %v (three times "+
			"inference.remote.first_token_timeout and %v a token); the server is overloaded or the model too slow",
			a.m.server, ErrTimeout, a.limit, mostTime(cfg, a.limit), slowestToken)
	case !errors.Is(cause, errLimit):
		return nil
	case a.begun:
		return fmt.Errorf("%s: %w: expected the next word within %v (inference.remote.idle_timeout)",
			a.m.server, ErrTimeout, cfg.IdleTimeout)
	}
	return fmt.Errorf("%s: %w: expected the first word within %v (inference.remote.first_token_timeout)",
		a.m.server, ErrTimeout, cfg.FirstTokenTimeout)
}

// statusError is a refusal with its HTTP status.
type statusError struct {
	code  int
	text  string
	after time.Duration // Retry-After
}

// Error gives the status and what the server said.
func (e *statusError) Error() string {
	text := strconv.Itoa(e.code) + " " + http.StatusText(e.code)
	if e.text != "" {
		text += ": " + e.text
	}
	return text
}

// explain turns an error of the library into one of ours.
func (m *Model) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		// Our own limit or the caller's: the cause tells.
		return fmt.Errorf("%s: %w: %w", m.server, ErrTimeout, context.Cause(ctx))
	}
	var api *openai.Error
	if errors.As(err, &api) {
		refusal := &statusError{code: api.StatusCode, text: api.Message}
		if api.Response != nil {
			if s, err := strconv.Atoi(api.Response.Header.Get("Retry-After")); err == nil && s >= 0 && s < 3600 {
				refusal.after = time.Duration(s) * time.Second
			}
		}
		return fmt.Errorf("%s: %w: %w", m.server, ErrRefused, refusal)
	}
	var u *url.Error
	if errors.As(err, &u) {
		return fmt.Errorf("%s: %w: %w", m.server, ErrUnreachable, u.Err)
	}
	return fmt.Errorf("%s: %w: %w", m.server, ErrCut, err)
}

// missing turns a refusal into ModelMissingError where the reason is that the server lacks the model.
func (m *Model) missing(ctx context.Context, err error) error {
	var refusal *statusError
	if !errors.As(err, &refusal) || (refusal.code != http.StatusNotFound && refusal.code != http.StatusBadRequest) {
		return err
	}
	m.forget()
	models, listErr := m.list(ctx)
	if listErr != nil {
		return err
	}
	if _, chooseErr := m.choose(models); chooseErr != nil {
		return chooseErr
	}
	return err
}

// retry reports whether a new attempt may help, and when.
func retry(err error, attempt int) (again bool, wait time.Duration) {
	wait = min(firstBackoff<<min(attempt, 10), maxBackoff)
	wait = wait/2 + rand.N(wait) // Many bots must not come back together.
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

// errorText finds the message in {"error": {"message"}}, {"error": "..."}, {"message"}, {"detail"} or plain text.
func errorText(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return shorten(text)
	}
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(raw, &shape) == nil {
		switch {
		case len(shape.Error) > 0 && string(shape.Error) != "null":
			return errorText(shape.Error)
		case shape.Message != "":
			return shorten(shape.Message)
		case len(shape.Detail) > 0:
			return errorText(shape.Detail)
		}
	}
	return shorten(string(raw))
}

// shorten makes a server's words fit a log line.
func shorten(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + "…"
	}
	return s
}
