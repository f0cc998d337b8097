package voice

import (
	"cmp"
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
)

// Wrap adds the voice of synth to a model: for a prompt with Speech it speaks
// each sentence of the answer as soon as its text is complete. Chunks of text pass
// unchanged and at once; each piece of audio follows in its own chunk, in order,
// with the times of its words. Nothing of a silent answer is spoken.
//
// A model that speaks (Capabilities.Speech) speaks for itself where the voice is "auto" or "model". Where its voice fails,
// synth speaks on from that sentence.
//
// Where the model's voice is slower than real time for some sentences in a row, the room that began to speak last goes on with synth
// from its next sentence on, until the others keep up.
//
// Where a room chooses another voice, it takes over from the next sentence on. The model reads what it did not speak as it wrote. For that,
// synth speaks at most a few seconds ahead in rooms of a model that speaks.
//
// When a voice fails, Status returns the problem, and each new one is logged once; that of a room whose model's voice rests is returned by
// its session's VoiceProblem alone. What no voice speaks has text only.
func Wrap(model inference.Model, synth *Synthesizer) inference.Model {
	return &voiced{Model: model, synth: synth, log: synth.log, strain: newStrain()}
}

// voiced is a model with the voice of a Synthesizer.
type voiced struct {
	inference.Model
	synth  *Synthesizer
	log    zerolog.Logger
	strain *strain

	mu       sync.Mutex
	problems [2]string // of the model's voice and of the speech program; "" without one
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
	can.Speech, can.OwnVoice = true, can.Speech
	return can
}

// ownVoice returns a voice of the model, as in inference.Prompt, for one that was asked for: "" is the configured one.
func (v *voiced) ownVoice(voice string) string {
	if cfg := v.synth.as(voice).cfg; cfg.Program == inference.VoiceModel && cfg.Name != "" {
		return cfg.Program + ":" + cfg.Name
	}
	return voice
}

// speaker returns the programs that speak with a voice, and whether the model itself does.
func (v *voiced) speaker(voice string) (synth *Synthesizer, own bool) {
	synth = v.synth.as(voice)
	switch synth.cfg.Program {
	case inference.VoiceAuto, inference.VoiceModel:
		if v.Model.Capabilities().Speech {
			return synth.as(inference.VoiceAuto), true
		}
	}
	return synth, false
}

// choice is a voice that a room has chosen.
type choice struct {
	voice string       // of the model, as in inference.Prompt
	synth *Synthesizer // the programs
	own   bool         // the model is to speak
}

// chosenNow returns the choice at the time; nil for one voice.
func (v *voiced) chosenNow(voice func() string) func() choice {
	if voice == nil {
		return nil
	}
	return func() choice {
		id := voice()
		synth, own := v.speaker(id)
		return choice{v.ownVoice(id), synth, own}
	}
}

// VoiceStats counts the sentences of its speech programs.
func (v *voiced) VoiceStats() Stats { return v.synth.Stats() }

// Status returns the inner model's status with the problem of the voice.
func (v *voiced) Status() inference.Status {
	st := v.Model.Status()
	v.mu.Lock()
	defer v.mu.Unlock()
	st.VoiceProblem = cmp.Or(v.problems[ofProgram], v.problems[ofModel], st.VoiceProblem)
	return st
}

// Whose problem it is.
const (
	ofModel = iota
	ofProgram
)

// report sets the problem of a voice and logs each change.
func (v *voiced) report(whose int, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	v.mu.Lock()
	changed := problem != v.problems[whose]
	v.problems[whose] = problem
	v.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		v.log.Warn().Err(err).Msg("speech failed")
	default:
		v.log.Info().Msg("speech works again")
	}
}

var (
	_ inference.Speaker       = (*session)(nil)
	_ inference.VoiceReporter = (*session)(nil)
)

type session struct {
	inference.Session
	v     *voiced
	last  atomic.Pointer[told] // of the last prompt
	rests atomic.Bool          // a program speaks in place of the model, which is too slow
}

// told is what a prompt tells the voice, also for texts that are not answers.
type told struct {
	says map[string]string // pronunciations
	now  func() string     // Prompt.VoiceNow
}

// VoiceProblem implements inference.VoiceReporter.
func (s *session) VoiceProblem() string {
	if s.rests.Load() {
		return errSlow.Error()
	}
	return ""
}

// own reports whether the model speaks, if it is to speak.
func (s *session) own(wanted bool) bool {
	own := wanted && s.v.strain.begin(s, time.Now())
	s.rest(wanted && !own)
	return own
}

// rest sets whether a program speaks in place of the model, and logs each change.
func (s *session) rest(now bool) {
	switch before := s.rests.Swap(now); {
	case now && !before:
		s.v.log.Warn().Err(errSlow).Msg("voice fell back")
	case before && !now:
		s.v.log.Info().Msg("voice fallback ended")
	}
}

// Close implements inference.Session.
func (s *session) Close() error {
	s.v.strain.leave(s)
	return s.Session.Close()
}

// item is a chunk or an error, of the inner engine or of the speech program.
type item struct {
	chunk inference.Chunk
	err   error
	last  bool // the program has spoken its piece
}

// Generate yields the inner engine's answer with speech.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	s.last.Store(&told{p.Pronunciations, p.VoiceNow})
	if !p.Speech {
		return s.Session.Generate(ctx, p)
	}
	synth, wanted := s.v.speaker(p.Voice)
	own := s.own(wanted)
	if !own && s.v.Model.Capabilities().Speech {
		p.Speech = false // it would be made for nothing
	}
	p.Voice = s.v.ownVoice(p.Voice)
	how := speaking{
		synth: synth, own: own, refused: wanted && !own, language: p.Language, says: p.Pronunciations, now: s.v.chosenNow(p.VoiceNow),
	}
	return s.voiced(ctx, how, func(ctx context.Context) iter.Seq2[inference.Chunk, error] { return s.Session.Generate(ctx, p) })
}

// Speak implements inference.Speaker. A model with a voice that speaks nothing but its answers leaves it to the programs. What
// cannot be spoken has text only.
func (s *session) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	how := speaking{given: text, language: language}
	synth, wanted := s.v.speaker(voice)
	how.synth = synth
	if last := s.last.Load(); last != nil {
		how.says, how.now = last.says, s.v.chosenNow(last.now)
	}
	speaker, ok := s.Session.(inference.Speaker)
	how.own = s.own(wanted && ok)
	how.refused = wanted && !how.own
	return s.voiced(ctx, how, func(ctx context.Context) iter.Seq2[inference.Chunk, error] {
		if how.own {
			return orText(text, speaker.Speak(ctx, text, s.v.ownVoice(voice), language))
		}
		return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: text}, nil) }
	})
}

// orText yields speech. If it fails before its first sound, a failure of the voice and the text take the place of the error.
func orText(text string, speech iter.Seq2[inference.Chunk, error]) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		said, sounds := 0, false
		for c, err := range speech {
			if err != nil && !sounds && said <= len(text) {
				failure := &inference.VoiceFailure{Err: err}
				if errors.Is(err, inference.ErrNoVoice) {
					failure.Err = nil // it speaks nothing but answers
				}
				c, err = inference.Chunk{Text: text[said:], VoiceFailed: failure}, nil
			}
			said += len(c.Text)
			sounds = sounds || len(c.Audio) > 0
			if !yield(c, err) || c.VoiceFailed != nil {
				return
			}
		}
	}
}

// speaking is how a text is spoken.
type speaking struct {
	synth    *Synthesizer
	own      bool          // by the model
	refused  bool          // the model was to speak, but cannot now
	now      func() choice // for the next sentence; may be nil
	given    string        // the text, if it is known; "" for an answer
	language string
	says     map[string]string // pronunciations
}

// voiced yields the chunks of answer with speech.
func (s *session) voiced(ctx context.Context, how speaking, answer func(context.Context) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		if how.own {
			defer s.v.strain.end(s)
		}
		inner, hush := context.WithCancel(ctx)
		defer hush()
		items := make(chan item)
		m := &mixer{
			v: s.v, room: s, own: how.own, now: how.now, given: how.given, hush: hush, yield: yield,
			items: items, jobs: make(chan string, 1), done: make(chan item),
		}
		m.unread.Store(how.refused)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer close(items)
			err := rescue.Call(func() error {
				for c, err := range answer(inner) {
					if err != nil && inner.Err() != nil && ctx.Err() == nil {
						return nil // only its sound was ended
					}
					if !send(inner, items, item{chunk: c, err: err}) {
						return nil
					}
				}
				return nil
			})
			if err != nil {
				send(ctx, items, item{err: err})
			}
		})
		wg.Go(func() {
			r := &reciter{speaking: how, room: s, unread: &m.unread, done: m.done}
			defer r.leave()
			r.run(ctx, m.jobs)
		})
		m.run(ctx)
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

// pauseAfter returns the silence behind a piece.
func pauseAfter(piece string) time.Duration {
	if n := len(piece); n > 0 && closing(piece, n-1) == n {
		return sentencePause
	}
	return clausePause
}

// tighten shortens the silence around a piece to that of natural speech.
func tighten(sp Speech, piece string) inference.Chunk {
	c := inference.Chunk{Audio: sp.Audio, AudioRate: sp.Rate, Words: sp.Words}
	regions := sounding(sp.Rate, sp.Audio, time.Hour)
	if len(regions) == 0 {
		return c
	}
	after := pauseAfter(piece)
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
