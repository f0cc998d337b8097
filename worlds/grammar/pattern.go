package grammar

import (
	"regexp"
	"strings"
)

// pattern is a text with choices in it: "(a|b) goal". Parentheses do not nest.
type pattern struct {
	parts [][]string // each a choice; literal text is a choice of one
	count int        // of the texts
}

// choices matches a choice.
var choices = regexp.MustCompile(`\(([^()]*\|[^()]*)\)`)

func newPattern(text string) pattern {
	p := pattern{count: 1}
	add := func(some []string) {
		p.parts = append(p.parts, some)
		p.count *= len(some)
	}
	from := 0
	for _, m := range choices.FindAllStringSubmatchIndex(text, -1) {
		add([]string{text[from:m[0]]})
		add(strings.Split(text[m[2]:m[3]], "|"))
		from = m[1]
	}
	add([]string{text[from:]})
	return p
}

// text returns the nth text, without double spaces where a choice is empty. The last choice changes fastest.
func (p pattern) text(i int) string {
	chosen := make([]string, len(p.parts))
	for k := len(p.parts) - 1; k >= 0; k-- {
		n := len(p.parts[k])
		chosen[k] = p.parts[k][i%n]
		i /= n
	}
	return strings.Join(strings.Fields(strings.Join(chosen, "")), " ")
}

// all lists the texts.
func (p pattern) all() []string {
	out := make([]string, p.count)
	for i := range out {
		out[i] = p.text(i)
	}
	return out
}

// pick draws a text.
func (p pattern) pick(d Dice) string { return p.text(d.IntN(p.count)) }
