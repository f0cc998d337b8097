package phrases_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/phrases"
)

// TestLanguages: every file has keys of the English one alone, as many hints, and the same places for values.
func TestLanguages(t *testing.T) {
	t.Parallel()
	all := phrases.All()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	texts := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".txt") })
	require.Len(t, all, len(texts))
	verbs := regexp.MustCompile(`%[+a-z]*`)
	english := all[0]
	for _, language := range all {
		require.Len(t, language["hints"], 4)
		for key, list := range language {
			if key == "reply.refused" {
				require.NotContains(t, english, key, "English says the error itself")
				continue
			}
			require.Contains(t, english, key)
			require.NotContains(t, list, "", key)
			if slices.Contains([]string{"did", "order", "reply"}, strings.Split(key, ".")[0]) {
				require.Len(t, list, 1, key)
				require.Equal(t, verbs.FindAllString(english[key][0], -1), verbs.FindAllString(list[0], -1), list[0])
			}
		}
	}
	for _, e := range texts {
		text, err := os.ReadFile(e.Name())
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			require.True(t, line == "" || line[0] == '#' || regexp.MustCompile(`^[a-z_.]+: \S`).MatchString(line), "%s: %s", e.Name(), line)
		}
	}
}

func TestIn(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Una frase corta.", phrases.In("es-MX", "hints")[1])
	require.Equal(t, "One short sentence.", phrases.In("sv", "hints")[1])
	require.Equal(t, "Commenting is on again.", phrases.In("fr", "did.go_on")[0], "English where a language has no phrase")
	require.Empty(t, phrases.In("en", "nothing"))
	for tag, want := range map[string][2]string{"de-AT": {"Gut: tor", "de-AT"}, "it": {"Okay: tor", "en"}} {
		text, language := phrases.Say(tag, "reply.acts", "tor")
		require.Equal(t, want, [2]string{text, language})
	}
}
