package qwen3asr

import (
	"context"
	"errors"
	"time"

	"touchline/inference"
	"touchline/inference/internal/asrtext"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/sample"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// Parts of the engine without a graph.
var (
	Parse        = asrtext.Parse
	LanguageName = languageName
	LanguageTag  = languageTag
)

// PromptIDs returns the ids of a prompt.
func PromptIDs(t *tokenizer.Tokenizer, context string, most int, language, prefix string, rows int) ([]int32, int, error) {
	p, err := newPrompter(t)
	if err != nil {
		return nil, 0, err
	}
	out := p.prompt(context, most, language, prefix, rows)
	return out.ids, out.from, nil
}

// AlignWords returns the words of a text and what of it each is shown as.
func AlignWords(text, language string) (words []string, shown []inference.Word, prompt string) {
	ws := alignWords(text, language)
	for _, w := range ws {
		words = append(words, w.text)
	}
	return words, timed(text, ws, make([]int32, 2*len(ws)), time.Millisecond), alignPrompt(ws)
}

// Timed returns the words of a text with the times of classes.
func Timed(text, language string, classes []int32, segment time.Duration) []inference.Word {
	return timed(text, alignWords(text, language), classes, segment)
}

// Follower is the state machine of live speech.
type Follower = follower

// NewFollower returns one at its start.
func NewFollower(t *tokenizer.Tokenizer, freeChunks, freeTokens int) *Follower {
	return &follower{tokens: t, freeChunks: freeChunks, freeTokens: freeTokens}
}

// Step hears n new chunks.
func (f *Follower) Step(n int, last bool, generate func(prefix string) (string, error)) error {
	return f.step(n, last, generate)
}

// Raw is the last answer.
func (f *Follower) Raw() string { return f.raw }

// Backend is a device without networks, for tests of the loop: windows encode to their frames, and an answer to a
// prompt of n positions is n, n+1 and so on.
type Backend struct {
	// Before is called before each piece of work, whose error ends it; it may be nil.
	Before func(work string, jobs int) error
	// Now is the loop's clock, which Before may move.
	Now time.Time
	// Together is shape.together.
	Together int
	// Cleared is the number of slots that were zeroed.
	Cleared int

	next map[int]int32
}

func (b *Backend) before(work string, n int) error {
	if b.Before == nil {
		return nil
	}
	return b.Before(work, n)
}

func (b *Backend) encode(windows []*window) error {
	if err := b.before("encode", len(windows)); err != nil {
		return err
	}
	for _, w := range windows {
		w.out = []byte{1}
	}
	return nil
}

func (b *Backend) clear(int) error {
	b.Cleared++
	return nil
}

func (b *Backend) prefill(j *job, _, to int) error {
	b.next[j.Slot] = int32(to)
	return b.before("prefill", to)
}

func (b *Backend) begin(jobs []*job, r kvcache.Range) error {
	if len(jobs) != r.Size {
		return errors.New("a job for each slot")
	}
	return b.before("begin", r.Size)
}

func (b *Backend) decode(r kvcache.Range, tokens, _ []int32) error {
	n := 0
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if tokens[slot] >= 0 {
			b.next[slot] = tokens[slot] + 1
			n++
		}
	}
	return b.before("decode", n)
}

func (b *Backend) top(slot int) ([]float32, []int64) {
	return []float32{1, 0}, []int64{int64(b.next[slot]), 0}
}

func (b *Backend) logits(int) ([]float32, error) { return nil, errors.New("no logits") }

func (b *Backend) align(j *job) ([]int32, error) {
	return make([]int32, len(j.slots)), b.before("align", 1)
}

func (b *Backend) close() error { return nil }

// Loop is a loop on a Backend.
type Loop struct {
	e *Engine
}

// NewLoop runs a loop with so many slots until stop, which returns its error.
func NewLoop(b *Backend, slots, queue int) (_ *Loop, stop func() error) {
	now := func() time.Time { return b.Now }
	return startLoop(b, slots, shape{batch: 4, together: b.Together},
		step.Options{Now: now, Client: step.NewOwner(now).Join(step.Recognition), Waiting: queue})
}

// NewTimedLoop runs a loop with 64 slots in real time, as a client of an owner.
func NewTimedLoop(b *Backend, o *step.Owner) (_ *Loop, stop func() error) {
	return startLoop(b, 64, shape{batch: 16, together: 4096, mixed: true},
		step.Options{Now: time.Now, Client: o.Join(step.Recognition), Waiting: 1000})
}

// NewInterimLoop is NewTimedLoop for the model of interim texts.
func NewInterimLoop(b *Backend, o *step.Owner) (_ *Loop, stop func() error) {
	return startLoop(b, 4, shape{batch: 4, interim: true}, step.Options{Now: time.Now, Client: o.Join(step.Interim), Waiting: 10})
}

// startLoop runs a loop of a small model.
func startLoop(b *Backend, slots int, s shape, o step.Options) (_ *Loop, stop func() error) {
	s.vocab, s.chunk, s.alike = 1000, 16, alike
	s.layout = kvcache.Layout{Layers: 1, Slots: slots, KVHeads: 1, MaxLen: 64, HeadDim: 1, ElemSize: 4}
	b.next = map[int]int32{}
	e := &Engine{}
	var err error
	e.loop, err = newLoop(b, s, o, &e.stats)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.loop.Run(ctx, ErrClosed) }()
	return &Loop{e}, func() error {
		cancel()
		e.loop.Wake()
		return <-ended
	}
}

// Class is that of a job.
type Class = class

// The classes of jobs.
const (
	Final   = final
	Partial = partial
	File    = file
)

// Job is a job of a Loop.
type Job struct {
	l *Loop
	j *job
}

// Submit queues an answer of most ids to a prompt of n positions with so many windows.
func (l *Loop) Submit(k class, n, most, windows int) (*Job, error) {
	j := &job{
		Answer: step.Answer{Most: most, Settings: sample.Settings{Greedy: true, TopP: 1, RepetitionPenalty: 1, Stop: []int32{999}}},
		class:  k, prompt: prompt{ids: make([]int32, n)},
	}
	j.prompt.ids[n-1] = int32(n - 1) // a step that feeds it answers n
	for range windows {
		j.windows = append(j.windows, &window{frames: 800, rows: 1})
	}
	return &Job{l, j}, l.e.loop.submit(j)
}

// Positions is the length of the prompt.
func (j *Job) Positions() int { return len(j.j.prompt.ids) }

// Align queues an alignment of n places.
func (l *Loop) Align(n int) (*Job, error) {
	j := &job{slots: make([]int64, n), windows: []*window{{frames: 800, aligner: true}}}
	return &Job{l, j}, l.e.loop.submit(j)
}

// Wait returns the ids.
func (j *Job) Wait(ctx context.Context) ([]int32, error) { return j.l.e.wait(ctx, j.j, nil) }

// Stats returns the loop's counters.
func (l *Loop) Stats() Stats { return l.e.Stats() }

// Held is the number of slots in use. Call it after stop.
func (l *Loop) Held() int { return l.e.loop.Pool.InUse() }

// Features are those of a sound that grows.
type Features struct{ f *features }

// NewFeatures returns features without sound.
func NewFeatures(dims models.Hearing) *Features { return &Features{newFeatures(dims)} }

// Append adds sound.
func (f *Features) Append(sound []float32) { f.f.append(sound) }

// Window is a window of features.
type Window struct {
	Mel          []float32
	Frames, Rows int
	ID           any // equal for a window that is returned again
}

// Windows returns those of all sound.
func (f *Features) Windows(exact bool) (out []Window) {
	for _, w := range f.f.windows(exact) {
		out = append(out, Window{w.mel, w.frames, w.rows, w})
	}
	return out
}

// SetFree sets the free memory of the device.
func (o *Options) SetFree(bytes int64) { o.test.free = bytes }

// Held is the number of slots in use. Call it after Close.
func (e *Engine) Held() int { return e.loop.Pool.InUse() }
