package minicpmo

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"

	"touchline/inference"
	"touchline/inference/tokenizer"
)

// Session is one room. It keeps no conversation: each prompt brings its own
// past, as in the original application. Frames it was shown are embedded
// before they are asked about, as long as enough of them are.
type Session struct {
	e      *Engine
	source uint64
	closed atomic.Bool
	asked  atomic.Uint64

	shown, used atomic.Int64 // frames embedded early, and those of them that were asked about
	skipped     atomic.Int64
}

var _ inference.Session = (*Session)(nil)

var errNoFrames = errors.New("expected at least one frame in the prompt, has none")

// Generate answers one prompt in the official chat way, or, where the answer
// is to be spoken, in the streaming way with its rules.
func (s *Session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		r, err := s.request(p)
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		r.Report = s.report
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

// report logs where an answer's time went.
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
	if len(p.Frames) == 0 {
		return Request{}, errNoFrames
	}
	r := Request{Frames: p.Frames, Source: s.source, MaxTokens: e.maxTokens}
	if p.MaxTokens > 0 {
		r.MaxTokens = p.MaxTokens
	}
	// Equal prompts in equal order get equal answers, whatever other rooms do.
	r.Seed = e.seed<<40 ^ s.source<<20 ^ s.asked.Add(1)
	parts := make([]tokenizer.Part, 0, len(p.Frames)+1)
	for _, f := range p.Frames {
		grid, err := e.Grid(f.Width, f.Height, 0)
		if err != nil {
			return r, err
		}
		parts = append(parts, tokenizer.Part{Image: &grid})
		key := pictureKey{s.source, inferenceTime{int64(f.PTS), f.Epoch}, f.Width, f.Height, e.slices}
		if e.cache.early(key) {
			s.used.Add(1)
			e.stats.early.Add(1)
		}
	}
	if text := strings.TrimSpace(p.Text); text != "" {
		parts = append(parts, tokenizer.Part{Text: text, Literal: true}) // people's words are in it
	}
	system := strings.TrimSpace(p.System + "\n\n" + inference.AskFor(p.Language))
	var err error
	if p.Speech && e.speaks {
		r.Prompt, err = e.streaming(system, parts)
		r.Rules, r.Chunk = e.speech, SpeechChunk
	} else {
		messages := []tokenizer.Message{
			{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: system}}}, {Role: tokenizer.User, Parts: parts},
		}
		r.Prompt, err = e.builder.Chat(messages, tokenizer.Options{MaxLen: e.maxPrompt})
		r.Rules = e.chatAnswer
	}
	return r, err
}

// streaming writes the prompt of one turn of the official streaming way: each
// message tokenised by itself, parts without line breaks between them.
func (e *Engine) streaming(system string, parts []tokenizer.Part) (tokenizer.Prompt, error) {
	talk, err := e.builder.NewConversation(tokenizer.Options{Omni: true, Speech: true, MaxLen: e.maxPrompt})
	if err != nil {
		return tokenizer.Prompt{}, err
	}
	var whole tokenizer.Prompt
	add := func(p tokenizer.Prompt, err error) error {
		whole = Join(whole, p)
		return err
	}
	if err := add(talk.Prefill(tokenizer.Message{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: system}}})); err != nil {
		return whole, err
	}
	if err := add(talk.Prefill(tokenizer.Message{Role: tokenizer.User, Parts: parts})); err != nil {
		return whole, err
	}
	if err := add(talk.Generate()); err != nil {
		return whole, err
	}
	if len(whole.IDs) > e.maxPrompt {
		return whole, &tokenizer.TooLongError{Tokens: len(whole.IDs), Max: e.maxPrompt}
	}
	return whole, nil
}

// Join puts what is fed one after another into one prompt.
func Join(a, b tokenizer.Prompt) tokenizer.Prompt {
	n := len(a.IDs)
	out := tokenizer.Prompt{Template: a.Template + b.Template, Text: a.Text + b.Text}
	out.IDs = append(append(out.IDs, a.IDs...), b.IDs...)
	out.Images = append(out.Images, a.Images...)
	for _, s := range b.Images {
		out.Images = append(out.Images, tokenizer.Span{Start: s.Start + n, End: s.End + n})
	}
	return out
}

// Observe embeds a frame before it is asked about, as idle time of the device
// allows. It never waits: a frame that cannot be taken now is dropped. While
// hardly any of a room's frames are asked about, only some are taken.
func (s *Session) Observe(f inference.Frame) {
	e := s.e
	if !e.sees || e.cache.limit == 0 || s.closed.Load() || !s.worth() {
		return
	}
	p, fresh, err := e.picture(s.source, f, 0, false)
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

// worth reports whether frames are asked about often enough to embed them early:
// one in eight of the last ones. Else one in sixteen is taken, to find out
// when that changes.
func (s *Session) worth() bool {
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

// Close forgets the room's frames. Answers under way go on.
func (s *Session) Close() error {
	if !s.closed.Swap(true) {
		s.e.cache.forget(s.source)
	}
	return nil
}
