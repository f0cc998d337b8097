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
	// behindInRow is the number of consecutive late sentences, over all rooms, after which the room of the last one falls back.
	behindInRow = 3
	// keepsUp is the time without a late sentence after which one room returns to the model's voice.
	keepsUp = 30 * time.Second
	// lateness of sound that makes no gap, since the room buffers it.
	lateness = 100 * time.Millisecond
)

// errBehind is the reason of a fallback.
var errBehind = errors.New("the model's voice is slower than real time: a speech program speaks in this room until it keeps up")

// overload is the rule for a model's voice behind real time: a program speaks. Rooms fall back and return one by one, so that as many
// as possible keep the voice.
type overload struct {
	mu     sync.Mutex
	behind int       // consecutive late sentences
	last   time.Time // of a late sentence or of the return of a room
}

// sentence counts a sentence, and reports whether its room falls back.
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

// over reports whether a room that fell back returns.
func (o *overload) over(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.last) < keepsUp {
		return false
	}
	o.last = now
	return true
}

// pace compares the sound of an answer with real time.
type pace struct {
	from    time.Time // of the first sample, moved by each gap
	sounded time.Duration
	behind  bool // there was a gap in this sentence
	at      int  // byte of the text after the words with a time
	// open is the end of a sentence, from the first sample on, whose last word ends in a later piece of sound; 0 for none. No later
	// word has a time yet.
	open time.Duration
}

// cut is the end of a sentence within a piece of sound: its time, the number of words before it, and the byte of the text after it
// (0 for no cut).
type cut struct {
	sound     time.Duration
	words, at int
}

// add adds a piece of sound. It returns the first end of a sentence at which the sound can be cut, whether a sentence ended, and whether
// that sentence was behind real time.
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

// pastWord returns the position after the next occurrence of a word in a text, searched from byte at; at if there is none.
func pastWord(text string, at int, word string) int {
	if k := strings.Index(text[at:], word); k >= 0 {
		return at + k + len(word)
	}
	return at
}
