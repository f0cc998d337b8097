package voice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/rescue"
)

// maxPending bounds the pieces that wait for speech; the rest of a longer answer has text only.
const maxPending = 64

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
