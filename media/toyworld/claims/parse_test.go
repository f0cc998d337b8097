package claims_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/toyworld/claims"
	"touchline/media/toyworld/match"
)

// show writes the claims of a text in short: "goal red #9; score 2 to 1". A denied claim has a "not" before it.
func show(text, language, world string) string {
	var out []string
	for _, c := range claims.Parse(text, language, world) {
		s := c.Kind
		if c.Not {
			s = "not " + s
		}
		add := func(said bool, format string, value any) {
			if said {
				s += " " + fmt.Sprintf(format, value)
			}
		}
		add(c.Team != "", "%s", c.Team)
		add(c.Other != "", "against %s", c.Other)
		add(c.Number >= 0, "#%d", c.Number)
		add(c.Count >= 0, "%d", c.Count)
		add(c.More >= 0, "and %d", c.More)
		add(c.Score[0] >= 0, "%d", c.Score[0])
		add(c.Score[1] >= 0, "to %d", c.Score[1])
		add(c.Colour != "", "%s", c.Colour)
		add(c.Place != "", "at %s", c.Place)
		add(c.Way != match.None, "%s", c.Way)
		out = append(out, s)
	}
	if len(out) == 0 {
		return "nothing"
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// TestSentences reads sentences of people and of large models.
func TestSentences(t *testing.T) {
	t.Parallel()
	count := 0
	for _, language := range []string{"en", "es"} {
		f, err := os.Open("testdata/sentences." + language + ".txt")
		require.NoError(t, err)
		world := ""
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := lines.Text()
			if strings.HasPrefix(line, "[") {
				world = strings.Trim(line, "[]")
				continue
			}
			text, want, ok := strings.Cut(line, " => ")
			require.True(t, ok, line)
			require.Equal(t, want, show(text, language, world), "%s, %s: %s", language, world, text)
			count++
		}
		require.NoError(t, f.Close())
	}
	require.GreaterOrEqual(t, count, 300)
}

// FuzzParse reads anything, and claims stay within the text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"Red score, two-one!", "no. 9 of the Blues, 23:40", "Nobody at the gate.", "El Rojo gana dos a uno.", "\xff?!,-'s n't 2-2-2 #"} {
		f.Add(s, true, true)
	}
	f.Fuzz(func(t *testing.T, text string, english, yard bool) {
		language, world := "es", "match"
		if english {
			language = "en"
		}
		if yard {
			world = "yard"
		}
		for _, c := range claims.Parse(text, language, world) {
			require.NotEmpty(t, c.Kind)
			require.NotEmpty(t, c.Text)
		}
	})
}
