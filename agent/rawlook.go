package agent

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/media/window"
)

// RawLook is one prompt with its answer, both as they were, for people who steer and want to see why.
type RawLook struct {
	ID uint64 `json:"id"`
	// Kind is one of the constants LookComment to LookNext.
	Kind string `json:"kind"`
	// Cycle that the look is of; 0 for looks with rules and trials.
	Cycle  uint64    `json:"cycle,omitempty"`
	At     time.Time `json:"at"`
	Engine string    `json:"engine"`
	// Pictures of the prompt, oldest first; /frames/{id} has those of comments.
	Pictures []RawPicture `json:"pictures"`

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

	// Exchanges with the model, which is none for an engine without one.
	Exchanges []inference.Exchange `json:"exchanges,omitempty"`
	// Answer is the engine's whole answer.
	Answer string `json:"answer"`
	Error  string `json:"error,omitempty"`
	// FirstWordSec and AnswerSec count from At; FirstWordSec is 0 without a word.
	FirstWordSec float64 `json:"first_word_sec"`
	AnswerSec    float64 `json:"answer_sec"`
	// Outcome and Reason are those of the cycle's Record; "" before it ends, and for looks with rules.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Cut is set if a text was too long to be kept whole.
	Cut bool `json:"cut,omitempty"`
}

// RawPicture is a picture of a RawLook.
type RawPicture struct {
	ID     uint64    `json:"id"`
	At     time.Time `json:"at"` // of its arrival
	Width  int       `json:"width"`
	Height int       `json:"height"`
}

// Kinds of a RawLook.
const (
	LookComment = "comment"
	LookRetry   = "retry" // the second try of a comment that repeats one
	LookRules   = "rules" // with alert rules
	LookTrial   = "trial" // of one alert rule
	LookNext    = "next"  // a preview of the next comment's prompt
)

// Bounds of the looks that are kept.
const (
	keptLooks     = 20       // of each kind
	keptLookBytes = 1 << 20  // of all
	keptTextBytes = 64 << 10 // of each text
	keptExchanges = 6        // of each look, the last ones
)

// newRawLook returns a look at pictures before its answer.
func newRawLook(kind string, cycle uint64, engine string, frames []window.Frame, p inference.Prompt, now time.Time) RawLook {
	l := RawLook{
		Kind: kind, Cycle: cycle, At: now, Engine: engine, Pictures: make([]RawPicture, len(frames)),
		System: p.System, Text: p.Text, MaxTokens: p.MaxTokens, MaxSlices: p.MaxSlices, Language: p.Language, Spoken: p.Speech,
		Structured: p.Structured(), Sampling: p.Sampling, Schema: p.Schema,
	}
	for i, f := range frames {
		l.Pictures[i] = RawPicture{f.ID, f.Arrival, f.Width, f.Height}
	}
	return l
}

// rawLooks keeps the last looks. The zero value is empty.
type rawLooks struct {
	mu    sync.Mutex
	count uint64
	kept  []RawLook // oldest first
}

// add keeps a look that has ended.
func (r *rawLooks) add(l RawLook) {
	l.Exchanges = l.Exchanges[max(0, len(l.Exchanges)-keptExchanges):]
	l.shorten()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	l.ID = r.count
	r.kept = append(r.kept, l)
	same, total := 0, 0
	for i := range slices.Backward(r.kept) {
		if r.kept[i].Kind != l.Kind {
			continue
		}
		if same++; same > keptLooks {
			r.kept = slices.Delete(r.kept, i, i+1)
			break
		}
	}
	for i := range slices.Backward(r.kept) {
		if total += r.kept[i].size(); total > keptLookBytes && i < len(r.kept)-1 {
			r.kept = slices.Delete(r.kept, 0, i+1)
			return
		}
	}
}

// texts returns the texts of a look whose length is not bounded elsewhere.
func (l *RawLook) texts() []*string {
	out := []*string{&l.System, &l.Text, &l.Answer, &l.Error}
	for i := range l.Exchanges {
		x := &l.Exchanges[i]
		out = append(out, &x.Request, &x.Reasoning, &x.Answer, &x.Error)
	}
	return out
}

func (l *RawLook) shorten() {
	for _, text := range l.texts() {
		if len(*text) > keptTextBytes {
			*text, l.Cut = strings.ToValidUTF8((*text)[:keptTextBytes], "")+"…", true
		}
	}
}

func (l *RawLook) size() int {
	total := len(l.Schema)
	for _, text := range l.texts() {
		total += len(*text)
	}
	return total
}

// end sets the outcome of a cycle's look. A first try that was followed by another is repeated.
func (r *rawLooks) end(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	outcome, reason := rec.Outcome, rec.Reason
	for i := range slices.Backward(r.kept) {
		if l := &r.kept[i]; l.Cycle == rec.Cycle {
			l.Outcome, l.Reason = outcome, reason
			outcome, reason = OutcomeRepeated, ""
		}
	}
}

// Looks returns the last looks at the pictures, newest first: 20 of each kind, fewer if they are long.
func (s *Session) Looks() []RawLook {
	s.raw.mu.Lock()
	defer s.raw.mu.Unlock()
	out := slices.Clone(s.raw.kept)
	slices.Reverse(out)
	return out
}

// NextPrompt returns the prompt of a cycle that begins now, with the pictures sampled so far; the cycle adds the newest, on which
// its hint about the length depends. It changes no state. Its outcome is OutcomeSkipped if the engine would not be asked. The
// error is ErrNoPicture.
func (s *Session) NextPrompt() (RawLook, error) {
	var frames []window.Frame
	s.locked(func() { frames = s.picture.look(s.live.Agent.Frames, s.live.Agent.Stride) })
	if len(frames) == 0 {
		return RawLook{}, ErrNoPicture
	}
	sign := window.Sign(frames[len(frames)-1].VideoFrame) // reads the whole picture: without the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	change := window.Difference(s.lastSign, sign)
	l := newRawLook(LookNext, s.cycle+1, s.engine.Name(), frames, s.promptLocked(frames, change, s.speaksLocked(), now), now)
	if s.unchangedLocked(change) {
		l.Outcome, l.Reason = OutcomeSkipped, sceneUnchanged
	}
	return l, nil
}

// ask yields an engine's answer to a prompt, and keeps both as a look at the pictures.
func (s *Session) ask(ctx context.Context, engine inference.Session, kind string, cycle uint64, frames []window.Frame, p inference.Prompt,
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		began := time.Now()
		l := newRawLook(kind, cycle, s.engine.Name(), frames, p, began)
		p.Trace = func(x inference.Exchange) { l.Exchanges = append(l.Exchanges, x) }
		var answer strings.Builder
		keep := sync.OnceFunc(func() {
			l.Answer, l.AnswerSec = answer.String(), time.Since(began).Seconds()
			if l.Error == "" && ctx.Err() != nil {
				l.Error = context.Cause(ctx).Error()
			}
			s.raw.add(l)
		})
		defer keep()
		for c, err := range engine.Generate(ctx, p) {
			if err != nil {
				l.Error = causeOf(ctx, err).Error()
			}
			if c.Text != "" && answer.Len() == 0 {
				l.FirstWordSec = time.Since(began).Seconds()
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
