package words

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.txt
var files embed.FS

// Lines reads a file, such as "match.en", without its comments and empty lines.
func Lines(name string) ([]string, error) {
	text, err := files.ReadFile(name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("read the wordings %q: %w", name, err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out, nil
}

// Line is a pattern of a file of orders, topics or frames.
type Line struct {
	// Kind of order; "" for frames.
	Kind string
	// HeldOut means that training does not use it.
	HeldOut bool
	// Clause means that the pattern is a clause, not a noun or a whole text.
	Clause bool
	Text   string
}

// Sections reads a file of orders, topics or frames, such as "orders.match.en".
func Sections(name string) ([]Line, error) {
	lines, err := Lines(name)
	if err != nil {
		return nil, err
	}
	var out []Line
	at := Line{}
	for _, text := range lines {
		switch {
		case text[0] == '[':
			at = Line{Kind: strings.Trim(text, "[]")}
		case text == "= held out":
			at.HeldOut, at.Clause = true, false
		case text == "when":
			at.Clause = true
		default:
			at.Text = text
			out = append(out, at)
		}
	}
	return out, nil
}
