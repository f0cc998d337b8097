package voice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

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

// mixer joins an answer with its sound: that of the engine, or of the speech program.
type mixer struct {
	v     *voiced
	yield func(inference.Chunk, error) bool
	items chan item   // of the engine; nil after its end
	jobs  chan string // pieces for the speech program
	done  chan item   // of the speech program

	room    *session
	hush    func()      // ends the engine's answer
	given   string      // its text, if it was known before
	wrote   bool        // its text has ended
	own     bool        // the engine speaks
	unread  atomic.Bool // the engine's voice failed, or is too slow: it does not read the rest
	now     func() choice
	pace    pace              // of its sound
	sounds  bool              // it has
	held    []inference.Chunk // the engine's sound until the answer is no silence
	text    strings.Builder   // of the answer
	from    int               // byte of text from which the program speaks
	cutter  splitter
	pending []string
	busy    int // pieces at the speech program
	failed  error
}

// run yields text when it arrives and sound when it is ready.
func (m *mixer) run(ctx context.Context) {
	for m.items != nil || m.busy > 0 || len(m.pending) > 0 {
		var to chan<- string
		var next string
		pieces := m.ready()
		if pieces > 0 {
			to, next = m.jobs, join(m.pending[:pieces])
		}
		goOn := true
		select {
		case it, ok := <-m.items:
			if ok {
				goOn = m.take(it)
			} else {
				goOn = m.end()
			}
		case to <- next:
			m.pending = m.pending[pieces:]
			m.busy++
		case it := <-m.done:
			goOn = m.pass(ctx, it)
		case <-ctx.Done():
			m.yield(inference.Chunk{}, ctx.Err())
			return
		}
		if !goOn {
			return
		}
		if over := len(m.pending) - maxPending; over > 0 {
			m.pending = m.pending[:maxPending]
			m.v.log.Warn().Int("pieces", over).Msg("answer too long to speak: the rest has text only")
		}
	}
	if m.failed != nil {
		m.yield(inference.Chunk{}, m.failed)
	}
}

// ready returns how many of the pieces that wait are spoken at once: one by a program; by the engine, the clauses of a sentence, whose
// end it waits for.
func (m *mixer) ready() int {
	if len(m.pending) == 0 || m.now == nil || m.unread.Load() || !m.now().own {
		return min(1, len(m.pending))
	}
	length := 0
	for i, piece := range m.pending {
		if length += utf8.RuneCountInString(piece); !isClause(piece) || length > longest {
			return i + 1
		}
	}
	if m.items == nil {
		return len(m.pending)
	}
	return 0
}

// take passes on what the engine yields, and reports whether the answer continues.
func (m *mixer) take(it item) bool {
	if it.err != nil {
		m.failed = it.err
		return true
	}
	c := it.chunk
	audio := c
	c.Audio, c.AudioRate, c.Words, c.VoiceFailed, c.TextEnds = nil, 0, nil, nil, false
	before := m.text.Len()
	m.text.WriteString(c.Text)
	rested := -1
	if m.own && len(audio.Audio) > 0 {
		audio.Text, audio.VoiceFailed, audio.TextEnds = "", nil, false
		rested = m.hear(&audio)
		m.held = append(m.held, audio)
	}
	if c.Text != "" && !m.yield(c, nil) {
		return false
	}
	if !m.release(it.chunk.TextEnds || m.wrote) {
		return false
	}
	if it.chunk.TextEnds && !m.written() {
		return false
	}
	if f := it.chunk.VoiceFailed; f != nil && m.own {
		return m.fail(*f)
	} else if rested >= 0 {
		return m.rest(rested)
	} else if !m.own {
		m.feed(before)
	}
	return true
}

// written says once that the text has ended.
func (m *mixer) written() bool {
	if m.wrote {
		return true
	}
	m.wrote = true
	return m.yield(inference.Chunk{TextEnds: true}, nil)
}

// hear follows the pace of the engine's sound. Where the room has to rest the engine's voice, or has chosen another one, it cuts
// the sound at the end of a sentence, and returns the byte of the text behind it; else -1.
func (m *mixer) hear(c *inference.Chunk) int {
	now := time.Now()
	m.pace.add(duration(len(c.Audio), c.AudioRate), now)
	counted := false // a second sentence that ends in the piece tells nothing of its pace
	sound, words, at := m.pace.pass(m.text.String(), *c, func() {
		if !counted {
			m.v.strain.sentence(m.pace.slow, now)
		}
		m.pace.slow, counted = false, true
	})
	if at == 0 || !m.v.strain.resting(m.room) && !m.left() {
		return -1
	}
	c.Audio = c.Audio[:int(sound*time.Duration(c.AudioRate)/time.Second)]
	c.Words = c.Words[:words]
	return at
}

// left reports whether the room has chosen another voice than the engine's.
func (m *mixer) left() bool {
	return m.now != nil && !m.now().own
}

// rest lets the speech program go on from a byte of the text. An engine that still writes goes on writing.
func (m *mixer) rest(from int) bool {
	if m.v.strain.resting(m.room) {
		m.room.rest(true)
		m.unread.Store(true)
	}
	m.own, m.from = false, from
	goOn := true
	e, ok := m.room.Session.(inference.Husher)
	switch {
	case m.given != "":
		m.hush()
		m.items = nil // what it still sends is not read
		goOn = m.complete()
		m.feed(0)
		m.pending = append(m.pending, m.cutter.end()...)
		return goOn
	case m.wrote:
		m.hush()
	case ok:
		e.Hush()
	}
	m.feed(0)
	return goOn
}

// complete passes on what is left of a given text.
func (m *mixer) complete() bool {
	left := m.given[min(m.text.Len(), len(m.given)):]
	if left == "" {
		return true
	}
	m.text.WriteString(left)
	return m.yield(inference.Chunk{Text: left}, nil)
}

// release passes the engine's sound on unless the answer may be silence.
func (m *mixer) release(complete bool) bool {
	if len(m.held) == 0 || inference.Judge(m.text.String(), complete) != inference.Says {
		return true
	}
	held := m.held
	m.held, m.sounds = nil, true
	for _, c := range held {
		if !m.yield(c, nil) {
			return false
		}
	}
	return true
}

// fail lets the speech program go on in place of the engine.
func (m *mixer) fail(f inference.VoiceFailure) bool {
	if f.Err != nil {
		m.v.report(ofModel, failedVoice(f.Err))
	}
	m.own, m.from = false, max(f.From, 0)
	m.unread.Store(true)
	goOn := m.complete()
	m.feed(0)
	return goOn
}

func failedVoice(err error) error { return fmt.Errorf("the model's voice failed: %w", err) }

// feed passes the text after a byte to the speech program, as far as it has to speak it.
func (m *mixer) feed(after int) {
	text := m.text.String()
	start := max(after, m.from)
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start-- // within a character
	}
	if start < len(text) {
		m.pending = append(m.pending, m.cutter.push(text[start:])...)
	}
}

// end takes the end of the engine's answer.
func (m *mixer) end() bool {
	m.items = nil
	if m.failed != nil {
		return true
	}
	if !m.release(true) {
		return false
	}
	switch {
	case m.own && m.sounds:
		m.v.report(ofModel, nil)
		return true
	case m.own && inference.Judge(m.text.String(), true) == inference.Says && !m.fail(inference.VoiceFailure{Err: errMute}):
		return false
	}
	if !m.own {
		m.pending = append(m.pending, m.cutter.end()...)
	}
	if m.busy > 0 || len(m.pending) > 0 {
		return m.written()
	}
	return true
}

// errMute is the failure of a model that yields no sound for words.
var errMute = errors.New("the answer had no sound")

// pass yields what the speech program made, and reports whether the answer continues.
func (m *mixer) pass(ctx context.Context, it item) bool {
	if !it.last {
		return m.yield(it.chunk, nil)
	}
	m.busy--
	if _, crash := rescue.Of(it.err); crash {
		m.yield(inference.Chunk{}, it.err)
		return false
	}
	if (it.err == nil || ctx.Err() == nil) && !errors.Is(it.err, ErrNothingToSay) {
		m.v.report(ofProgram, it.err)
	}
	return true
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
