package fault_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/fault"
)

// FuzzText reads the error of a server.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		`{"error":{"message":"no","metadata":{"raw":"{\"error\":\"inner\"}"}}}`, `{"detail":[{"loc":["body",0],"msg":"required"}]}`,
		"<html><head><title>502 &amp; more</title>", `"text"`, "\xff\x00", `[[[["a"]]]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text := fault.Text(raw)
		require.True(t, utf8.ValidString(text))
		require.LessOrEqual(t, utf8.RuneCountInString(text), 301)
	})
}
