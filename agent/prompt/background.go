package prompt

import (
	"fmt"
	"strings"
)

const (
	// MaxBackground bounds a background as the prompt has it, in letters: about 500 tokens. A character beyond ASCII
	// counts as three.
	MaxBackground = 1500

	maxName = 64  // characters
	maxFact = 300 // characters
	maxSaid = 100 // characters
)

// Background is the background of a room: what the engine cannot see. The zero value is an empty one.
type Background struct {
	// Text is the background as people wrote it.
	Text string `json:"text"`
	// Prompt is the background's part of the system prompt.
	Prompt string `json:"prompt"`
	// Pronunciations maps words in lower case to the text that the voice reads instead.
	Pronunciations map[string]string `json:"pronunciations,omitempty"`
}

// ReadBackground reads a background in YAML or JSON of at most MaxForm bytes. An empty text is an empty background. The error joins
// all that is wrong.
//
//	teams: [{name, colour, people: [{name, number, role, look}]}]
//	people: [{name, number, role, look}]
//	terms: {term: meaning}
//	pronunciations: {word: what the voice reads}
//	facts: [sentence]
func ReadBackground(text []byte) (Background, error) {
	if len(text) > MaxForm {
		return Background{}, fmt.Errorf("expected at most %d bytes, got %d", MaxForm, len(text))
	}
	root, err := readForm(text)
	if err != nil {
		return Background{}, err
	}
	var r backgroundReader
	top := r.fields("", root, "teams", "people", "terms", "pronunciations", "facts")
	for i, v := range r.list("teams", top["teams"]) {
		r.team(fmt.Sprintf("teams[%d]", i), v)
	}
	if people := r.people("people", top["people"]); people != "" {
		r.write("People: " + people)
	}
	for i, name := range r.pairs("terms", top["terms"]) {
		meaning := r.line("terms."+name, top["terms"].(group).values[i], maxFact, true) //nolint:forcetypeassert // pairs found them
		r.write(fmt.Sprintf("%s means %s", name, meaning))
	}
	for i, v := range r.list("facts", top["facts"]) {
		r.write(r.line(fmt.Sprintf("facts[%d]", i), v, maxFact, true))
	}
	out := Background{Text: strings.TrimSpace(string(text))}
	for i, word := range r.pairs("pronunciations", top["pronunciations"]) {
		path := "pronunciations." + word
		r.bad.That(len(strings.Fields(word)) == 1, path, "for one word; give each word its own", fmt.Sprintf("%.40q", word))
		said := r.line(path, top["pronunciations"].(group).values[i], maxSaid, true) //nolint:forcetypeassert // as above
		if out.Pronunciations == nil {
			out.Pronunciations = map[string]string{}
		}
		out.Pronunciations[strings.ToLower(word)] = said
	}
	if len(r.lines) > 0 {
		out.Prompt = "These facts are given. Use the names when you recognise somebody:\n" + strings.Join(r.lines, "\n")
	}
	if n := weigh(out.Prompt); n > MaxBackground {
		r.bad.Add(fmt.Errorf("the sheet is %d letters long in the prompt, and a letter beyond ASCII counts as three; "+
			"shorten it to %d", n, MaxBackground))
	}
	if err := r.bad.Err(); err != nil {
		return Background{}, err
	}
	return out, nil
}

func weigh(text string) (n int) {
	for _, r := range text {
		n++
		if r > 127 {
			n += 2
		}
	}
	return n
}

// backgroundReader writes the lines of a background's prompt.
type backgroundReader struct {
	binder

	lines []string
}

// write adds a line, with a full stop.
func (r *backgroundReader) write(line string) {
	if line != "" && !strings.ContainsAny(line[len(line)-1:], ".!?") {
		line += "."
	}
	r.lines = append(r.lines, "- "+line)
}

func (r *backgroundReader) team(path string, v any) {
	f := r.fields(path, v, "name", "colour", "people")
	line := "Team " + r.line(path+".name", f["name"], maxName, true)
	if colour := r.line(path+".colour", f["colour"], maxName, false); colour != "" {
		line += " in " + colour
	}
	if people := r.people(path+".people", f["people"]); people != "" {
		line += ": " + people
	}
	r.write(line)
}

// people returns the people of a list in one line: "9 Ana Ruiz (striker); Luis Vidal". An item is a group or a name.
func (r *backgroundReader) people(path string, v any) string {
	var all []string
	for i, v := range r.list(path, v) {
		path := fmt.Sprintf("%s[%d]", path, i)
		if name, ok := v.(string); ok {
			all = append(all, r.line(path, name, maxName, true))
			continue
		}
		f := r.fields(path, v, "name", "number", "role", "look")
		one := r.line(path+".name", f["name"], maxName, true)
		if number := r.line(path+".number", f["number"], 8, false); number != "" {
			one = number + " " + one
		}
		var more []string
		for _, field := range []string{"role", "look"} {
			if text := r.line(path+"."+field, f[field], maxName, false); text != "" {
				more = append(more, text)
			}
		}
		if len(more) > 0 {
			one += " (" + strings.Join(more, ", ") + ")"
		}
		all = append(all, one)
	}
	return strings.Join(all, "; ")
}

// pairs returns the names in a group with free-form names, after it checks each one.
func (r *backgroundReader) pairs(path string, v any) []string {
	g, ok := v.(group)
	if text, isText := v.(string); !ok && v != nil && (!isText || text != "") {
		r.bad.That(false, path, "a group, such as "+path+": {word: text}", kindOf(v))
	}
	names := make([]string, len(g.names))
	for i, name := range g.names {
		names[i] = r.line(path, name, maxName, true)
	}
	return names
}
