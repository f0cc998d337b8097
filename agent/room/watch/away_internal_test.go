package watch

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzAway reads the state of a camera from an attribute of its participant.
func FuzzAway(f *testing.F) {
	f.Add(`{"state":"stalled","reason":"no picture for 10 s"}`)
	f.Add(`{"state":"failed","reason":"` + strings.Repeat("\\u202e", 300) + `"}`)
	f.Add(`{"state":"connecting"}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		why := readAway(text)
		require.LessOrEqual(t, utf8.RuneCountInString(why), max(maxReason, 40))
		require.False(t, strings.ContainsFunc(why, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", why)
	})
}
