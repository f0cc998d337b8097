package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// qwenPattern is the splitting expression of tokenizer.json that split
// implements; Parse rejects others.
const qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
	`|\s*[\r\n]+|\s+(?!\S)|\s+`

type class uint8

const (
	other class = iota // punctuation, marks, controls
	letter
	number
	space
	newline // a space that is CR or LF
)

func classOf(r rune) class {
	switch {
	case r < 0x80:
		switch {
		case r|0x20 >= 'a' && r|0x20 <= 'z':
			return letter
		case r >= '0' && r <= '9':
			return number
		case r == '\n' || r == '\r':
			return newline
		case r == ' ' || r >= '\t' && r <= '\r':
			return space
		}
		return other
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	case r >= 0x1c89:
		return newer(r)
	}
	return other
}

// newer returns the class of letters and numbers of Unicode 15.1 and 16, which the original's
// tables have but this Go release lacks.
func newer(r rune) class {
	within := func(bounds ...rune) bool { // pairs
		for i := 0; i < len(bounds); i += 2 {
			if bounds[i] <= r && r <= bounds[i+1] {
				return true
			}
		}
		return false
	}
	switch {
	case within(
		0x1c89, 0x1c8a, 0xa7cb, 0xa7cd, 0xa7da, 0xa7dc, 0x105c0, 0x105f3, 0x10d4a, 0x10d65, 0x10d6f, 0x10d85,
		0x10ec2, 0x10ec4, 0x11380, 0x11389, 0x1138b, 0x1138b, 0x1138e, 0x1138e, 0x11390, 0x113b5, 0x113b7, 0x113b7,
		0x113d1, 0x113d1, 0x113d3, 0x113d3, 0x11bc0, 0x11be0, 0x13460, 0x143fa, 0x16100, 0x1611d, 0x16d40, 0x16d6c,
		0x18cff, 0x18cff, 0x1e5d0, 0x1e5ed, 0x1e5f0, 0x1e5f0, 0x2ebf0, 0x2ee5d):
		return letter
	case within(
		0x10d40, 0x10d49, 0x116d0, 0x116e3, 0x11bf0, 0x11bf9, 0x16130, 0x16139, 0x16d70, 0x16d79, 0x1ccf0, 0x1ccf9,
		0x1e5f1, 0x1e5fa):
		return number
	}
	return other
}

// split returns the length of the first word of a non-empty text. The rules in
// order: a contraction; letters, after at most one character that is neither
// number nor line break; one number; other characters, after at most one space
// and before line breaks; spaces up to their last line break; spaces without the
// last one, which belongs to the next word.
func split(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	r, size := utf8.DecodeRuneInString(s)
	first := classOf(r)
	switch first {
	case letter:
		return letters(s, size)
	case number:
		return size
	case other, space:
		if size == len(s) {
			return size
		}
		next, n := utf8.DecodeRuneInString(s[size:])
		switch after := classOf(next); {
		case after == letter:
			return letters(s, size+n)
		case first == other:
			return others(s, size)
		case r == ' ' && after == other:
			return others(s, size+n)
		}
	case newline:
	}
	return spaces(s)
}

// letters extends a word of n bytes by the letters that follow.
func letters(s string, n int) int {
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		if classOf(r) != letter {
			break
		}
		n += size
	}
	return n
}

// others extends a word of n bytes by other characters and then line breaks.
func others(s string, n int) int {
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		if classOf(r) != other {
			break
		}
		n += size
	}
	for n < len(s) && (s[n] == '\r' || s[n] == '\n') {
		n++
	}
	return n
}

func spaces(s string) int {
	n, breaks, last := 0, 0, 0
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		c := classOf(r)
		if c != space && c != newline {
			break
		}
		n += size
		if c == newline {
			breaks = n
		}
		last = size
	}
	switch {
	case breaks > 0:
		return breaks
	case n == len(s) || n == last:
		return n
	}
	return n - last
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd in any case
// at the start of s. The long s (ſ) counts as an s.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	if s[1:3] == "ſ" {
		return 3
	}
	switch string([]byte{s[1] | 0x20, s[2] | 0x20}) {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}
