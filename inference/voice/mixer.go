package voice

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/rescue"
)

const (
	// maxPending bounds the pieces that wait for speech; the rest of a longer answer has text only.
	maxPending = 64
	// farAhead is how far the sound of a room may be ahead of what is heard before its next sentence is spoken, where the room may choose
	// the model's voice. An answer that the model speaks as it writes is as far ahead at most.
	farAhead = 5 * time.Second
)

// item is a chunk or an error, of the inner engine or of a piece that is read aloud.
type item struct {
	chunk inference.Chunk
	err   error
	// Of the end of a piece.
	last   bool
	read   bool   // by the model
	unread bool   // it failed
	left   string // and this has no sound
}

// mixer joins one text with its sound: that of the engine as it writes, or of the pieces that are read aloud. All of it happens in run;
// one goroutine listens to the engine, and one reads the piece under way.
type mixer struct {
	choice // of the piece under way; own: the engine speaks as it writes
	room   *session
	lang   string
	says   map[string]string // pronunciations
	given  string            // the text, if it was known before
	now    func() choice     // for the next sentence; nil for one voice

	yield func(inference.Chunk, error) bool
	items chan item // of the engine; nil after its end
	done  chan item // of the piece under way
	hush  func()    // ends the engine's answer
	work  sync.WaitGroup

	text   strings.Builder
	wrote  bool // the text has ended
	failed error

	held   []inference.Chunk // the engine's sound until the answer is no silence
	pace   pace              // of it
	sounds bool              // it has been passed on

	from    int // byte of text from which pieces are read aloud
	cutter  splitter
	pending []string
	busy    bool // a piece is being read
	unread  bool // the engine does not read: its voice failed, or is behind
	reads   bool // it reads the piece under way
	within  bool // that piece is a clause of a sentence that goes on
	began   time.Time
	length  time.Duration // of the sound since then
}

// mixer returns that of a text. speaks tells whether the model can speak it.
func (s *session) mixer(voice, language string, speaks bool) *mixer {
	m := &mixer{choice: s.v.choose(voice, language), room: s, lang: language, items: make(chan item), done: make(chan item)}
	wanted := m.own
	m.own = s.own(wanted && speaks)
	m.unread = wanted && !m.own
	if last := s.last.Load(); last != nil {
		m.says = last.says
		if last.now != nil {
			m.now = func() choice { return s.v.choose(last.now(), language) }
		}
	}
	return m
}

// mix yields the chunks of an answer with its speech. It is used once.
func (m *mixer) mix(ctx context.Context, answer func(context.Context) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		defer m.work.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		inner, hush := context.WithCancel(ctx)
		defer hush()
		m.yield, m.hush = yield, hush
		to := m.items
		m.work.Go(func() {
			defer close(to)
			err := rescue.Call(func() error {
				for c, err := range answer(inner) {
					if err != nil && inner.Err() != nil && ctx.Err() == nil {
						return nil // only its sound was ended
					}
					if !send(inner, to, item{chunk: c, err: err}) {
						return nil
					}
				}
				return nil
			})
			if err != nil {
				send(ctx, to, item{err: err})
			}
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

// run yields text when it arrives and sound when it is ready.
func (m *mixer) run(ctx context.Context) {
	for m.items != nil || m.busy || len(m.pending) > 0 {
		early := m.next(ctx)
		goOn := true
		select {
		case it, ok := <-m.items:
			if ok {
				goOn = m.take(it)
			} else {
				goOn = m.end()
			}
		case it := <-m.done:
			goOn = m.pass(ctx, it)
		case <-early:
		case <-ctx.Done():
			m.yield(inference.Chunk{}, ctx.Err())
			return
		}
		if !goOn {
			return
		}
		if over := len(m.pending) - maxPending; over > 0 {
			m.pending = m.pending[:maxPending]
			m.room.v.log.Warn().Int("pieces", over).Msg("answer too long to speak: the rest has text only")
		}
	}
	if m.failed != nil {
		m.yield(inference.Chunk{}, m.failed)
	}
}

// next begins to read the next piece, if there is one. It returns when to try again, if it is too early.
func (m *mixer) next(ctx context.Context) (early <-chan time.Time) {
	n := m.ready()
	if n == 0 {
		return nil
	}
	if m.now != nil && m.room.v.Model.Capabilities().Speech && (m.reads || m.synth.cfg.Program != remote) {
		// A choice of the model's voice acts soon. A speech server works ahead, as it may fail.
		if ahead := m.length - time.Since(m.began); ahead > farAhead {
			return time.After(ahead - farAhead)
		}
	}
	a := aloud{room: m.room, piece: join(m.pending[:n]), lang: m.lang, says: m.says, to: m.done}
	m.pending = m.pending[n:]
	if m.now != nil && !m.within {
		m.change(m.now())
	}
	m.within, m.busy = isClause(a.piece), true
	a.choice = choice{m.voice, m.synth, m.reads}
	m.work.Go(func() { a.run(ctx) })
	return nil
}

// ready returns how many of the pieces that wait are read at once: one by a program; by the engine, the clauses of a sentence, whose
// end it waits for.
func (m *mixer) ready() int {
	if m.busy || len(m.pending) == 0 {
		return 0
	}
	if m.unread || m.now == nil || !m.now().own {
		return 1
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

// change takes the voice of the next sentence. The voice before stays if the model is chosen and cannot read.
func (m *mixer) change(c choice) {
	m.reads = false
	if !c.own {
		m.synth = c.synth
		return
	}
	m.voice = c.voice
	if _, ok := m.room.Session.(inference.Speaker); ok && !m.unread {
		m.reads = m.room.own(true)
		m.unread = !m.reads
	}
}

// take passes on what the engine yields, and reports whether the answer continues.
func (m *mixer) take(it item) bool {
	if it.err != nil {
		m.failed = it.err
		return true
	}
	c := it.chunk
	before, leave := m.text.Len(), -1
	m.text.WriteString(c.Text)
	if m.own && len(c.Audio) > 0 {
		audio := inference.Chunk{Audio: c.Audio, AudioRate: c.AudioRate, Words: c.Words}
		leave = m.hear(&audio)
		m.held = append(m.held, audio)
	}
	if c.Text != "" && !m.yield(inference.Chunk{Text: c.Text}, nil) {
		return false
	}
	if !m.release(c.TextEnds || m.wrote) || c.TextEnds && !m.written() {
		return false
	}
	switch {
	case m.own && c.VoiceFailed != nil:
		return m.fail(*c.VoiceFailed)
	case leave >= 0:
		return m.rest(leave)
	case !m.own:
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

// hear follows the pace of the engine's sound. Where the room has to leave the engine's voice, or has chosen another one, it cuts the
// sound at the end of a sentence, and returns the byte of the text behind it; else -1.
func (m *mixer) hear(c *inference.Chunk) int {
	now := time.Now()
	end, ended, behind := m.pace.add(m.text.String(), *c, now)
	if ended {
		m.room.spoke(behind, now)
	}
	if end.at == 0 || !m.room.rests.Load() && (m.now == nil || m.now().own) {
		return -1
	}
	c.Audio = c.Audio[:int(end.sound*time.Duration(c.AudioRate)/time.Second)]
	c.Words = c.Words[:end.words]
	return end.at
}

// rest lets another voice go on from a byte of the text. An engine that still writes goes on writing.
func (m *mixer) rest(from int) bool {
	m.unread = m.unread || m.room.rests.Load()
	goOn := m.leave(from)
	e, ok := m.room.Session.(inference.VoiceCanceller)
	switch {
	case m.given != "":
		m.hush()
		m.items = nil // what it still sends is not read
		m.pending = append(m.pending, m.cutter.end()...)
	case m.wrote:
		m.hush()
	case ok:
		e.CancelVoice()
	}
	return goOn
}

// fail lets a program go on in place of the engine.
func (m *mixer) fail(f inference.VoiceFailure) bool {
	if f.Err != nil {
		m.room.v.report(ofModel, failedVoice(f.Err))
	}
	m.unread = true
	return m.leave(max(f.From, 0))
}

// leave ends the use of the engine's sound at a byte of the text. What is left of a given text is passed on.
func (m *mixer) leave(from int) bool {
	m.own, m.from = false, from
	goOn := true
	if left := m.given[min(m.text.Len(), len(m.given)):]; left != "" {
		m.text.WriteString(left)
		goOn = m.yield(inference.Chunk{Text: left}, nil)
	}
	m.feed(0)
	return goOn
}

// release passes the engine's sound on unless the answer may be silence.
func (m *mixer) release(complete bool) bool {
	if len(m.held) == 0 || inference.ClassifyAnswer(m.text.String(), complete) != inference.HasWords {
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

// feed cuts the text after a byte into pieces, as far as they are read aloud.
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
		m.room.v.report(ofModel, nil)
		return true
	case m.own && inference.ClassifyAnswer(m.text.String(), true) == inference.HasWords && !m.fail(inference.VoiceFailure{Err: errMute}):
		return false
	}
	if !m.own {
		m.pending = append(m.pending, m.cutter.end()...)
	}
	if m.busy || len(m.pending) > 0 {
		return m.written()
	}
	return true
}

// pass yields the sound of a piece, or takes its end, and reports whether the answer continues.
func (m *mixer) pass(ctx context.Context, it item) bool {
	if !it.last {
		if m.began.IsZero() {
			m.began = time.Now()
		}
		m.length += duration(len(it.chunk.Audio), it.chunk.AudioRate)
		return m.yield(it.chunk, nil)
	}
	m.busy = false
	if _, crash := rescue.Of(it.err); crash {
		m.yield(inference.Chunk{}, it.err)
		return false
	}
	if it.unread {
		m.unread, m.reads = true, false
		if it.left != "" {
			m.pending = append([]string{it.left}, m.pending...)
		}
	}
	if !it.read && (it.err == nil || ctx.Err() == nil) && !errors.Is(it.err, ErrNothingToSay) {
		m.room.v.report(ofProgram, it.err)
	}
	return true
}
