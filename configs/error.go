package configs

import (
	"fmt"
	"strings"
)

// Problem is one wrong setting.
type Problem struct {
	// Path of the setting, or "" if the problem concerns no single setting.
	Path string
	// Message is the rule and the value.
	Message string
	Position
	// Source is the environment variable or preset that set the value.
	Source string
}

// Position is a position in a file.
type Position struct {
	File string
	// Line and Column begin at 1; Line is 0 for a value that is not from a file.
	Line, Column int
	// Excerpt is that line with a mark under the column.
	Excerpt string
}

// String returns position, path, message and excerpt.
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

// Error holds all wrong settings of one Load.
type Error struct {
	Problems []Problem
}

// Error lists all problems.
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
