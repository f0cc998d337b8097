package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode"
)

// WriteText writes a line for each entry: when, what was said, and what became
// of it when that is not the usual. Times are in the given zone.
func WriteText(w io.Writer, entries iter.Seq2[Entry, error], zone *time.Location) error {
	out := bufio.NewWriter(w)
	for e, err := range entries {
		if err != nil {
			_ = out.Flush()
			return err
		}
		r := e.Record
		line := e.At.In(zone).Format("2006-01-02 15:04:05") + "  "
		if e.IsComment() {
			line += r.Text
		}
		var notes []string
		if !e.IsComment() || r.Outcome != "spoken" && r.Outcome != "shown" {
			notes = append(notes, r.Outcome)
			if r.Reason != "" {
				notes = append(notes, r.Reason)
			}
		}
		if len(notes) > 0 {
			line = strings.TrimRight(line, " ") + "  [" + strings.Join(notes, ": ") + "]"
		}
		fmt.Fprintln(out, oneLine(line))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}

// oneLine replaces what would begin a line or steer a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s)
}

// WriteJSON writes a JSON array with an entry on each line.
func WriteJSON(w io.Writer, entries iter.Seq2[Entry, error]) error {
	out := bufio.NewWriter(w)
	before := "["
	for e, err := range entries {
		if err != nil {
			_ = out.Flush()
			return err
		}
		text, err := json.Marshal(&e)
		if err != nil {
			return fmt.Errorf("write a record as JSON: %w", err)
		}
		fmt.Fprintf(out, "%s\n%s", before, text)
		before = ","
	}
	if before == "[" {
		fmt.Fprint(out, before)
	}
	fmt.Fprint(out, "\n]\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}
