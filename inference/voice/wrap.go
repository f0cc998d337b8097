package voice

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/rescue"
)

const (
	// leadKept and the pauses are what is left of the silence around a piece.
	leadKept      = 20 * time.Millisecond
	sentencePause = 160 * time.Millisecond
	clausePause   = 60 * time.Millisecond

	// maxPending bounds the pieces that wait to be spoken; the rest of a longer answer stays text.
	maxPending = 64
)

// Wrap gives model the voice of synth: where a prompt asks for speech and the
// engine yields none itself, every sentence of the answer is spoken as soon as
// its text is complete. The chunks of text pass unchanged and at once; each
// piece of audio follows in a chunk of its own, in order, with the times of its
// words. An engine's own audio is passed through.
//
// A voice program that fails never ends the text: the piece stays without
// audio, the first failure of a kind is logged and Status tells it.
func Wrap(model inference.Model, synth *Synthesizer) inference.Model {
	return &voiced{Model: model, synth: synth, log: synth.log}
}

// voiced is a model with a voice put to it.
type voiced struct {
	inference.Model
	synth *Synthesizer
	log   zerolog.Logger

	mu      sync.Mutex
	problem string // what the voice complains about; "" when it works
}

// NewSession opens a session of the inner model and gives it the voice.
func (v *voiced) NewSession() (inference.Session, error) {
	inner, err := v.Model.NewSession()
	if err != nil {
		return nil, err
	}
	return &session{Session: inner, v: v}, nil
}

// Status is the inner model's, with what the voice complains about.
func (v *voiced) Status() inference.Status {
	st := v.Model.Status()
	v.mu.Lock()
	defer v.mu.Unlock()
	st.VoiceProblem = v.problem
	return st
}

// report remembers how the voice fares, and logs each change once.
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
		v.log.Warn().Err(err).Msg("no voice: the text goes on without it")
	default:
		v.log.Info().Msg("the voice works again")
	}
}

type session struct {
	inference.Session
	v *voiced
}

// item is one step of the inner engine.
type item struct {
	chunk inference.Chunk
	err   error
}

// spoken is one piece after the voice program.
type spoken struct {
	chunk inference.Chunk
	err   error
}

// Generate answers by the inner engine and speaks the answer.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	if !p.Speech {
		return s.Session.Generate(ctx, p)
	}
	return func(yield func(inference.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		items := make(chan item)
		jobs := make(chan string, 1)
		done := make(chan spoken)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer close(items)
			// A panic in a goroutine of ours would be the whole program's.
			err := rescue.Call(func() error {
				for c, err := range s.Session.Generate(ctx, p) {
					select {
					case items <- item{c, err}:
					case <-ctx.Done():
						return nil
					}
				}
				return nil
			})
			if err != nil {
				select {
				case items <- item{err: err}:
				case <-ctx.Done():
				}
			}
		})
		wg.Go(func() { s.speak(ctx, p.Language, jobs, done) })
		s.mix(ctx, items, jobs, done, yield)
	}
}

// speak turns pieces into sound, one after another, until ctx ends.
func (s *session) speak(ctx context.Context, lang string, jobs <-chan string, done chan<- spoken) {
	for {
		var piece string
		select {
		case piece = <-jobs:
		case <-ctx.Done():
			return
		}
		var out spoken
		out.err = rescue.Call(func() error {
			sp, err := s.v.synth.Speak(ctx, piece, lang)
			if err == nil {
				out.chunk = tighten(sp, piece)
			}
			return err
		})
		select {
		case done <- out:
		case <-ctx.Done():
			return
		}
	}
}

// mix yields text as it comes and sound as it is ready.
func (s *session) mix(ctx context.Context, items <-chan item, jobs chan<- string, done <-chan spoken,
	yield func(inference.Chunk, error) bool,
) {
	var (
		cutter  splitter
		pending []string
		busy    int  // pieces with the voice
		own     bool // the engine has a voice of its own
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
				s.v.log.Warn().Int("pieces", over).Msg("answer too long to be spoken: the rest stays text")
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

// pass yields a spoken piece, unless the engine has a voice of its own, and
// reports whether the answer goes on.
func (s *session) pass(sp spoken, own bool, yield func(inference.Chunk, error) bool) bool {
	if _, crash := rescue.Of(sp.err); crash {
		yield(inference.Chunk{}, sp.err)
		return false
	}
	if !errors.Is(sp.err, ErrNothingToSay) {
		s.v.report(sp.err)
	}
	return sp.err != nil || own || yield(sp.chunk, nil)
}

// tighten cuts the silence around a piece down to what a speaker would leave.
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
