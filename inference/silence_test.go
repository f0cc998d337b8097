package inference_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]inference.Verdict{ // unfinished, complete
		"":                     {inference.Undecided, inference.Silent},
		" \n":                  {inference.Undecided, inference.Silent},
		inference.Silence:      {inference.Undecided, inference.Silent},
		"…":                    {inference.Undecided, inference.Silent},
		"\"...\"":              {inference.Undecided, inference.Silent},
		"... ... ... ...":      {inference.Undecided, inference.Silent},
		"?! -- \u26bd":         {inference.Undecided, inference.Silent},
		"7":                    {inference.Undecided, inference.HasWords},
		"½":                    {inference.Undecided, inference.HasWords},
		"Goal!":                {inference.Undecided, inference.HasWords},
		" Ja.  ":               {inference.Undecided, inference.HasWords},
		"Goal!!":               {inference.HasWords, inference.HasWords},
		"... a goal":           {inference.HasWords, inference.HasWords},
		"左翼进攻":                 {inference.HasWords, inference.HasWords},
		"\xff\xfe\xfd\xfc\xfb": {inference.Undecided, inference.Silent},
	} {
		require.Equal(t, want, [2]inference.Verdict{inference.ClassifyAnswer(text, false), inference.ClassifyAnswer(text, true)}, "%q", text)
	}
}

// FuzzJudge: what is said of an unfinished answer holds for each longer one.
func FuzzJudge(f *testing.F) {
	f.Add("... a goal", 4)
	f.Add("...", 2)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if n < 0 || n > len(text) || inference.ClassifyAnswer(text[:n], false) == inference.Undecided {
			return
		}
		// A cut within a character, or a space, may be followed by anything.
		require.Equal(t, inference.HasWords, inference.ClassifyAnswer(text, true))
	})
}
