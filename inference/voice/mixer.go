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
	"touchline/internal/ticks"
)

const (
	// maxPending bounds the queued pieces; the rest of a longer answer has text only.
	maxPending = 64
	// farAhead is the longest sound that is made ahead of playback in rooms that may choose the model's voice.
	farAhead = 5 * time.Second
)

// item is a chunk or an error, from the engine or from aloud.
type item struct {
	chunk inference.Chunk
	err   error
	made  time.Time // by the maker's clock
	// last is the end of a piece, left the part of it without sound after a failure of the model.
	last bool
	left string
}

// mixer joins one text with its sound, from the engine as it writes or from the pieces read aloud. All of it happens in run;
// one goroutine listens to the engine, and one reads the current piece.
type mixer struct {
	choice // of the current piece; own: the engine speaks as it writes
	room   *Room
	lang   string
	says   map[string]string // pronunciations
	now    func() choice     // for the next sentence
	varies bool              // the room may choose another voice meanwhile

	yield func(inference.Chunk, error) bool
	items chan item // from the engine; nil after its end
	done  chan item // from aloud
	hush  func()    // ends the engine's answer
	work  sync.WaitGroup

	text   strings.Builder
	wrote  bool // the text has ended
	failed error

	held   []inference.Chunk // the engine's sound while the answer may be silence
	pace   pace              // of the engine's sound
	sounds bool              // the engine's sound was yielded

	from    int // byte of text from which pieces are read aloud
	cutter  splitter
	pending []string
	busy    bool          // a piece is being read
	unread  bool          // the model does not read: its voice failed, or is behind real time
	reads   bool          // the model reads the present piece
	within  bool          // the present piece is not the last clause of its sentence
	began   time.Time     // of the first sound by aloud
	length  time.Duration // of all sound by aloud
}

// mixer returns the mixer of a text.
func (s *Room) mixer(voice, language string) *mixer {
	m := &mixer{choice: s.v.choose(voice, language), room: s, lang: language, items: make(chan item), done: make(chan item)}
	wanted := m.own
	m.own = s.own(wanted)
	m.unread = wanted && !m.own
	chosen := m.choice
	m.now = func() choice { return chosen }
	if last := s.last.Load(); last != nil {
		m.says = last.says
		if m.varies = last.now != nil; m.varies {
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
		to := maker{to: m.items}
		m.work.Go(func() {
			defer close(to.to)
			err := rescue.Call(func() error {
				for c, err := range answer(inner) {
					if err != nil && inner.Err() != nil && ctx.Err() == nil {
						return nil // hush has ended its sound
					}
					if !to.send(inner, item{chunk: c, err: err}) {
						return nil
					}
				}
				return nil
			})
			if err != nil {
				to.send(ctx, item{err: err})
			}
		})
		m.run(ctx)
	}
}

// maker sends the items of one goroutine. Its clock leaves out the waits for a slow listener, which are not the model's fault.
type maker struct {
	to     chan<- item
	waited time.Duration
}

// send sends an item, and returns false if ctx ends first.
func (k *maker) send(ctx context.Context, it item) bool {
	now := time.Now()
	it.made = now.Add(-k.waited)
	defer func() { k.waited += time.Since(now) }()
	select {
	case k.to <- it:
		return true
	case <-ctx.Done():
		return false
	}
}

// run yields text as it arrives and sound as it is made.
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
	}
	if m.failed != nil {
		m.yield(inference.Chunk{}, m.failed)
	}
}

// next starts to read the next piece, if there is one. If the sound is far ahead, it returns when to try again.
func (m *mixer) next(ctx context.Context) (early <-chan time.Time) {
	n := m.ready()
	if n == 0 {
		return nil
	}
	if m.varies && m.room.v.can().Speech && (m.reads || m.synth.cfg.Program != remote) {
		// Read little ahead, so that a change of the voice applies soon. A speech server reads ahead further, since it may fail.
		if ahead := m.length - time.Since(m.began); ahead > farAhead {
			return time.After(ahead - farAhead)
		}
	}
	piece := join(m.pending[:n])
	m.pending = m.pending[n:]
	if !m.within {
		m.change(m.now())
	}
	m.within, m.busy = isClause(piece), true
	c := choice{m.voice, m.synth, m.reads}
	m.work.Go(func() { m.aloud(ctx, c, piece) })
	return nil
}

// ready returns how many queued pieces are read together: one by a program; all clauses of a complete sentence by the model.
func (m *mixer) ready() int {
	if m.busy || len(m.pending) == 0 {
		return 0
	}
	if m.unread || !m.now().own {
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
	if !m.unread {
		m.reads = m.room.own(true)
		m.unread = !m.reads
	}
}

// take handles an item of the engine, and reports whether the answer continues.
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
		leave = m.hear(&audio, it.made)
		m.held = append(m.held, audio)
	}
	if c.Text != "" && !m.yield(inference.Chunk{Text: c.Text, Anchor: c.Anchor, Facts: c.Facts}, nil) {
		return false
	}
	if !m.release(c.TextEnds || m.wrote) || c.TextEnds && !m.written() {
		return false
	}
	switch {
	case m.own && c.VoiceFailed != nil:
		m.fail(*c.VoiceFailed)
	case leave >= 0:
		m.rest(leave)
	case !m.own:
		m.feed(before)
	}
	return true
}

// written yields the end of the text, once.
func (m *mixer) written() bool {
	if m.wrote {
		return true
	}
	m.wrote = true
	return m.yield(inference.Chunk{TextEnds: true}, nil)
}

// hear measures the pace of the engine's sound. If the room changes to another voice, it cuts the sound at the end of a sentence and
// returns the byte of the text after it; otherwise -1.
func (m *mixer) hear(c *inference.Chunk, made time.Time) int {
	end, ended, behind := m.pace.add(m.text.String(), *c, made)
	if ended {
		m.room.spoke(behind, time.Now())
	}
	if end.at == 0 || !m.room.rests.Load() && m.now().own {
		return -1
	}
	c.Audio = c.Audio[:ticks.Count(end.sound, int64(c.AudioRate))]
	c.Words = c.Words[:end.words]
	return end.at
}

// rest continues with another voice from a byte of the text. An engine that still writes continues.
func (m *mixer) rest(from int) {
	m.unread = m.unread || m.room.rests.Load()
	m.leave(from)
	if m.wrote {
		m.hush()
	} else {
		m.room.model.CancelVoice()
	}
}

// fail continues with a program after a failure of the model's voice.
func (m *mixer) fail(f inference.VoiceFailure) {
	if f.Err != nil {
		m.room.v.report(ofModel, failedVoice(f.Err))
	}
	m.unread = true
	m.leave(max(f.From, 0))
}

// leave ends the use of the engine's sound at a byte of the text.
func (m *mixer) leave(from int) {
	m.own, m.from = false, from
	m.feed(0)
}

// release yields the held sound unless the answer may be silence.
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

// feed queues the pieces of the text after a byte.
func (m *mixer) feed(after int) {
	text := m.text.String()
	start := max(after, m.from)
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start-- // within a character
	}
	if start >= len(text) {
		return
	}
	m.pending = append(m.pending, m.cutter.push(text[start:])...)
	if over := len(m.pending) - maxPending; over > 0 {
		m.pending = m.pending[:maxPending]
		m.room.v.log.Warn().Int("pieces", over).Msg("answer too long to speak: the rest has text only")
	}
}

// end handles the end of the engine's answer.
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
		m.room.v.found()
		return true
	case m.own && inference.ClassifyAnswer(m.text.String(), true) == inference.HasWords:
		m.fail(inference.VoiceFailure{Err: errMute})
	}
	if !m.own {
		m.pending = append(m.pending, m.cutter.end()...)
	}
	if m.busy || len(m.pending) > 0 {
		return m.written()
	}
	return true
}

// pass yields the sound of a piece, or handles its end, and reports whether the answer continues.
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
	switch {
	case m.reads && it.err != nil:
		m.unread, m.reads = true, false
		if it.left != "" {
			m.pending = append([]string{it.left}, m.pending...)
		}
	case !m.reads && (it.err == nil || ctx.Err() == nil) && !errors.Is(it.err, ErrNothingToSay):
		m.room.v.report(ofProgram, it.err)
	}
	return true
}
