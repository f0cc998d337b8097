package voice

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"touchline/inference"
)

const (
	// firstClause and laterClause are the shortest lengths (characters) of a piece
	// that ends at a comma: short at first for an early sound, then longer for
	// better intonation.
	firstClause = 24
	laterClause = 60
	// longest is the length at which text without punctuation is cut, at a space if possible.
	longest = 180
	// maxMute bounds the text without a word before a piece, in bytes; longer text is dropped.
	maxMute = 500
)

// splitter cuts streamed text into pieces for speech: sentences, or clauses of
// long sentences. It holds the text while it may be inference.Silence.
type splitter struct {
	rest    strings.Builder
	mute    string // text without a word, for the next piece
	started bool   // a piece was returned
	certain bool   // the text is not inference.Silence
}

// push adds text and returns the complete pieces.
func (s *splitter) push(delta string) []string {
	s.rest.WriteString(delta)
	if !s.certain {
		if inference.ClassifyAnswer(s.rest.String(), false) != inference.HasWords {
			return nil
		}
		s.certain = true
	}
	return s.cut(false)
}

// end returns the remaining pieces, none if the text is silence.
func (s *splitter) end() []string {
	if !s.certain && inference.ClassifyAnswer(s.rest.String(), true) != inference.HasWords {
		return nil
	}
	return s.cut(true)
}

func (s *splitter) cut(last bool) []string {
	text := s.rest.String()
	var pieces []string
	for {
		limit := laterClause
		if !s.started {
			limit = firstClause
		}
		n := cutPoint(text, limit, last)
		if n == 0 {
			break
		}
		if p := strings.TrimSpace(s.mute + text[:n]); speaks(p) {
			pieces = append(pieces, p)
			s.started, s.mute = true, ""
		} else if p != "" && len(p) < maxMute {
			s.mute = p + " "
		}
		text = text[n:]
	}
	if last {
		if p := strings.TrimSpace(s.mute + text); speaks(p) {
			pieces = append(pieces, p)
		}
		text = ""
	}
	if len(text) != s.rest.Len() {
		s.rest.Reset()
		s.rest.WriteString(text)
	}
	return pieces
}

// speaks reports whether a piece has a word to speak.
func speaks(piece string) bool {
	return slices.ContainsFunc(tokenize(piece), token.sounds)
}

// cutPoint returns the end of the first piece of text in bytes, 0 if unknown. last
// marks the end of the text.
func cutPoint(text string, clause int, last bool) int {
	var count, space, after int
	for i := 0; i < len(text); i = after {
		if !last && !utf8.FullRuneInString(text[i:]) {
			return 0 // an incomplete character
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		after = i + size
		count++
		if unicode.IsSpace(r) {
			space = after
		}
		switch {
		case r == '\n':
			return after
		case strings.ContainsRune("。！？", r):
			return closing(text, after)
		case strings.ContainsRune("，、；：", r) && count >= clause/2:
			return after
		case strings.ContainsRune(".!?…", r):
			if n, ok := sentenceEnd(text, i, after, last); ok {
				return n
			}
		case strings.ContainsRune(",;:—–", r) && count >= clause:
			if next, size := utf8.DecodeRuneInString(text[after:]); size > 0 && unicode.IsSpace(next) {
				return after
			}
		}
		if count >= longest {
			if space > 0 {
				return space
			}
			return after
		}
	}
	return 0
}

// sentenceEnd reports whether the stop at i ends a sentence, and where: it does
// before a space, except after an abbreviation, an initial or a list number.
func sentenceEnd(text string, i, after int, last bool) (end int, ok bool) {
	end = closing(text, after)
	next, size := utf8.DecodeRuneInString(text[end:])
	switch {
	case size == 0:
		return end, last
	case !unicode.IsSpace(next):
		return 0, false
	case text[i] != '.':
		return end, true
	}
	word := text[:i]
	if n := strings.LastIndexFunc(word, unicode.IsSpace); n >= 0 {
		word = word[n+1:]
	}
	word = strings.TrimLeft(word, `"'([*_“‘`)
	if slices.Contains(abbreviations(), strings.ToLower(word)) {
		return 0, false
	}
	// J. Smith, U.S. team, 1. first.
	if r, n := utf8.DecodeRuneInString(word); n > 0 && n == len(word) && unicode.IsUpper(r) {
		return 0, false
	}
	if strings.Contains(word, ".") && utf8.RuneCountInString(word) <= 5 {
		rest := strings.TrimLeftFunc(text[end:], unicode.IsSpace)
		if rest == "" {
			return end, last
		}
		first, _ := utf8.DecodeRuneInString(rest)
		return end, unicode.IsUpper(first)
	}
	if strings.TrimLeftFunc(word, unicode.IsDigit) == "" && strings.TrimSpace(text[:i]) == word {
		return 0, false
	}
	return end, true
}

// closing returns the position after further stops, closing quotes and brackets.
func closing(text string, from int) int {
	for from < len(text) {
		r, n := utf8.DecodeRuneInString(text[from:])
		if !strings.ContainsRune(".!?…。！？\"')]”’»*_", r) {
			break
		}
		from += n
	}
	return from
}

// abbreviations returns words whose dot does not end a sentence.
func abbreviations() []string {
	return []string{
		"dr", "mr", "mrs", "ms", "prof", "st", "vs", "no", "nr", "approx", "ca", "etc", "e.g", "i.e", "z.b", "bzw",
		"jr", "sr", "min", "max", "sec", "fig", "hr", "fr", "sra", "lt", "col", "gen", "capt", "sgt", "mt", "inc", "ltd",
	}
}

// clauseEnds are the stops within a sentence. No space follows a wide one.
const (
	wideEnds   = "，、；："
	clauseEnds = ",;:—–" + wideEnds
)

// isClause reports whether a piece ends within a sentence.
func isClause(piece string) bool {
	r, _ := utf8.DecodeLastRuneInString(piece)
	return strings.ContainsRune(clauseEnds, r)
}

// join joins pieces.
func join(pieces []string) string {
	var b strings.Builder
	for i, piece := range pieces {
		if i > 0 {
			if r, _ := utf8.DecodeLastRuneInString(pieces[i-1]); !strings.ContainsRune(wideEnds, r) {
				b.WriteByte(' ')
			}
		}
		b.WriteString(piece)
	}
	return b.String()
}
