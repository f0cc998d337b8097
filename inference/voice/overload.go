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
	// behindInRow sentences in a row behind real time, of all rooms, make the room of the last one leave the model's voice.
	behindInRow = 3
	// keepsUp is how long no sentence may be behind before a room has the model's voice again.
	keepsUp = 30 * time.Second
	// lateness of a piece of sound that is not heard as a gap: the sound that waits in the room.
	lateness = 100 * time.Millisecond
)

// errBehind is the problem of a model that speaks too slowly.
var errBehind = errors.New("the model's voice is slower than real time: a speech program speaks in this room until it keeps up")

// overload is the rule for a model's voice behind real time: a program speaks. One room after another leaves the voice, and has it back,
// so that the others keep it.
type overload struct {
	mu     sync.Mutex
	behind int       // sentences in a row
	last   time.Time // of such a sentence, or of a room that had the voice back
}

// sentence counts a sentence, and reports whether its room is to leave the voice.
func (o *overload) sentence(behind bool, now time.Time) (leave bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !behind {
		o.behind = 0
		return false
	}
	o.behind, o.last = (o.behind+1)%behindInRow, now
	return o.behind == 0
}

// over reports whether a room that left the voice has it back.
func (o *overload) over(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.last) < keepsUp {
		return false
	}
	o.last = now
	return true
}

// pace follows the sound of an answer as it comes.
type pace struct {
	from    time.Time // when its first sample would have been heard, later by each gap
	sounded time.Duration
	behind  bool // there was a gap in this sentence
	at      int  // byte of the text behind the words that have a time
	// open is the end of a sentence whose last word goes on beyond its piece of sound, from the first sample on; 0 for none. No later
	// word has a time yet.
	open time.Duration
}

// cut is the end of a sentence within a piece of sound: its time, the number of words before it, and the byte of the text behind it,
// 0 for none.
type cut struct {
	sound     time.Duration
	words, at int
}

// add takes a piece of sound of a text. It returns the first end of a sentence at which the sound may be cut, whether a sentence ended,
// and whether that one was behind real time.
func (p *pace) add(text string, c inference.Chunk, now time.Time) (first cut, ended, behind bool) {
	if p.from.IsZero() {
		p.from = now
	} else if late := now.Sub(p.from) - p.sounded; late > lateness {
		p.behind = true
		p.from = p.from.Add(late)
	}
	from := p.sounded
	p.sounded += duration(len(c.Audio), c.AudioRate)
	if p.open > 0 && p.open <= p.sounded {
		first = cut{sound: p.open - from, at: p.at}
	}
	if p.open <= p.sounded || len(c.Words) > 0 {
		p.open = 0
	}
	for i, w := range c.Words {
		p.at = pastWord(text, p.at, w.Text)
		if !ends(w.Text) {
			continue
		}
		ended = true
		switch end := from + w.End; {
		case end > p.sounded && i == len(c.Words)-1:
			p.open = end
		case first.at == 0 && w.End >= 0 && end <= p.sounded:
			first = cut{w.End, i + 1, p.at}
		}
	}
	if ended {
		behind, p.behind = p.behind, false
	}
	return first, ended, behind
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
