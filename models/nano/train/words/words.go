// Package words holds the wordings that nano is trained on, and those that are held out for tests: text files, which
// their first lines explain. It draws orders, questions and alert rules from them; the training itself reads the files
// in Python.
package words

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

//go:embed *.txt
var files embed.FS

// pool has the patterns of a kind for training, and those held out of it.
type pool struct{ trained, heldOut []string }

func (p pool) of(heldOut bool) []string {
	if heldOut {
		return p.heldOut
	}
	return p.trained
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
	kind, heldOut, clause := "", false, false
	read := func(name string, add func(line string)) error {
		text, err := files.ReadFile(name + "." + language + ".txt")
		if err != nil {
			return fmt.Errorf("read the wordings of the %s in %q: %w", world, language, err)
		}
		kind, heldOut, clause = "", false, false
		for line := range strings.Lines(string(text)) {
			switch line = strings.TrimRight(line, "\n"); {
			case line == "" || line[0] == '#':
			case line[0] == '[':
				kind, heldOut, clause = strings.Trim(line, "[]"), false, false
			case line == "= held out":
				heldOut, clause = true, false
			case line == "when":
				clause = true
			default:
				add(line)
			}
		}
		return nil
	}
	put := func(p pool, line string) pool {
		if heldOut {
			p.heldOut = append(p.heldOut, line)
		} else {
			p.trained = append(p.trained, line)
		}
		return p
	}
	if err := read("orders."+world, func(line string) {
		if _, known := b.orders[kind]; !known {
			b.kinds = append(b.kinds, kind)
		}
		b.orders[kind] = put(b.orders[kind], line)
	}); err != nil {
		return nil, err
	}
	if err := read("topics."+world, func(line string) {
		if clause {
			b.clauses[kind] = put(b.clauses[kind], line)
		} else {
			b.nouns[kind] = put(b.nouns[kind], line)
		}
	}); err != nil {
		return nil, err
	}
	return b, read("frames", func(line string) { b.frames = put(b.frames, line) })
}

// Kinds lists the kinds of orders.
func (b *Book) Kinds() []string { return b.kinds }

// Order draws a wording of a kind of order: a pattern of its own, or a frame around its topic. Held out of training are
// patterns, frames, and names of topics.
func (b *Book) Order(dice *rand.Rand, kind string, heldOut bool) string {
	const own = 0.4 // of the held-out wordings of a topic; fewer of the others
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

// Rule draws what an alert rule says; "" for a kind that has none.
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
	return strings.TrimSpace(either.ReplaceAllStringFunc(patterns[dice.IntN(len(patterns))], func(s string) string {
		all := strings.Split(s[1:len(s)-1], "|")
		return all[dice.IntN(len(all))]
	}))
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
