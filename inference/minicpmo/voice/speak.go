package voice

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/internal/ticks"
)

// ChunkTokens is the number of tokens in a chunk of the official streaming call.
const ChunkTokens = 10

// Token is one step of an answer.
type Token struct {
	// ID is the chosen id. With states the last one is the stop id.
	ID   int32
	Stop bool
	// Text completed by the token. Characters with missing bytes come with a later
	// token, at the latest with an empty one (ID -1) at the end.
	Text string
	// Hidden is the state after the final norm at the position before this token;
	// nil unless requested.
	Hidden []float32
}

// Room lets one answer of a room sound after another.
type Room struct {
	sounding chan struct{}            // held by the answer whose sound is made
	last     atomic.Pointer[tts.Turn] // of the last answer
}

// NewRoom returns a silent room.
func NewRoom() *Room { return &Room{sounding: make(chan struct{}, 1)} }

// CancelVoice ends the sound of the room's last answer.
func (r *Room) CancelVoice() {
	if t := r.last.Load(); t != nil {
		t.Cancel()
	}
}

// Answer is the text that Say speaks.
type Answer struct {
	// Tokens with their states.
	Tokens func(ctx context.Context) iter.Seq2[Token, error]
	// Voice is the setting of the prompt.
	Voice string
	// Seed is the seed of the sampling.
	Seed uint64
	// Given is set for a text that is known already: it is not yielded, and does not wait for the room's last answer.
	Given bool
}

// Say yields an answer with its sound: the text at once, the sound as it is made, also after the text has ended. Sound waits until the
// sound of the room's last answer has ended.
func (v *Speech) Say(ctx context.Context, room *Room, a Answer) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		tokens := make(chan answered)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer close(tokens)
			for t, err := range a.Tokens(ctx) {
				select {
				case tokens <- answered{t, err}:
				case <-ctx.Done():
					return
				}
			}
		})
		draws := rand.New(rand.NewPCG(a.Seed, 3))
		m := merger{speech: v, chunker: chunker{turn: tts.NewTurn(v.reference(a.Voice), draws.Float64)}, yield: yield, silent: a.Given}
		if inference.IsBehind(ctx) {
			m.chunker.turn.Behind()
		}
		if !m.silent { // a given text does not wait
			m.voice = room.sounding
			room.last.Store(m.chunker.turn)
		}
		defer m.leave()
		m.run(ctx, tokens)
	}
}

// longestReading is the length in bytes of a text that is read as one turn; it keeps a turn within its slot.
const longestReading = 300

// chunker cuts the tokens of an answer into pieces for the voice, as the official streaming call: the state of a token comes with the
// next one, so the last of an answer that was cut is not spoken.
type chunker struct {
	turn  *tts.Turn
	piece tts.Piece
	held  *Token // its state is not known yet
	text  strings.Builder
	ready []tts.Piece // that wait until the answer is known to have words
	says  bool
}

// take adds a token, and reports whether the answer is now known to be speech.
func (c *chunker) take(t Token) (begins bool) {
	c.text.WriteString(t.Text)
	switch {
	case t.ID < 0: // the end of a character
		c.piece.Text += t.Text
		return false
	case c.held != nil:
		c.piece.IDs = append(c.piece.IDs, c.held.ID)
		c.piece.Hidden = append(c.piece.Hidden, t.Hidden...)
		c.piece.Text += c.held.Text
		c.held = nil
	}
	if t.Stop {
		return c.end(false)
	}
	c.held = &t
	if len(c.piece.IDs) == ChunkTokens {
		return c.hand()
	}
	return false
}

// end hands over the rest. cut is set if the answer stopped before its end.
func (c *chunker) end(cut bool) bool {
	if c.piece.Last {
		return false
	}
	if c.held != nil { // it is shown, and not spoken
		c.piece.Text += c.held.Text
		c.held = nil
	}
	c.piece.Last, c.piece.Cut = true, cut
	return c.hand()
}

// hand gives the piece to the turn, once the answer is known to have words.
func (c *chunker) hand() (begins bool) {
	last := c.piece.Last
	c.ready = append(c.ready, c.piece)
	c.piece = tts.Piece{Last: last}
	if !c.says {
		c.says = inference.ClassifyAnswer(c.text.String(), last) == inference.HasWords
		begins = c.says
	}
	if c.says {
		for _, p := range c.ready {
			c.turn.Feed(p)
		}
		c.ready = nil
	}
	return begins
}

// answered is a step of an answer.
type answered struct {
	token Token
	err   error
}

// merger joins the tokens of an answer and the sound of its turn.
type merger struct {
	speech  *Speech
	chunker chunker
	yield   func(inference.Chunk, error) bool
	silent  bool // the text is known already

	voice    chan struct{} // of the room; nil if it need not be held
	waits    bool          // the turn is to be submitted when the voice is held
	holds    bool
	speaking bool // the turn was submitted, and has not ended
	sounded  time.Duration
	words    []inference.WordTime // of the sound, from its first sample
}

func (m *merger) run(ctx context.Context, tokens <-chan answered) {
	var failed error
	for tokens != nil || m.speaking || m.waits {
		var wake <-chan struct{}
		if m.speaking {
			wake = m.chunker.turn.Wake()
		}
		var free chan<- struct{}
		if m.waits {
			free = m.voice
		}
		select {
		case t, ok := <-tokens:
			begins := false
			switch {
			case !ok:
				tokens = nil
				begins = failed == nil && m.chunker.end(true)
			case t.err != nil:
				failed = t.err
				m.waits = false
				m.chunker.turn.Cancel()
			default:
				if t.token.Text != "" && !m.silent && !m.yield(inference.Chunk{Text: t.token.Text}, nil) {
					return
				}
				begins = m.chunker.take(t.token)
			}
			if begins && !m.begin() {
				return
			}
			if tokens == nil && failed == nil && !m.silent && (m.speaking || m.waits) && !m.yield(inference.Chunk{TextEnds: true}, nil) {
				return
			}
		case free <- struct{}{}:
			m.waits, m.holds = false, true
			if !m.submit() {
				return
			}
		case <-wake:
			if !m.listen() {
				return
			}
		case <-ctx.Done():
			m.yield(inference.Chunk{}, ctx.Err())
			return
		}
	}
	if failed != nil {
		m.yield(inference.Chunk{}, failed)
	}
}

// begin submits the turn, when the room's last one has ended.
func (m *merger) begin() bool {
	if m.voice == nil {
		return m.submit()
	}
	m.waits = true
	return true
}

// leave cancels the turn, which has no effect on one that has ended, and lets the room's next one begin.
func (m *merger) leave() {
	m.chunker.turn.Cancel()
	if m.holds {
		<-m.voice
	}
}

func (m *merger) submit() bool {
	if err := m.speech.Talker.Submit(m.chunker.turn); err != nil {
		return m.lost(err)
	}
	m.speaking = true
	return true
}

// listen forwards the turn's sound so far, with its words. It returns false when the reader stops.
func (m *merger) listen() bool {
	for {
		sound, ok, ended, err := m.chunker.turn.Take()
		switch {
		case ok:
			c := inference.Chunk{Audio: sound.Samples, AudioRate: tts.Rate, Words: append([]inference.WordTime{}, sound.Words...)}
			for _, w := range sound.Words {
				m.words = append(m.words, inference.WordTime{Text: w.Text, Start: w.Start + m.sounded, End: w.End + m.sounded})
			}
			m.sounded += ticks.Duration(int64(len(sound.Samples)), tts.Rate)
			if !m.yield(c, nil) {
				return false
			}
		case ended:
			m.speaking = false
			if err == nil || errors.Is(err, tts.ErrCancelled) {
				return true
			}
			if errors.Is(err, tts.ErrTooLong) { // the rest is text
				m.speech.long.Add(1)
				return true
			}
			return m.lost(err)
		default:
			return true
		}
	}
}

// lost yields the byte of the text from which on the answer has no sound.
func (m *merger) lost(err error) bool {
	m.speech.lost.Add(1)
	text, at := m.chunker.text.String(), 0
	for _, w := range m.words {
		if w.End > m.sounded {
			break
		}
		if i := strings.Index(text[at:], w.Text); i >= 0 {
			at += i + len(w.Text)
		}
	}
	return m.yield(inference.Chunk{VoiceFailed: &inference.VoiceFailure{From: sentenceStart(text, at), Err: err}}, nil)
}

// sentenceStart returns where the sentence at a byte of a text begins; a sentence that ends there is over.
func sentenceStart(text string, at int) int {
	start := 0
	for i, r := range text[:at] {
		next := i + utf8.RuneLen(r)
		switch {
		case strings.ContainsRune("。！？", r):
			start = next
		case strings.ContainsRune(".!?", r) && (next == len(text) || text[next] == ' ' || text[next] == '\n'):
			start = next
		}
	}
	return start
}

// Sentences cuts a text after sentences into parts of at most longestReading bytes, or at spaces where a sentence is longer.
func Sentences(text string) (parts []string) {
	for len(text) > longestReading {
		at := sentenceStart(text, longestReading)
		if at == 0 {
			if at = strings.LastIndexByte(text[:longestReading], ' '); at <= 0 {
				for at = longestReading; !utf8.RuneStart(text[at]); at-- {
				}
			}
		}
		parts, text = append(parts, text[:at]), text[at:]
	}
	return append(parts, text)
}
