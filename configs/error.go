package configs

import (
	"fmt"
	"strings"
)

// Problem is one wrong setting.
type Problem struct {
	// Path of the setting, "" when the trouble is not with one setting.
	Path string
	// Message says what was expected and what came.
	Message string
	// File, Line and Column (both from 1) say where in a file it stands; Line is 0 when it
	// came from elsewhere.
	File         string
	Line, Column int
	// Excerpt is that line with a mark under the column.
	Excerpt string
	// Source names what set it when that was no file: an environment variable or a preset.
	Source string
}

// String gives place, path, message and excerpt.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Line > 0:
		fmt.Fprintf(&b, "%s [%d:%d] ", p.File, p.Line, p.Column)
	case p.File != "":
		b.WriteString(p.File + " ")
	case p.Source != "":
		b.WriteString(p.Source + " ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Excerpt != "" {
		b.WriteString("\n" + p.Excerpt)
	}
	return b.String()
}

// Error lists every wrong setting of one Load.
type Error struct {
	Problems []Problem
}

// Error prints all problems, one after another.
func (e *Error) Error() string {
	var b strings.Builder
	if len(e.Problems) == 1 {
		b.WriteString("1 setting is wrong:")
	} else {
		fmt.Fprintf(&b, "%d settings are wrong:", len(e.Problems))
	}
	for _, p := range e.Problems {
		b.WriteString("\n" + p.String())
	}
	return b.String()
}
