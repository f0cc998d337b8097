package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode"

	"touchline/agent"
	"touchline/agent/look"
)

// WriteText writes a line for each entry: its time in the given zone, its text, and its outcome unless the comment was
// spoken or shown.
func WriteText(w io.Writer, entries iter.Seq2[Entry, error], zone *time.Location) error {
	out := bufio.NewWriter(w)
	for e, err := range entries {
		if err != nil {
			_ = out.Flush()
			return err
		}
		r := e.Record
		line := e.At.In(zone).Format("2006-01-02 15:04:05") + "  "
		if a := e.Alert; a != nil {
			fmt.Fprintln(out, oneLine(fmt.Sprintf("%s[alert %s, %s, %s] %s", line, a.Name, a.Level, a.Phase, a.Reason)))
			continue
		}
		if h := e.Heard; h != nil {
			fmt.Fprintln(out, oneLine(line+withName(h)+orderResult(h.Order)))
			continue
		}
		if e.IsComment() {
			line += r.Text
		}
		if !e.IsComment() || r.Outcome == look.OutcomeCut {
			note := r.Outcome
			if r.Reason != "" {
				note += ": " + r.Reason
			}
			line = strings.TrimRight(line, " ") + "  [" + note + "]"
		}
		fmt.Fprintln(out, oneLine(line))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}

// withName returns an utterance after the speaker's name.
func withName(h *agent.Heard) string { return cmp.Or(h.Name, h.Identity) + ": " + h.Text }

// orderResult describes the result of a spoken order.
func orderResult(o *agent.SpokenOrder) string {
	switch {
	case o == nil:
		return ""
	case o.Refused != "":
		return "  [order refused: " + o.Refused + "]"
	}
	return "  [order: " + o.Effect + "]"
}

// oneLine replaces line breaks and characters that control a terminal.
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

// WriteLines writes each entry at once, as a line of JSON.
func WriteLines(w io.Writer, entries iter.Seq2[Entry, error]) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		text, err := json.Marshal(&e)
		if err != nil {
			return fmt.Errorf("write a record as JSON: %w", err)
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return fmt.Errorf("write the history: %w", err)
		}
	}
	return nil
}
