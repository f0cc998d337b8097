package repeat_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/repeat"
)

// TestLabelledPairs compares the pairs of testdata/repeats.tsv: repeats are paraphrases such as a language model says twice running;
// different ones differ in an event, name, number, score, colour or side.
func TestLabelledPairs(t *testing.T) {
	const mostPassed = 0.02 // of the repeats; none of the different comments may be dropped
	file, err := os.ReadFile("testdata/repeats.tsv")
	require.NoError(t, err)
	l := repeat.New()
	repeated, different := 0, 0
	var passed []string
	for line := range strings.Lines(string(file)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, f, 5, line)
		label, said, comment := f[0], f[3], f[4]
		if label == "different" {
			different++
			require.False(t, l.Repeats(said, comment), "%s | %s", said, comment)
			continue
		}
		require.Equal(t, "repeat", label)
		if repeated++; !l.Repeats(said, comment) {
			passed = append(passed, said+" | "+comment)
		}
	}
	require.GreaterOrEqual(t, repeated+different, 300)
	require.LessOrEqual(t, float64(len(passed)), mostPassed*float64(repeated), strings.Join(passed, "\n"))
}

// TestRepeats has what the pairs do not: numbers in words, long comments, texts without news.
func TestRepeats(t *testing.T) {
	const long = "Number seven dribbles past two defenders, cuts inside from the wing, waits for the run of the midfielder " +
		"and crosses low to the penalty spot"
	l := repeat.New()
	for _, tt := range []struct {
		said, comment string
		want          bool
	}{
		{"Red leads two to one.", "2-1 for red.", true},
		{"The score is two to one.", "The score is 2:1.", true},
		{"The score is two-one.", "The score is one-two.", false},
		{"Minute eighty-five.", "Minute 85.", true},
		{"Number 9 passes to Son.", "Number 9 passes to Will.", false},
		{"No. 9 waits.", "Number 9 waits.", true},
		{long + ".", strings.Replace(long, "low", "hard", 1) + ".", true},
		{long + ".", strings.Replace(long, "low", "Rossi", 1) + ".", false},
		{"", "", false},
		{"...", "...", false},
		{"Still the same.", "And again.", false},
		{"9999999999999999999999", "9999999999999999999999", true},
	} {
		require.Equal(t, tt.want, l.Repeats(tt.said, tt.comment), "%s | %s", tt.said, tt.comment)
	}
}

func FuzzRepeats(f *testing.F) {
	for _, s := range []string{"", "Red scores, it's 2-1!", "No. 9", "García pasa a López.", "红队1比0领先。", "two to", "'s 's"} {
		f.Add(s, s)
	}
	l := repeat.New()
	f.Fuzz(func(t *testing.T, said, comment string) {
		l.Repeats(said, comment)
		require.True(t, strings.HasPrefix(comment, repeat.WholeWords(comment)))
		if strings.TrimSpace(comment) != "" && l.HasNews(comment) {
			require.True(t, l.Repeats(comment, comment), "%q repeats itself", comment)
		}
	})
}
