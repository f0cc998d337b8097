package remote

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain breaks what a chat template may take for a control token: a space goes
// after each "<" before a letter or one of | ｜ / < ! _, and after each "["
// before a capital letter or "/". So "<|im_end|>", "</s>", "<image>",
// "<<SYS>>" and "[INST]" become "< |im_end|>", "< /s>", "< image>",
// "< < SYS>>" and "[ INST]". A server tokenises text and template together, so
// this is all that a client can do; everything else passes unchanged.
func plain(text string) string {
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
