package remote

import "strings"

// Marks that some servers leave in the text.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thinkFilter passes text on without what stands between <think> and </think>,
// however the stream cuts it into pieces, and without the marks that end a turn.
type thinkFilter struct {
	held     string // the start of what may become a mark
	thinking bool
	// thought: something was left out.
	thought bool
	// begun: visible text was passed on; blanks before it are dropped.
	begun bool
}

// write returns what of the text so far may be shown and was not yet.
func (f *thinkFilter) write(text string) string {
	f.held += text
	var out strings.Builder
	for f.held != "" {
		at, mark := f.next()
		if at < 0 {
			break
		}
		if !f.thinking {
			out.WriteString(f.held[:at])
		}
		f.held = f.held[at+len(mark):]
		switch mark {
		case thinkOpen:
			f.thinking, f.thought = true, true
		case thinkClose:
			f.thinking = false
		}
	}
	keep := f.partial()
	if !f.thinking {
		out.WriteString(f.held[:len(f.held)-keep])
	}
	f.held = f.held[len(f.held)-keep:]
	return f.trim(out.String())
}

// flush returns what was held back at the end of the answer.
func (f *thinkFilter) flush() string {
	rest := f.held
	f.held = ""
	if f.thinking {
		return ""
	}
	return f.trim(rest)
}

// trim drops blanks in front of the answer.
func (f *thinkFilter) trim(s string) string {
	if !f.begun {
		s = strings.TrimLeft(s, " \t\r\n")
		f.begun = s != ""
	}
	return s
}

// marks are what is looked for; while thinking only its end.
func (f *thinkFilter) marks() []string {
	if f.thinking {
		return []string{thinkClose}
	}
	return []string{thinkOpen, thinkClose, "<|im_end|>", "<|endoftext|>"}
}

// next finds the first mark in the held text; -1 when there is none.
func (f *thinkFilter) next() (at int, mark string) {
	at = -1
	for _, m := range f.marks() {
		if i := strings.Index(f.held, m); i >= 0 && (at < 0 || i < at) {
			at, mark = i, m
		}
	}
	return at, mark
}

// partial returns how many bytes at the end of the held text could be the start of a mark.
func (f *thinkFilter) partial() int {
	longest := 0
	for _, m := range f.marks() {
		for n := min(len(m)-1, len(f.held)); n > longest; n-- {
			if strings.HasSuffix(f.held, m[:n]) {
				longest = n
			}
		}
	}
	return longest
}
