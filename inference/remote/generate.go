package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/inference/internal/schema"
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
			m: s.m, prompt: p, yield: yield, limit: cmp.Or(max(p.MaxTokens, 0), s.m.maxTokens),
			sampling: p.Sampling, urgent: p.Urgent, trace: trace{to: p.Trace},
		}
		if p.Structured() {
			a.schema, a.sampling = p.Schema, inference.Sampling{Temperature: new(0.0)}
			a.form, _ = schema.Parse(p.Schema)
		}
		if err := s.run(ctx, &a); err != nil && !a.stopped {
			if cause := ctx.Err(); cause != nil {
				err = cause
			} else {
				s.m.failed(err)
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

func (s *session) run(ctx context.Context, a *answer) error {
	if p := a.prompt; p.Structured() && !json.Valid(p.Schema) {
		return fmt.Errorf("the prompt's schema is not JSON: %q", fault.Shorten(string(p.Schema)))
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
		err := s.attempt(ctx, a)
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

// statusOverloaded is Anthropic's status for a server that has too much to do.
const statusOverloaded = 529

// slowDown reduces the number of concurrent requests after a failure of an overloaded server.
func (m *Model) slowDown(err, cause error) {
	if refused(err, http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded) ||
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

// request returns a request with the forms, and the parts that it had in their first form.
func (s *session) request(a *answer, name string, use forms) (r request, sent [numParts]bool, err error) {
	p := a.prompt
	r = request{
		Model: name, Stream: true, MaxTokens: a.limit, Effort: "none", several: len(p.Frames) > 1,
		// Turns thoughts off in models that support it; others ignore it.
		Template: map[string]any{"enable_thinking": false},
	}
	r.sample(a.sampling)
	if a.schema != nil {
		if r.Format, err = answerFormat(a.schema); err != nil {
			return r, sent, err
		}
	}
	sent = s.m.apply(&r, use)
	r.Messages, err = s.messages(p, r.single, r.folded)
	r.Messages = append(r.Messages, a.repair...)
	return r, sent, err
}

// messages builds the conversation: the system prompt, then the pictures and the text.
func (s *session) messages(p inference.Prompt, single, folded bool) ([]message, error) {
	system, text := strings.TrimSpace(p.System+"\n\n"+inference.AskFor(p.Language)), cmp.Or(p.Text, p.Instruction)
	frames := p.Frames
	for _, f := range frames {
		if err := valid(f); err != nil {
			return nil, err
		}
	}
	if single {
		if s.m.cfg.OnePicture == OneGrid {
			text = fmt.Sprintf("The picture shows %d moments, numbered from the oldest to the newest.\n\n%s", len(frames), text)
			frames = []inference.Frame{grid(frames)}
		} else {
			frames = frames[len(frames)-1:]
		}
	}
	urls, err := s.pictures.urls(frames)
	if err != nil {
		return nil, err
	}
	parts := make([]part, 0, len(urls)+1)
	for _, u := range urls {
		parts = append(parts, part{Type: "image_url", Picture: &picture{URL: u}})
	}
	text = escape(strings.ToValidUTF8(text, "\uFFFD"))
	if len(parts) == 0 && text == "" {
		return nil, errors.New("the prompt has neither picture nor text")
	}
	if folded {
		text = strings.TrimSpace(system + "\n\n" + text)
	}
	if text != "" {
		parts = append(parts, part{Type: "text", Text: text})
	}
	user := message{Role: "user", Content: parts}
	if folded {
		return []message{user}, nil
	}
	return []message{{Role: "system", Content: system}, user}, nil
}

// attempt requests an answer and delivers it. An answer that does not follow its schema is repaired once.
func (s *session) attempt(ctx context.Context, a *answer) error {
	m := s.m
	name, err := m.modelName(ctx)
	if err != nil {
		return err
	}
	a.repair = nil
	if err := s.exchange(ctx, name, a); err != nil || a.stopped {
		return err
	}
	if a.schema != nil {
		if err := s.follow(ctx, name, a); err != nil || a.stopped {
			return err
		}
	}
	m.settle(name)
	m.answered(fmt.Sprintf("%s on %s, first word after %.2f s", name, m.server, a.first.Seconds()))
	return nil
}

// exchange sends a request and delivers its answer. A request that is refused for one of its parts is repeated with another form of
// that part. What the server accepts is remembered.
func (s *session) exchange(ctx context.Context, name string, a *answer) error {
	m := s.m
	use, thoughts := m.known(name)
	a.thoughts = thoughts
	var vague, last error // the first of several refusals without a reason, and the one before this try
	for try := 1; ; try++ {
		r, sent, err := s.request(a, name, use)
		if err != nil {
			return err
		}
		if err = s.once(ctx, r, a); err == nil || a.stopped || a.begun || errors.Is(err, ErrNoAnswer) {
			if err == nil || errors.Is(err, ErrNoAnswer) {
				m.accepted(name, sent, use, last, a)
			}
			return err
		}
		refusal, ok := errors.AsType[*statusError](err)
		if !ok {
			return err
		}
		again, named := m.adapt(&use, &r, refusal)
		if named {
			vague = nil
		} else if vague == nil {
			vague = err
		}
		if !again || try == maxTries {
			if vague != nil {
				err = vague
			}
			return err
		}
		last = err
	}
}

// once sends one request and delivers its answer.
func (s *session) once(ctx context.Context, r request, a *answer) error {
	body, err := r.body()
	if err != nil {
		return err
	}
	a.trace.begin(body)
	res, err := s.m.send(ctx, http.MethodPost, "/chat/completions", body)
	if err != nil {
		a.trace.end(err)
		return err
	}
	return a.read(res)
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
