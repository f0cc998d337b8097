package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/inference/internal/schema"
	"touchline/internal/sse"
)

// answer is the state of one answer.
type answer struct {
	m        *Model
	prompt   inference.Prompt
	repair   []message // after the prompt: a wrong answer and its fault
	yield    func(inference.Chunk, error) bool
	thoughts unopenedState // of the model
	timer    *time.Timer   // of the next word
	idle     time.Duration // the timeout between two words
	limit    int           // tokens
	urgent   bool
	schema   json.RawMessage // nil for none
	form     *schema.Schema  // nil for a schema with other keywords, which the server alone enforces
	sampling inference.Sampling
	trace    trace
	start    time.Time
	grace    *time.Timer   // closes the response after the last words
	first    time.Duration // to the first word

	whole    strings.Builder // the text of an answer with a schema, which is validated before it is delivered
	filter   thinkFilter
	high     string  // the first half of a character whose second half is in the next event
	reason   string  // finish_reason
	refusal  string  // the model's own words
	foreign  string  // an event without any field of an answer
	choice   *number // the first index
	bytes    int     // of delivered text
	received int     // bytes of text and reasoning
	begun    bool    // text or reasoning has arrived
	apart    bool    // reasoning has arrived in a field of its own
	stopped  bool    // by the caller
}

// read delivers the answer and closes the response. Its first byte shows its form, because servers and proxies declare
// another one. An answer without an end mark or a finish reason is incomplete.
func (a *answer) read(res *http.Response) (err error) {
	defer res.Body.Close()
	defer func() { a.trace.end(err) }()
	a.grace = time.AfterFunc(time.Hour, func() { _ = res.Body.Close() })
	defer a.grace.Stop()
	a.filter = thinkFilter{hold: a.thoughts != unopenedNever || a.schema != nil, form: a.schema != nil}
	a.high, a.reason, a.refusal, a.foreign, a.apart, a.choice = "", "", "", "", false, nil
	a.whole.Reset()
	in := bufio.NewReader(res.Body)
	head := beginning(in)
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		kind = "no content type"
	}
	switch {
	case bytes.HasPrefix(head, []byte("<")):
		err = fmt.Errorf("%s: %w: expected JSON or events, got %s: %q", a.m.server, ErrCut, kind, fault.Shorten(string(head)))
	case len(head) > 0 && (head[0] == '{' || head[0] == '['), kind == "application/json" && !isEvents(head):
		err = a.readJSON(in, head)
	default:
		err = a.readEvents(in)
	}
	switch {
	case a.reason != "": // what follows the end does not matter
		err = nil
	case a.foreign != "" && a.received == 0 && !errors.Is(err, ErrRefused):
		err = a.refused([]byte(a.foreign))
	}
	return a.end(err)
}

// lastWords is the time for further words after some that came with a finish reason.
const lastWords = 2 * time.Second

// beginning skips blanks and a byte order mark, and returns as much of a body as is there.
func beginning(in *bufio.Reader) []byte {
	for {
		c, err := in.Peek(1)
		if err == nil && c[0] == 0xEF {
			if mark, _ := in.Peek(3); string(mark) == "\uFEFF" {
				_, _ = in.Discard(3)
				continue
			}
		}
		if err != nil || !strings.ContainsRune(" \t\r\n", rune(c[0])) {
			head, _ := in.Peek(min(in.Buffered(), 512))
			return bytes.Clone(head)
		}
		_, _ = in.Discard(1)
	}
}

// isEvents reports whether a body begins with a field or a comment of server-sent events.
func isEvents(head []byte) bool {
	name, _, found := bytes.Cut(head, []byte(":"))
	return found && slices.Contains([]string{"", "data", "event", "id", "retry"}, string(name))
}

func (a *answer) readEvents(in io.Reader) error {
	for events := sse.NewReader(in, maxEvent); ; {
		e, end := events.Next()
		if end == nil || errors.Is(end, sse.ErrInside) { // The last event of some servers has no end.
			finished, err := a.event(e)
			if finished || err != nil || a.stopped {
				return err
			}
		}
		if errors.Is(end, io.EOF) {
			end = errors.New("the connection was closed before its end")
		}
		if end != nil {
			return fmt.Errorf("%s: %w: %w", a.m.server, ErrCut, end)
		}
	}
}

// readJSON delivers an answer in one JSON value, or in one after the other. head is its beginning.
func (a *answer) readJSON(in io.Reader, head []byte) error {
	values := json.NewDecoder(in)
	for n := 0; ; n++ {
		var value json.RawMessage
		err := values.Decode(&value)
		switch _, syntax := errors.AsType[*json.SyntaxError](err); {
		case errors.Is(err, io.EOF) && n == 1:
			return nil
		case errors.Is(err, io.EOF) && n > 1:
			return fmt.Errorf("%s: %w: the connection was closed before its end", a.m.server, ErrCut)
		case syntax, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%s: %w: expected JSON, got %q", a.m.server, ErrCut, fault.Shorten(string(head)))
		case err != nil:
			return fmt.Errorf("%s: %w: %w", a.m.server, ErrCut, err)
		}
		if finished, err := a.data(string(value)); finished || err != nil || a.stopped {
			return err
		}
	}
}

// event handles one event; finished reports whether it was the last.
func (a *answer) event(e sse.Event) (finished bool, err error) {
	if e.Type == "error" && len(e.Data) > 0 {
		return false, a.refused(e.Data)
	}
	if finished, err = a.data(string(e.Data)); err != nil {
		return finished, err
	}
	return finished || a.received > 0 && (e.Type == "done" || e.Type == "end"), nil
}

// refused returns the error of an answer that the server breaks off.
func (a *answer) refused(reason []byte) error {
	return fmt.Errorf("%s: %w in the middle of its answer: %w", a.m.server, ErrRefused,
		&statusError{code: innerCode(reason), text: fault.Text(reason), whole: string(reason), inside: true})
}

// data handles the data of one event, or an answer without streaming.
func (a *answer) data(text string) (finished bool, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return false, nil
	}
	if endWord.MatchString(text) {
		return true, nil
	}
	if !strings.ContainsAny(text, "{[\"") && text != "null" { // such as a ping
		if !aliveWord.MatchString(text) {
			a.foreign = text
		}
		return false, nil
	}
	text, a.high = joinSurrogates(text, a.high)
	if list := []json.RawMessage(nil); text[0] == '[' && json.Unmarshal([]byte(text), &list) == nil {
		return several(a, list)
	}
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		// Some servers put no blank lines between events, or several events in a line.
		if lines := eventStart.Split(text, -1); len(lines) > 1 {
			return several(a, lines)
		}
		return false, fmt.Errorf("%s: %w: expected JSON, got %q", a.m.server, ErrCut, fault.Shorten(text))
	}
	if e.failed() {
		return false, a.refused([]byte(text))
	}
	if e = e.unwrapped(); e.foreign() {
		a.foreign = text
	}
	text, reasoning, reason := a.take(e)
	a.received += len(text) + len(reasoning)
	a.trace.answer(text, reasoning)
	a.apart = a.apart || reasoning != ""
	if text != "" || reasoning != "" {
		if !a.begun {
			a.begun, a.first = true, time.Since(a.start)
		}
		a.timer.Reset(a.idle)
	}
	if text != "" {
		a.deliver(a.filter.write(text))
	}
	a.reason = cmp.Or(reason, a.reason)
	if a.received >= a.limit*bytesPerToken { // Some servers do not count reasoning against max_tokens.
		a.reason = cmp.Or(reason, "length")
		return true, nil
	}
	if a.reason != "" && text+reasoning != "" { // Gateways to Gemini send a reason with each event.
		a.grace.Reset(lastWords)
		return false, nil
	}
	return a.reason != "", nil
}

// endWord is the data of an event after the last one of an answer.
var endWord = regexp.MustCompile(`(?i)^"?(?:\[(?:DONE|END)\]|DONE$|<\|end)`)

// aliveWord is the data of an event that keeps the connection open.
var aliveWord = regexp.MustCompile(`(?i)^(?:ping|pong|keep[-_ ]?alive|heartbeat|connected|ok)$`)

// eventStart separates events that came as one.
var eventStart = regexp.MustCompile(`\n|\s*data:`)

// several handles the events of a list.
func several[T string | json.RawMessage](a *answer, events []T) (finished bool, err error) {
	for _, e := range events {
		if finished, err := a.data(string(e)); finished || err != nil || a.stopped {
			return finished, err
		}
	}
	return false, nil
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

// end delivers the rest of the text. An answer without words is an error.
func (a *answer) end(err error) error {
	rest := a.filter.flush()
	if a.filter.hold && a.thoughts == unopenedCloses && (err != nil || a.outOfTokens()) {
		rest, a.filter.reasoned = "", true // cut off before the closing mark
	}
	a.deliver(rest)
	if err == nil && a.bytes == 0 && !a.stopped {
		if reason := a.silence(); reason != "" {
			return fmt.Errorf("%s: %w: %s", a.m.server, ErrNoAnswer, reason)
		}
	}
	return err
}

// outOfTokens reports whether the answer ended at its limit.
func (a *answer) outOfTokens() bool {
	return slices.Contains([]string{"length", "max_tokens", "model_length"}, strings.ToLower(a.reason))
}

// silence returns the reason of an answer without words; "" for an empty answer to a schema, which is repaired.
func (a *answer) silence() string {
	reasoned := a.filter.reasoned || a.apart
	switch reason := strings.ToLower(a.reason); {
	case a.refusal != "":
		return "it refused: " + fault.Shorten(a.refusal)
	case strings.Contains(reason, "filter"), strings.Contains(reason, "safety"), reason == "refusal", reason == "recitation":
		return fmt.Sprintf("a content filter stopped it (finish_reason %s); change the instruction or the server's filter", a.reason)
	case a.filter.called, reason == "tool_calls", reason == "function_call", reason == "tool_use":
		return "it called a tool instead of answering; switch tools off on the server, or choose another model"
	case a.outOfTokens() && (reasoned || a.schema == nil): // some models think without a word of it
		return fmt.Sprintf("it spent its %d tokens on thinking; choose a model without reasoning, "+
			"or raise inference.max_tokens (inference.voice.max_tokens for speech)", a.limit)
	case a.apart:
		return "all of its answer is in the field for reasoning; change the server's reasoning parser (vLLM: --reasoning-parser) " +
			"or its switch for thinking (Ollama: think)"
	case reasoned:
		return "it ended after its thoughts; choose a model without reasoning"
	case a.schema != nil:
		return ""
	}
	return fmt.Sprintf("its answer is empty (finish_reason %s); check its chat template on the server, or choose another model",
		cmp.Or(a.reason, "none"))
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
