// Package words holds nano's wordings for training, and held-out ones for tests: text files, explained in their first lines. It reads
// them, and draws orders, questions and alert rules for package judge; package grammar draws the training's.
package words

import (
	"math/rand/v2"
	"regexp"
	"strings"
)

// pool has the patterns of a kind for training, and the held-out ones.
type pool struct{ trained, heldOut []string }

func (p pool) of(heldOut bool) []string {
	if heldOut {
		return p.heldOut
	}
	return p.trained
}

// with returns the pool with one more pattern.
func (p pool) with(l Line) pool {
	if l.HeldOut {
		p.heldOut = append(p.heldOut, l.Text)
	} else {
		p.trained = append(p.trained, l.Text)
	}
	return p
}

// Book has the orders and rules about a world in a language.
type Book struct {
	kinds          []string
	orders         map[string]pool
	nouns, clauses map[string]pool
	frames         pool
}

// Open reads the files of a world ("match" or "yard") and a language ("en" or "es").
func Open(world, language string) (*Book, error) {
	b := &Book{orders: map[string]pool{}, nouns: map[string]pool{}, clauses: map[string]pool{}}
	orders, err := Sections("orders." + world + "." + language)
	if err != nil {
		return nil, err
	}
	for _, l := range orders {
		if _, known := b.orders[l.Kind]; !known {
			b.kinds = append(b.kinds, l.Kind)
		}
		b.orders[l.Kind] = b.orders[l.Kind].with(l)
	}
	topics, err := Sections("topics." + world + "." + language)
	if err != nil {
		return nil, err
	}
	for _, l := range topics {
		names := b.nouns
		if l.Clause {
			names = b.clauses
		}
		names[l.Kind] = names[l.Kind].with(l)
	}
	frames, err := Sections("frames." + language)
	if err != nil {
		return nil, err
	}
	for _, l := range frames {
		b.frames = b.frames.with(l)
	}
	return b, nil
}

// Kinds lists the kinds of orders.
func (b *Book) Kinds() []string { return b.kinds }

// Order draws a wording of a kind of order: a pattern of its own, or a frame with its topic. Patterns, frames and names of topics can be
// held out of training.
func (b *Book) Order(dice *rand.Rand, kind string, heldOut bool) string {
	const own = 0.4 // share of the own patterns of a kind that also has a topic
	if _, topic := b.nouns[kind]; !topic || dice.Float64() < own {
		return capital(pick(dice, b.orders[kind].of(heldOut)))
	}
	newFrame := heldOut && dice.IntN(2) == 0
	frame := pick(dice, b.frames.of(newFrame))
	names := b.nouns
	if strings.Contains(frame, "{W}") {
		names = b.clauses
	}
	name := pick(dice, names[kind].of(heldOut && !newFrame))
	return capital(strings.NewReplacer("{X}", name, "{W}", name).Replace(frame))
}

// Rule draws an alert rule; "" for a kind that has none.
func (b *Book) Rule(dice *rand.Rand, kind string, heldOut bool) string {
	return pick(dice, b.clauses[kind].of(heldOut))
}

// either is a choice between texts: (a|b).
var either = regexp.MustCompile(`\([^()]*\|[^()]*\)`)

// pick draws a pattern and one of its texts.
func pick(dice *rand.Rand, patterns []string) string {
	if len(patterns) == 0 {
		return ""
	}
	text := either.ReplaceAllStringFunc(patterns[dice.IntN(len(patterns))], func(s string) string {
		all := strings.Split(s[1:len(s)-1], "|")
		return all[dice.IntN(len(all))]
	})
	return strings.Join(strings.Fields(text), " ") // no double spaces where a choice is empty
}

// capital begins a text with a capital letter.
func capital(text string) string {
	r := []rune(text)
	for i, c := range r {
		if c != '¿' && c != '¡' {
			return string(r[:i]) + strings.ToUpper(string(c)) + string(r[i+1:])
		}
	}
	return text
}
