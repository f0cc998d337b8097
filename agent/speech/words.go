package speech

import (
	"strings"
	"time"
	"unicode"

	"touchline/inference"
	"touchline/internal/ticks"
)

// lettersPerSecond is the usual rate of speech.
const lettersPerSecond = 14

// Time estimates how long it takes to say a number of letters.
func Time(letters int) time.Duration {
	return ticks.Duration(int64(letters), lettersPerSecond)
}

// rate estimates how fast a room's voice speaks, from the last comments, weighted towards recent ones. It is not a limit: it
// places the next look until the sound is there.
type rate struct {
	letters int
	sound   time.Duration
}

// learn adds a spoken comment to the estimate.
func (r *rate) learn(letters int, sound time.Duration) {
	usual := Time(letters)
	r.letters = r.letters*3/4 + letters
	r.sound = r.sound*3/4 + min(max(sound, usual/4), 4*usual)
}

// time returns how long it takes to say a number of letters.
func (r rate) time(letters int) time.Duration {
	if r.letters == 0 {
		return Time(letters)
	}
	return time.Duration(int64(r.sound) * int64(letters) / int64(r.letters))
}

// words are the text of an utterance, with the times of the words that have sound.
type words struct {
	text  string
	timed []timedWord
	// placed is how many bytes of text are in timed, emitted how many were shown.
	placed, emitted int
	written         time.Duration // audio so far, silence included
}

// timedWord is a piece of the text and its time from the first audible sample.
type timedWord struct {
	text string
	at   time.Duration
}

// wrote places the words of a piece of sound.
func (t *words) wrote(w Written) {
	base := t.written - w.Lead
	t.written += w.Length
	if w.Words != nil {
		t.place(base, w.Words)
	} else {
		t.spread(base, w.Length)
	}
}

// nextToken returns the next word of the text not yet placed, with the space
// before it.
func (t *words) nextToken() (string, bool) {
	rest := t.text[t.placed:]
	start := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsSpace(r) })
	if start < 0 {
		return "", false
	}
	end := strings.IndexFunc(rest[start:], unicode.IsSpace)
	if end < 0 {
		return rest, true
	}
	return rest[:start+end], true
}

// lookAhead bounds the words of the text without sound (a dash, an emoji) between
// two that have one.
const lookAhead = 4

// place gives the words of the text the times of the spoken words. Those are a
// cleaned form of the text, so they are matched by their letters.
func (t *words) place(base time.Duration, heard []inference.WordTime) {
	for _, h := range heard {
		from := t.placed
		matched := false
		var pieces []string
		for range lookAhead {
			token, ok := t.nextToken()
			if !ok {
				break
			}
			pieces = append(pieces, token)
			t.placed += len(token)
			if letters(token) == letters(h.Text) {
				matched = true
				break
			}
		}
		if !matched && len(pieces) > 1 {
			t.placed = from + len(pieces[0]) // no match: place one word
			pieces = pieces[:1]
		}
		for _, p := range pieces {
			t.timed = append(t.timed, timedWord{p, max(base+h.Start, 0)})
		}
	}
}

// spread places words over audio without word times: by their length, and only
// as many as fit.
func (t *words) spread(base, length time.Duration) {
	total := len(t.text) - t.placed
	if total == 0 {
		return
	}
	whole := max(length, Time(total))
	from := t.placed
	for {
		token, ok := t.nextToken()
		at := time.Duration(int64(whole) * int64(t.placed-from) / int64(total))
		if !ok || at >= length {
			return
		}
		t.timed = append(t.timed, timedWord{token, max(base+at, 0)})
		t.placed += len(token)
	}
}

// due returns the words that are due some time after the first sample and were not shown, and the time of the next one;
// false if none is placed.
func (t *words) due(since time.Duration) (delta string, next time.Duration, more bool) {
	var b strings.Builder
	seen := 0
	for _, w := range t.timed {
		if seen += len(w.text); seen <= t.emitted {
			continue
		}
		if at := w.at - wordLead; at > since {
			return b.String(), at, true
		}
		b.WriteString(w.text)
	}
	return b.String(), 0, false
}

// rest returns the text that was not shown.
func (t *words) rest() string { return t.text[t.emitted:] }

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}
