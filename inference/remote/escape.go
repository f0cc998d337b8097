package remote

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// escape breaks up possible control tokens of a chat template: it inserts a
// space after each "<" before a letter or one of | ｜ / < ! _, and after each "["
// before a capital letter or "/". So "<|im_end|>", "</s>", "<image>",
// "<<SYS>>" and "[INST]" become "< |im_end|>", "< /s>", "< image>",
// "< < SYS>>" and "[ INST]". A client cannot do more, because a server tokenises
// text and template together.
func escape(text string) string {
	var out strings.Builder
	for i, r := range text {
		out.WriteRune(r)
		next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
		switch {
		case r == '<' && (unicode.IsLetter(next) || strings.ContainsRune("|｜/<!_", next)),
			r == '[' && (unicode.IsUpper(next) || next == '/'):
			out.WriteByte(' ')
		}
	}
	return out.String()
}
