package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"touchline/inference"
	"touchline/inference/internal/sample"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/tokenizer"
)

// Session is one room. It stores no conversation: each prompt contains its own
// past, as in the original application. It embeds observed frames early while
// prompts show enough of them.
type Session struct {
	e      *Engine
	source uint64
	closed atomic.Bool
	asked  atomic.Uint64

	shown, used atomic.Int64 // frames embedded early, and those that a prompt showed
	skipped     atomic.Int64
	slices      atomic.Int32 // of the last prompt
	streams     atomic.Bool  // the last prompt with frames and without a schema was that of a spoken answer
	room        *voice.Room
}

var _ inference.Session = (*Session)(nil)

var errNoFrames = errors.New("expected a frame or a text in the prompt, has neither")

// Generate answers one prompt like the official chat call or, for a spoken answer,
// like the official streaming call.
func (s *Session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		r, err := s.request(p)
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		r.Report = s.report
		answer := s.written(ctx, r)
		if r.Hidden {
			answer = s.spoken(ctx, r, p.Voice)
		}
		var x inference.Exchange
		trace := func() {}
		if p.Trace != nil {
			x.Request = elideImages(r.Prompt.Text)
			trace = sync.OnceFunc(func() { p.Trace(x) })
		}
		defer trace()
		for c, err := range answer {
			if err != nil {
				x.Error = err.Error()
				yield(inference.Chunk{}, err)
				return
			}
			x.Answer += c.Text
			if c.TextEnds {
				trace()
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// written yields an answer without sound.
func (s *Session) written(ctx context.Context, r Request) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		for t, err := range s.e.Answer(ctx, r) {
			if err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			if t.Text != "" && !yield(inference.Chunk{Text: t.Text}, nil) {
				return
			}
		}
	}
}

// placeholders are the places of a picture's embeddings in a prompt.
var placeholders = regexp.MustCompile(`<(?:image|slice)>(?:<unk>)+`)

// elideImages shortens the placeholders of pictures to their number.
func elideImages(prompt string) string {
	return placeholders.ReplaceAllStringFunc(prompt, func(run string) string {
		mark, places, _ := strings.Cut(run, ">")
		return fmt.Sprintf("%s><unk>×%d", mark, strings.Count(places, "<unk>"))
	})
}

// report logs the timing of an answer.
func (s *Session) report(r Report) {
	s.e.log.Debug().Uint64("session", s.source).Int64("wait_ms", r.Wait.Milliseconds()).Int64("vision_ms", r.Vision.Milliseconds()).
		Int64("prefill_ms", r.Prefill.Milliseconds()).Int64("first_token_ms", r.FirstToken.Milliseconds()).
		Int64("total_ms", r.Total.Milliseconds()).Int("prompt", r.Prompt).Int("tokens", r.Tokens).
		Int("pictures", r.Pictures).Int("cached", r.Cached).Msg("answer")
}

// request writes the prompt.
func (s *Session) request(p inference.Prompt) (Request, error) {
	e := s.e
	if s.closed.Load() {
		return Request{}, ErrClosed
	}
	if len(p.Frames) == 0 && strings.TrimSpace(p.Text) == "" {
		return Request{}, errNoFrames
	}
	r := Request{Frames: p.Frames, Source: s.source, MaxTokens: e.maxTokens, Slices: p.MaxSlices, Schema: p.Schema, Urgent: p.Urgent}
	s.slices.Store(int32(p.MaxSlices))
	if p.MaxTokens > 0 {
		r.MaxTokens = p.MaxTokens
	}
	// Equal prompts in equal order get equal answers, independently of other rooms.
	r.Seed = e.seed<<40 ^ s.source<<20 ^ s.asked.Add(1)
	parts := make([]tokenizer.Part, 0, len(p.Frames)+1)
	for _, f := range p.Frames {
		grid, err := e.Grid(f.Width, f.Height, p.MaxSlices)
		if err != nil {
			return r, err
		}
		parts = append(parts, tokenizer.Part{Image: &grid})
		if e.cache.early(e.key(s.source, f, p.MaxSlices)) {
			s.used.Add(1)
			e.stats.count(func(s *Stats) { s.Early++ })
		}
	}
	if text := strings.TrimSpace(p.Text); text != "" {
		parts = append(parts, tokenizer.Part{Text: text, Literal: true}) // contains text of users
	}
	system := strings.TrimSpace(p.System + "\n\n" + inference.AskFor(p.Language))
	var err error
	streams := p.Speech && e.speaks
	switch {
	case p.Structured(): // begins as the room's comments do, so that it copies the beginning of the last one
		streams = s.streams.Load()
	case len(p.Frames) > 0:
		s.streams.Store(streams)
	}
	speech := streams && !p.Structured()
	r.Rules = e.chatAnswer
	if speech {
		r.Rules, r.Chunk, r.Hidden = e.speech, voice.ChunkTokens, e.voice.Load() != nil
	}
	if streams {
		r.Prompt, err = e.streaming(system, parts, speech)
	} else {
		r.Prompt, err = e.builder.Chat([]tokenizer.Message{
			{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: system, Literal: true}}}, {Role: tokenizer.User, Parts: parts},
		}, tokenizer.Options{MaxLen: e.maxPrompt})
	}
	applySampling(&r.Rules, p.Sampling)
	if p.Structured() {
		r.Rules.Greedy, r.Rules.RepetitionPenalty = true, 1
	}
	return r, err
}

// applySampling applies the settings of a prompt.
func applySampling(r *sample.Settings, p inference.Sampling) {
	if p.Temperature != nil {
		r.Temperature, r.Greedy = *p.Temperature, *p.Temperature == 0
	}
	if p.TopK != nil {
		r.TopK = *p.TopK
	}
	if p.TopP != nil {
		r.TopP = *p.TopP
	}
	if p.RepetitionPenalty != nil {
		r.RepetitionPenalty = *p.RepetitionPenalty
	}
}

// streaming writes the prompt of one turn of the official streaming call: each
// message is tokenised separately, without line breaks between its parts. With speech the answer is to be spoken.
func (e *Engine) streaming(system string, parts []tokenizer.Part, speech bool) (tokenizer.Prompt, error) {
	talk, err := e.builder.NewConversation(tokenizer.Options{Omni: true, Speech: speech, MaxLen: e.maxPrompt})
	if err != nil {
		return tokenizer.Prompt{}, err
	}
	var whole tokenizer.Prompt
	add := func(p tokenizer.Prompt, err error) error {
		whole = Join(whole, p)
		return err
	}
	first := tokenizer.Message{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: system, Literal: true}}}
	if err := add(talk.Prefill(first)); err != nil {
		return whole, err
	}
	if err := add(talk.Prefill(tokenizer.Message{Role: tokenizer.User, Parts: parts})); err != nil {
		return whole, err
	}
	if err := add(talk.Generate()); err != nil {
		return whole, err
	}
	if len(whole.IDs) > e.maxPrompt {
		return whole, &inference.TooLongError{Tokens: len(whole.IDs), Max: e.maxPrompt}
	}
	return whole, nil
}

// Join concatenates two prompts.
func Join(a, b tokenizer.Prompt) tokenizer.Prompt {
	n := len(a.IDs)
	out := tokenizer.Prompt{
		Template: a.Template + b.Template, Text: a.Text + b.Text,
		IDs: slices.Concat(a.IDs, b.IDs), Images: slices.Clone(a.Images),
	}
	for _, s := range b.Images {
		out.Images = append(out.Images, tokenizer.Span{Start: s.Start + n, End: s.End + n})
	}
	return out
}

// Observe embeds a frame in idle time of the device, before a prompt shows it. It
// never waits: while others wait it takes none. While prompts show few of the
// room's frames, it takes only some.
func (s *Session) Observe(f inference.Frame) {
	e := s.e
	if !e.sees || e.cache.limit == 0 || s.closed.Load() || e.workers.behind() || !s.shouldPrefetch() {
		return
	}
	p, fresh, err := e.picture(s.source, f, int(s.slices.Load()), false)
	if err != nil || !fresh {
		return
	}
	s.shown.Add(1)
	select {
	case e.workers.idle <- p:
	default:
		e.cache.remove(p)
	}
}

// shouldPrefetch reports whether to embed a frame early: if prompts showed at least one in
// eight of the last ones, else for one in sixteen, to detect a change.
func (s *Session) shouldPrefetch() bool {
	const enough, rarely, memory, probe = 16, 8, 128, 16
	shown, used := s.shown.Load(), s.used.Load()
	if shown >= memory {
		s.shown.Store(shown / 2)
		s.used.Store(used / 2)
	}
	if shown < enough || used*rarely >= shown {
		return true
	}
	return s.skipped.Add(1)%probe == 0
}

// Close removes the room's frames from the cache. Running answers continue.
func (s *Session) Close() error {
	if !s.closed.Swap(true) {
		s.e.cache.removeSource(s.source)
	}
	return nil
}
