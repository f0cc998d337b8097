package claims_test

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/worlds/claims"
	"touchline/worlds/match"
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

// TestWordings reads what nano is trained to say: nearly all of it claims something.
func TestWordings(t *testing.T) {
	t.Parallel()
	fill := map[string]*strings.Replacer{
		"match.en": strings.NewReplacer("{T}", "Red", "{O}", "Blue", "{0}", "Red", "{1}", "Blue", "{n}", "nine", "{w}", "left", "{hl}", "two-one",
			"{st}", "Red two, Blue one", "{m}", "twenty-three", "{k}", "three goals", "{j}", "two", "{c}", "blue"),
		"match.es": strings.NewReplacer("{T}", "Rojo", "{O}", "Azul", "{0}", "Rojo", "{1}", "Azul", "{n}", "nueve", "{w}", "izquierda",
			"{hl}", "dos a uno", "{st}", "Rojo dos, Azul uno", "{m}", "veintitrés", "{k}", "tres goles", "{j}", "dos", "{c}", "azul"),
		"yard.en": strings.NewReplacer("{c}", "blue", "{k}", "red", "{a}", "a", "{A}", "a", "{n}", "two", "{p}", "two people", "{q}", "one car"),
		"yard.es": strings.NewReplacer("{c}", "azul", "{k}", "rojo", "{n}", "dos", "{p}", "dos personas", "{q}", "un coche"),
	}
	either := regexp.MustCompile(`\(([^()|]*)\|[^()]*\)`)
	const sampled = 3 // one line in so many, since the race detector makes expressions slow
	for name, slots := range fill {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world, language, _ := strings.Cut(name, ".")
			text, err := os.ReadFile("../train/words/" + name + ".txt")
			require.NoError(t, err)
			var silent []string
			lines, all := 0, 0
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSpace(line)
				if line == "" || line[0] == '#' || line[0] == '[' || strings.HasSuffix(line, "?") {
					continue
				}
				if lines++; lines%sampled != 0 {
					continue
				}
				all++
				said := slots.Replace(either.ReplaceAllString(line, "$1"))
				if len(claims.Parse(said, language, world)) == 0 {
					silent = append(silent, said)
				}
			}
			require.Less(t, len(silent), all*6/100, "%d of %d: %q", len(silent), all, silent)
		})
	}
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
