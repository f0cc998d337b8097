package minicpmo

import (
	"context"
	"iter"

	"touchline/inference"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/tokenizer"
)

// spoken yields an answer with its sound.
func (s *Session) spoken(ctx context.Context, r Request, name string) iter.Seq2[inference.Chunk, error] {
	tokens := func(ctx context.Context) iter.Seq2[Token, error] { return s.e.Answer(ctx, r) }
	return s.e.voice.Load().Say(ctx, s.room, voice.Answer{Tokens: tokens, Voice: name, Seed: r.Seed, Given: r.Forced != nil})
}

var (
	_ inference.Speaker        = (*Session)(nil)
	_ inference.VoiceCanceller = (*Session)(nil)
)

// CancelVoice implements inference.VoiceCanceller.
func (s *Session) CancelVoice() { s.room.CancelVoice() }

// readAloud precedes a text that the model did not write. The answer is given, so its words matter little.
const readAloud = "Read this text aloud, word for word:\n\n"

// Speak reads a text that is not an answer: the model's states while it is made to write the text become speech.
func (s *Session) Speak(ctx context.Context, text, name, _ string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if s.e.voice.Load() == nil {
			yield(inference.Chunk{}, inference.ErrNoVoice)
			return
		}
		from := 0
		for _, part := range voice.Sentences(text) {
			at := from
			from += len(part)
			if !yield(inference.Chunk{Text: part}, nil) {
				return
			}
			if inference.ClassifyAnswer(part, true) != inference.HasWords {
				continue
			}
			r, err := s.reading(part, !inference.IsBehind(ctx))
			if err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			for c, err := range s.spoken(ctx, r, name) {
				if f := c.VoiceFailed; f != nil {
					c.VoiceFailed = &inference.VoiceFailure{From: at + f.From, Err: f.Err}
				}
				if !yield(c, err) || err != nil || c.VoiceFailed != nil {
					return
				}
			}
		}
	}
}

// reading returns the request that makes the model write a text.
func (s *Session) reading(text string, urgent bool) (Request, error) {
	e := s.e
	if s.closed.Load() {
		return Request{}, ErrClosed
	}
	prompt, err := e.streaming("", []tokenizer.Part{{Text: readAloud + text, Literal: true}}, true)
	ids := e.tokens.EncodeLiteral(text)
	return Request{
		Prompt: prompt, Rules: e.speech, Chunk: voice.ChunkTokens, Hidden: true, Forced: ids, MaxTokens: len(ids) + 1, Urgent: urgent,
		Seed: e.seed<<40 ^ s.source<<20 ^ s.asked.Add(1),
	}, err
}
