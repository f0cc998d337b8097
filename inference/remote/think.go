package remote

import "strings"

// The marks around reasoning that some servers leave in the text.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thinkFilter removes the reasoning between <think> and </think> and the end
// marks of a turn from a stream of text.
type thinkFilter struct {
	held     string // may be the start of a mark
	thinking bool
	reasoned bool // the answer has reasoning
	begun    bool // visible text was returned; blanks before it are dropped
}

// write adds text and returns the text that can be shown.
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
			f.thinking, f.reasoned = true, true
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

// flush returns the held text at the end of the answer.
func (f *thinkFilter) flush() string {
	rest := f.held
	f.held = ""
	if f.thinking {
		return ""
	}
	return f.trim(rest)
}

// trim drops blanks before the answer.
func (f *thinkFilter) trim(s string) string {
	if !f.begun {
		s = strings.TrimLeft(s, " \t\r\n")
		f.begun = s != ""
	}
	return s
}

// marks returns the marks to remove; during reasoning only its end.
func (f *thinkFilter) marks() []string {
	if f.thinking {
		return []string{thinkClose}
	}
	return []string{thinkOpen, thinkClose, "<|im_end|>", "<|endoftext|>"}
}

// next finds the first mark in the held text, at -1 without one.
func (f *thinkFilter) next() (at int, mark string) {
	at = -1
	for _, m := range f.marks() {
		if i := strings.Index(f.held, m); i >= 0 && (at < 0 || i < at) {
			at, mark = i, m
		}
	}
	return at, mark
}

// partial returns the number of bytes at the end of the held text that may start a mark.
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
