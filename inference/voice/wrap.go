package voice

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/rescue"
)

const (
	// leadKept and the pauses are the silence left around a piece.
	leadKept      = 20 * time.Millisecond
	sentencePause = 160 * time.Millisecond
	clausePause   = 60 * time.Millisecond

	// maxPending bounds the pieces that wait for speech; the rest of a longer answer has text only.
	maxPending = 64
)

// Wrap adds the voice of synth to a model: for a prompt with Speech it speaks
// each sentence of the answer as soon as its text is complete. Chunks of text pass
// unchanged and at once; each piece of audio follows in its own chunk, in order,
// with the times of its words. If the engine yields audio itself, Wrap adds none.
//
// When the speech program fails, the piece has text only; each new problem is
// logged once, and Status returns it.
func Wrap(model inference.Model, synth *Synthesizer) inference.Model {
	return &voiced{Model: model, synth: synth, log: synth.log}
}

// voiced is a model with the voice of a Synthesizer.
type voiced struct {
	inference.Model
	synth *Synthesizer
	log   zerolog.Logger

	mu      sync.Mutex
	problem string // of the speech program; "" without one
}

// NewSession opens a session of the inner model with the voice.
func (v *voiced) NewSession() (inference.Session, error) {
	inner, err := v.Model.NewSession()
	if err != nil {
		return nil, err
	}
	return &session{Session: inner, v: v}, nil
}

// Capabilities returns those of the inner model with speech.
func (v *voiced) Capabilities() inference.Capabilities {
	can := v.Model.Capabilities()
	can.Speech = true
	return can
}

// Status returns the inner model's status with the problem of the voice.
func (v *voiced) Status() inference.Status {
	st := v.Model.Status()
	v.mu.Lock()
	defer v.mu.Unlock()
	st.VoiceProblem = v.problem
	return st
}

// report sets the problem and logs each change.
func (v *voiced) report(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	v.mu.Lock()
	changed := problem != v.problem
	v.problem = problem
	v.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		v.log.Warn().Err(err).Msg("speech failed: comments have text only")
	default:
		v.log.Info().Msg("speech works again")
	}
}

var _ inference.Speaker = (*session)(nil)

type session struct {
	inference.Session
	v *voiced
	// manner is that of the last prompt.
	manner atomic.Pointer[manner]
}

// manner is how a prompt wants its answer spoken.
type manner struct {
	pronunciations map[string]string
	voice          string
}

// item is a chunk or an error, of the inner engine or of the speech program.
type item struct {
	chunk inference.Chunk
	err   error
}

// Generate yields the inner engine's answer with speech.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	s.manner.Store(&manner{p.Pronunciations, p.Voice})
	if !p.Speech {
		return s.Session.Generate(ctx, p)
	}
	return s.voiced(ctx, p.Language, func(ctx context.Context) iter.Seq2[inference.Chunk, error] { return s.Session.Generate(ctx, p) })
}

// Speak implements inference.Speaker with the speech program, also for an engine
// with a voice of its own, which speaks nothing but its answers.
func (s *session) Speak(ctx context.Context, text, language string) iter.Seq2[inference.Chunk, error] {
	return s.voiced(ctx, language, func(context.Context) iter.Seq2[inference.Chunk, error] {
		return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: text}, nil) }
	})
}

// voiced yields the chunks of answer with speech.
func (s *session) voiced(ctx context.Context, language string, answer func(context.Context) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		items := make(chan item)
		jobs := make(chan string, 1)
		done := make(chan item)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer close(items)
			err := rescue.Call(func() error {
				for c, err := range answer(ctx) {
					if !send(ctx, items, item{c, err}) {
						return nil
					}
				}
				return nil
			})
			if err != nil {
				send(ctx, items, item{err: err})
			}
		})
		wg.Go(func() { s.speak(ctx, language, jobs, done) })
		s.mix(ctx, items, jobs, done, yield)
	}
}

// send sends an item. It returns false if ctx ends first.
func send(ctx context.Context, to chan<- item, it item) bool {
	select {
	case to <- it:
		return true
	case <-ctx.Done():
		return false
	}
}

// speak converts pieces to sound, one after another, until ctx ends.
func (s *session) speak(ctx context.Context, lang string, jobs <-chan string, done chan<- item) {
	var how manner
	if m := s.manner.Load(); m != nil {
		how = *m
	}
	synth := s.v.synth.as(how.voice)
	for {
		var piece string
		select {
		case piece = <-jobs:
		case <-ctx.Done():
			return
		}
		var out item
		out.err = rescue.Call(func() error {
			sp, err := synth.speak(ctx, piece, lang, how.pronunciations)
			if err == nil {
				out.chunk = tighten(sp, piece)
			}
			return err
		})
		if !send(ctx, done, out) {
			return
		}
	}
}

// mix yields text when it arrives and sound when it is ready.
func (s *session) mix(ctx context.Context, items <-chan item, jobs chan<- string, done <-chan item,
	yield func(inference.Chunk, error) bool,
) {
	var (
		cutter  splitter
		pending []string
		busy    int  // pieces at the speech program
		own     bool // the engine yields audio
		failed  error
	)
	for items != nil || busy > 0 || len(pending) > 0 {
		var to chan<- string
		var next string
		if len(pending) > 0 {
			to, next = jobs, pending[0]
		}
		select {
		case it, ok := <-items:
			switch {
			case !ok:
				items = nil
				if !own && failed == nil {
					pending = append(pending, cutter.end()...)
				}
			case it.err != nil:
				failed = it.err
			default:
				if len(it.chunk.Audio) > 0 && !own {
					own, pending = true, nil
				}
				if !yield(it.chunk, nil) {
					return
				}
				if !own {
					pending = append(pending, cutter.push(it.chunk.Text)...)
				}
			}
			if over := len(pending) - maxPending; over > 0 {
				pending = pending[:maxPending]
				s.v.log.Warn().Int("pieces", over).Msg("answer too long to speak: the rest has text only")
			}
		case to <- next:
			pending = pending[1:]
			busy++
		case sp := <-done:
			busy--
			if sp.err != nil && ctx.Err() != nil {
				continue
			}
			if !s.pass(sp, own, yield) {
				return
			}
		case <-ctx.Done():
			yield(inference.Chunk{}, ctx.Err())
			return
		}
	}
	if failed != nil {
		yield(inference.Chunk{}, failed)
	}
}

// pass yields a spoken piece unless the engine yields audio itself, and reports
// whether the answer continues.
func (s *session) pass(sp item, own bool, yield func(inference.Chunk, error) bool) bool {
	if _, crash := rescue.Of(sp.err); crash {
		yield(inference.Chunk{}, sp.err)
		return false
	}
	if !errors.Is(sp.err, ErrNothingToSay) {
		s.v.report(sp.err)
	}
	return sp.err != nil || own || yield(sp.chunk, nil)
}

// tighten shortens the silence around a piece to that of natural speech.
func tighten(sp Speech, piece string) inference.Chunk {
	c := inference.Chunk{Audio: sp.Audio, AudioRate: sp.Rate, Words: sp.Words}
	regions := sounding(sp.Rate, sp.Audio, time.Hour)
	if len(regions) == 0 {
		return c
	}
	after := clausePause
	if n := len(piece); closing(piece, n-1) == n {
		after = sentencePause
	}
	total := duration(len(sp.Audio), sp.Rate)
	from := max(0, regions[0].start-leadKept)
	to := min(total, regions[len(regions)-1].end+after)
	at := func(d time.Duration) int { return int(d * time.Duration(sp.Rate) / time.Second) }
	c.Audio = sp.Audio[at(from):at(to)]
	length := duration(len(c.Audio), sp.Rate)
	for i := range c.Words {
		w := &c.Words[i]
		w.Start = min(max(0, w.Start-from), length)
		w.End = min(max(w.Start, w.End-from), length)
	}
	return c
}
