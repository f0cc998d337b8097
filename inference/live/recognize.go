package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/inference"
)

// recognize transcribes the utterances one after the other.
func (s *Session) recognize(ctx context.Context) error {
	for {
		s.mu.Lock()
		var u *speech
		if len(s.queue) > 0 {
			u = s.queue[0]
		}
		closed := s.closed
		s.mu.Unlock()
		switch {
		case u != nil:
			if err := s.transcribe(ctx, u); err != nil {
				return err
			}
			continue
		case closed:
			return nil
		}
		select {
		case <-s.work:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// transcribe recognizes the first utterance of the queue to its end, and removes it.
func (s *Session) transcribe(ctx context.Context, u *speech) error {
	var out inference.Utterance // nil before the first interim text, and after a failure
	defer func() {
		if out != nil {
			_ = out.Close() // its result is not needed any more
		}
	}()
	partials := s.every > 0 && s.recognizer.Recognizes().Partials
	sent := 0         // samples that out has
	var before string // the last interim text
	var sums inference.Transcript
	for {
		s.mu.Lock()
		sound, ended, dropped, held := u.sound, u.ended, u.dropped, u.held
		s.mu.Unlock()
		switch {
		case dropped:
			s.mu.Lock()
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return nil
		case held && ended:
			s.consumed(u, len(sound))
			s.emitFor(u, Event{Kind: Final, End: at(u.end), Refused: true})
			return nil
		case ended:
			if out != nil && sent > len(sound) { // cut: the recognizer has sound of the next utterance
				_ = out.Close()
				out, sent = nil, 0
			}
			s.final(ctx, u, out, sound, sent, sums)
			return ctx.Err()
		case partials && !held && s.due(len(sound), sent):
			t, opened, err := s.interim(ctx, u, out, sound[sent:])
			sums.Audio, sums.Tokens = sums.Audio+t.Audio, sums.Tokens+t.Tokens
			out, sent = opened, len(sound)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				partials = false // the final text starts over
				sent = 0
			case t.Text != before:
				before = t.Text
				s.emitFor(u, Event{Kind: Interim, Text: t.Text, Language: t.Language, End: at(u.begin + int64(len(sound)))})
			}
			continue
		}
		select {
		case <-s.work:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// interim sends more sound and returns the text so far with the recognizer's utterance, nil after a failure.
func (s *Session) interim(ctx context.Context, u *speech, out inference.Utterance, sound []float32,
) (t inference.Transcript, _ inference.Utterance, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, textTimeout, fmt.Errorf("no text within %v", textTimeout))
	defer cancel()
	if out == nil {
		if out, err = s.listen(context.WithoutCancel(ctx), u); err != nil {
			return t, nil, err
		}
	}
	if s.recognizer.Recognizes().Interim != "" {
		s.mu.Lock()
		if u.stop = cancel; u.ended {
			cancel()
		}
		s.mu.Unlock()
	}
	t, err = out.Hear(ctx, slices.Clone(sound))
	s.consumed(u, len(sound))
	if err != nil {
		_ = out.Close() // err has the reason
		return t, nil, err
	}
	return t, out, nil
}

// consumed counts n samples of an utterance as sent to the recognizer.
func (s *Session) consumed(u *speech, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = max(0, min(n, len(u.sound)-u.consumed))
	u.consumed += n
	if !u.dropped {
		s.backlog -= n
	}
	s.room.Set()
}

// final emits the last text of an utterance. If the open one fails, it tries twice more with all of the sound.
func (s *Session) final(ctx context.Context, u *speech, out inference.Utterance, sound []float32, sent int, sums inference.Transcript) {
	ctx, cancel := context.WithTimeoutCause(ctx, textTimeout, fmt.Errorf("no text within %v", textTimeout))
	defer cancel()
	var t inference.Transcript
	err := errors.New("no interim text")
	if out != nil {
		t, err = out.Finish(ctx, slices.Clone(sound[sent:]))
	}
	for range 2 {
		if err == nil || ctx.Err() != nil {
			break
		}
		t, err = s.whole(ctx, u, sound)
	}
	s.consumed(u, len(sound))
	if err == nil && t.Text != "" && s.words != nil && s.words() && s.recognizer.Recognizes().WordTimes {
		within, stop := context.WithTimeout(ctx, wordsTimeout)
		if words, failed := s.recognizer.Align(within, slices.Clone(sound), t.Text, t.Language); failed == nil {
			t.Words = words
		}
		stop()
	}
	e := Event{
		Kind: Final, Text: t.Text, Language: t.Language, Audio: sums.Audio + t.Audio, Tokens: sums.Tokens + t.Tokens,
		End: at(u.end), Lag: time.Since(u.endedAt),
	}
	for _, w := range t.Words {
		w.Start, w.End = w.Start+at(u.begin), w.End+at(u.begin)
		e.Words = append(e.Words, w)
	}
	if err != nil {
		e.Kind, e.Text, e.Err = Failed, "", cmp.Or(context.Cause(ctx), err)
	}
	s.emitFor(u, e)
}

// whole transcribes an utterance from its beginning.
func (s *Session) whole(ctx context.Context, u *speech, sound []float32) (inference.Transcript, error) {
	out, err := s.listen(ctx, u)
	if err != nil {
		return inference.Transcript{}, err
	}
	t, err := out.Finish(ctx, slices.Clone(sound))
	return t, errors.Join(err, out.Close())
}

// emitFor queues an event of the first utterance of the queue, unless it was cleared. With its last event, the utterance leaves the
// queue: a client that has the text finds nothing pending.
func (s *Session) emitFor(u *speech, e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind == Final || e.Kind == Failed {
		s.queue = s.queue[1:]
	}
	if !u.dropped {
		e.Utterance, e.Begin, e.Start = u.number, at(u.begin), at(u.start)
		s.queueLocked(e)
	}
}

// listen opens an utterance at the recognizer.
func (s *Session) listen(ctx context.Context, u *speech) (inference.Utterance, error) {
	s.mu.Lock()
	h := u.hearing
	s.mu.Unlock()
	return s.recognizer.Listen(ctx, h)
}
