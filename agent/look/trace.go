package look

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/media/window"
)

// Trace is one prompt with its answer, verbatim, so that people who steer can see the reason for a comment.
type Trace struct {
	ID uint64 `json:"id"`
	// Kind is one of the constants TraceComment to TraceNext.
	Kind string `json:"kind"`
	// Cycle is the number of the look's cycle; 0 for looks with rules and trials.
	Cycle  uint64    `json:"cycle,omitempty"`
	At     time.Time `json:"at"`
	Engine string    `json:"engine"`
	// Pictures are the pictures of the prompt, oldest first; /frames/{id} serves the pictures of comments.
	Pictures []TracePicture `json:"pictures"`

	// System to Schema are the prompt and its settings, as the engine gets them; 0 and "" are the engine's own.
	System     string             `json:"system"`
	Text       string             `json:"text"`
	MaxTokens  int                `json:"max_tokens,omitempty"`
	MaxSlices  int                `json:"max_slices,omitempty"`
	Language   string             `json:"language,omitempty"`
	Spoken     bool               `json:"spoken"`
	Structured bool               `json:"structured"`
	Sampling   inference.Sampling `json:"sampling"`
	Schema     json.RawMessage    `json:"schema,omitempty"`

	// Exchanges are the exchanges with the model; empty for an engine without one.
	Exchanges []inference.Exchange `json:"exchanges,omitempty"`
	// Answer is the engine's whole answer.
	Answer string `json:"answer"`
	Error  string `json:"error,omitempty"`
	// FirstWordSec and AnswerSec count from At; FirstWordSec is 0 without a word.
	FirstWordSec float64 `json:"first_word_sec"`
	AnswerSec    float64 `json:"answer_sec"`
	// Outcome and Reason are copied from the cycle's Record; "" before it ends, and for looks with rules.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Cut is set if a text was too long to be kept whole.
	Cut bool `json:"cut,omitempty"`

	by      string    // who gave the instruction
	written time.Time // when the prompt was, which may be tried again
}

// Quotes reports whether the prompt quotes what people said.
func (t *Trace) Quotes() bool { return strings.Contains(t.Text, prompt.RemarksNote) }

// said reports whether the prompt has what a participant may have said, or any participant if the identity is "".
func (t *Trace) said(identity string) bool { return t.Quotes() || prompt.GaveInRoom(t.by, identity) }

// TracePicture is a picture of a Trace.
type TracePicture struct {
	ID     uint64    `json:"id"`
	At     time.Time `json:"at"` // of its arrival
	Width  int       `json:"width"`
	Height int       `json:"height"`
}

// Kinds of a Trace.
const (
	TraceComment = "comment"
	TraceRetry   = "retry" // the second try of a comment that repeats one
	TraceRules   = "rules" // with alert rules
	TraceTrial   = "trial" // of one alert rule
	TraceNext    = "next"  // a preview of the next comment's prompt
)

// Bounds of the looks that are kept.
const (
	maxTraces     = 20       // of each kind
	maxTraceBytes = 1 << 20  // of all
	maxTextBytes  = 64 << 10 // of each text
	maxExchanges  = 6        // of each look, the last ones
)

// newTrace returns a look at pictures before its answer.
func newTrace(kind string, cycle uint64, engine string, frames []window.Frame, p inference.Prompt, now time.Time) Trace {
	t := Trace{
		Kind: kind, Cycle: cycle, At: now, Engine: engine, by: p.InstructionBy, Pictures: make([]TracePicture, len(frames)),
		System: p.System, Text: p.Text, MaxTokens: p.MaxTokens, MaxSlices: p.MaxSlices, Language: p.Language, Spoken: p.Speech,
		Structured: p.Structured(), Sampling: p.Sampling, Schema: p.Schema,
	}
	for i, f := range frames {
		t.Pictures[i] = TracePicture{f.ID, f.Arrival, f.Width, f.Height}
	}
	return t
}

// traces keeps the last looks. The zero value is empty.
type traces struct {
	mu        sync.Mutex
	count     uint64
	kept      []Trace // oldest first
	forgotten time.Time
}

// add keeps a look that has ended.
func (r *traces) add(t Trace) {
	t.Exchanges = t.Exchanges[max(0, len(t.Exchanges)-maxExchanges):]
	t.shorten()
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.said("") && !t.written.After(r.forgotten) {
		return
	}
	r.count++
	t.ID = r.count
	r.kept = append(r.kept, t)
	same, total := 0, 0
	for i := range slices.Backward(r.kept) {
		if r.kept[i].Kind != t.Kind {
			continue
		}
		if same++; same > maxTraces {
			r.kept = slices.Delete(r.kept, i, i+1)
			break
		}
	}
	for i := range slices.Backward(r.kept) {
		if total += r.kept[i].size(); total > maxTraceBytes && i < len(r.kept)-1 {
			r.kept = slices.Delete(r.kept, 0, i+1)
			return
		}
	}
}

// forget removes the looks that quote people, and those with an instruction of the identity by, or of any participant if it is "". Those
// whose answers are not complete are not kept either.
func (r *traces) forget(by string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgotten = now
	r.kept = slices.DeleteFunc(r.kept, func(t Trace) bool { return t.said(by) })
}

// texts returns the texts of a look whose length is not bounded elsewhere.
func (t *Trace) texts() []*string {
	out := []*string{&t.System, &t.Text, &t.Answer, &t.Error}
	for i := range t.Exchanges {
		x := &t.Exchanges[i]
		out = append(out, &x.Request, &x.Reasoning, &x.Answer, &x.Error)
	}
	return out
}

func (t *Trace) shorten() {
	for _, text := range t.texts() {
		if len(*text) > maxTextBytes {
			*text, t.Cut = strings.ToValidUTF8((*text)[:maxTextBytes], "")+"…", true
		}
	}
}

func (t *Trace) size() int {
	total := len(t.Schema)
	for _, text := range t.texts() {
		total += len(*text)
	}
	return total
}

// Ended sets the outcome of a cycle in its traces. Attempts before the last one get OutcomeRepeated.
func (r *traces) Ended(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	outcome, reason := rec.Outcome, rec.Reason
	for i := range slices.Backward(r.kept) {
		if t := &r.kept[i]; t.Cycle == rec.Cycle {
			t.Outcome, t.Reason = outcome, reason
			outcome, reason = OutcomeRepeated, ""
		}
	}
}

// Traces returns the last looks at the pictures, newest first: 20 of each kind, fewer if they are long.
func (r *traces) Traces() []Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.kept)
	slices.Reverse(out)
	return out
}

// NextPrompt returns the prompt of a cycle that begins now, with the pictures sampled so far; the cycle adds the newest, on which
// its hint about the length depends. It changes no state. Its outcome is OutcomeSkipped if the engine would not be asked. The
// error is ErrNoPicture.
func (l *Loop) NextPrompt() (Trace, error) {
	task := l.now()
	frames := l.picture.Select(task.Agent.Frames, task.Agent.Stride)
	if len(frames) == 0 {
		return Trace{}, ErrNoPicture
	}
	sign := window.Sign(frames[len(frames)-1].VideoFrame) // reads the whole picture: without the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	change := window.Difference(l.lastSign, sign)
	t := newTrace(TraceNext, l.number+1, l.engine.Name(), frames, l.promptLocked(frames, change, l.task.Spoken, now), now)
	if l.unchangedLocked(change) {
		t.Outcome, t.Reason = OutcomeSkipped, sceneUnchanged
	}
	return t, nil
}

// ask yields an engine's answer to a prompt that was written at a time, and keeps both as a look at the pictures.
func (r *traces) ask(
	ctx context.Context, engine inference.Session, name, kind string, cycle uint64, frames []window.Frame, p inference.Prompt,
	written time.Time,
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		began := time.Now()
		t := newTrace(kind, cycle, name, frames, p, began)
		t.written = written
		p.Trace = func(x inference.Exchange) { t.Exchanges = append(t.Exchanges, x) }
		var answer strings.Builder
		keep := sync.OnceFunc(func() {
			t.Answer, t.AnswerSec = answer.String(), time.Since(began).Seconds()
			if t.Error == "" && ctx.Err() != nil {
				t.Error = context.Cause(ctx).Error()
			}
			r.add(t)
		})
		defer keep()
		for c, err := range engine.Generate(ctx, p) {
			if err != nil {
				t.Error = causeOf(ctx, err).Error()
			}
			if c.Text != "" && answer.Len() == 0 {
				t.FirstWordSec = time.Since(began).Seconds()
			}
			answer.WriteString(c.Text)
			if c.TextEnds {
				keep() // before the outcome of the cycle
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// text returns the text of an answer.
func (r *traces) text(
	ctx context.Context, engine inference.Session, name, kind string, frames []window.Frame, p inference.Prompt,
) (string, error) {
	var b strings.Builder
	for chunk, err := range r.ask(ctx, engine, name, kind, 0, frames, p, time.Now()) {
		if err != nil {
			return "", causeOf(ctx, err)
		}
		b.WriteString(chunk.Text)
	}
	return b.String(), causeOf(ctx, ctx.Err())
}
