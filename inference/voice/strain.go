package voice

import (
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"touchline/inference"
)

const (
	// slowSentences in a row that came slower than they are heard make a room rest its model's voice.
	slowSentences = 3
	// restFor is how long the model's voice must keep up before a room has it again.
	restFor = 30 * time.Second
	// lateness of a piece of sound that is not heard as a gap: the sound that waits in the room.
	lateness = 100 * time.Millisecond
)

// errSlow is the problem of a model that speaks too slowly.
var errSlow = errors.New("the model's voice is slower than real time: a speech program speaks in this room until it keeps up")

// strain decides which rooms have the model's voice. Where it is too slow for all, the room that began to speak last rests it.
type strain struct {
	mu    sync.Mutex
	slow  int // sentences in a row
	last  time.Time
	began map[*session]speaker // rooms that speak
	rests map[*session]bool
}

// speaker is a room that speaks.
type speaker struct {
	since   time.Time
	answers int
}

func newStrain() *strain { return &strain{began: map[*session]speaker{}, rests: map[*session]bool{}} }

// begin reports whether a room may speak in the model's voice now. One that rests has it again after a while without a slow sentence,
// one room after another.
func (s *strain) begin(room *session, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rests[room] {
		if now.Sub(s.last) < restFor {
			return false
		}
		delete(s.rests, room)
		s.last = now
	}
	speaks := s.began[room]
	if speaks.answers++; speaks.answers == 1 {
		speaks.since = now
	}
	s.began[room] = speaks
	return true
}

// end is the end of an answer of a room.
func (s *strain) end(room *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	speaks := s.began[room]
	if speaks.answers--; speaks.answers > 0 {
		s.began[room] = speaks
	} else {
		delete(s.began, room)
	}
}

// leave forgets a room.
func (s *strain) leave(room *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.began, room)
	delete(s.rests, room)
}

// sentence is the end of a sentence.
func (s *strain) sentence(slow bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slow {
		s.slow = 0
		return
	}
	s.slow, s.last = s.slow+1, now
	if s.slow < slowSentences {
		return
	}
	s.slow = 0
	var last *session
	for room, began := range s.began {
		if !s.rests[room] && (last == nil || began.since.After(s.began[last].since)) {
			last = room
		}
	}
	if last != nil {
		s.rests[last] = true
	}
}

// resting reports whether a room rests the model's voice.
func (s *strain) resting(room *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rests[room]
}

// pace follows the sound of an answer as it comes.
type pace struct {
	from    time.Time // when its first sample would have been heard, later by each gap
	sounded time.Duration
	slow    bool // there was a gap in this sentence
	at      int  // byte of the text behind the words that have a time
	// open is the end of a sentence whose last word goes on beyond its piece of sound, from the first sample on; 0 for none. No later
	// word has a time yet.
	open time.Duration
}

// add takes a piece of sound.
func (p *pace) add(length time.Duration, now time.Time) {
	if p.from.IsZero() {
		p.from = now
	} else if late := now.Sub(p.from) - p.sounded; late > lateness {
		p.slow = true
		p.from = p.from.Add(late)
	}
	p.sounded += length
}

// pass passes words of a text with their piece of sound, the one that was added last. It returns the time in the sound, the number of
// words and the byte of the text behind the first sentence that ends within the sound; byte 0 if none does. ended is called for each end
// of a sentence.
func (p *pace) pass(text string, c inference.Chunk, ended func()) (sound time.Duration, words, at int) {
	from := p.sounded - duration(len(c.Audio), c.AudioRate)
	if p.open > 0 && p.open <= p.sounded {
		sound, at = p.open-from, p.at
	}
	if p.open <= p.sounded || len(c.Words) > 0 {
		p.open = 0
	}
	for i, w := range c.Words {
		p.at = pastWord(text, p.at, w.Text)
		if !ends(w.Text) {
			continue
		}
		ended()
		switch end := from + w.End; {
		case end > p.sounded && i == len(c.Words)-1:
			p.open = end
		case at == 0 && w.End >= 0 && end <= p.sounded:
			sound, words, at = w.End, i+1, p.at
		}
	}
	return sound, words, at
}

// ends reports whether a word ends a sentence.
func ends(word string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(word, "\"')]”’»*_"))
	return strings.ContainsRune(".!?…。！？", r)
}

// pastWord returns the byte of a text behind the next place of a word, from a byte on; that byte if the word does not follow.
func pastWord(text string, at int, word string) int {
	if k := strings.Index(text[at:], word); k >= 0 {
		return at + k + len(word)
	}
	return at
}
