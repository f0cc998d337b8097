package sphinx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/sphinx"
)

// TestJudge: lines of pocketsphinx for a grammar and for free sounds; the scores are those of the frames before the word.
func TestJudge(t *testing.T) {
	const free = "x S 0 T 0 A 0 L 0 0 -1000 0 SIL 100 -8000 0 AH 900"
	for _, c := range []struct {
		name, known     string
		good, addressed bool
	}{
		{"order", "x S 0 T 0 A 0 L 0 0 -1000 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -600 0 stop 240 -100 0 <sil> 250", true, true},
		{"weak order", "x S 0 T 0 A 0 L 0 0 -1000 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -2000 0 stop 240 -100 0 <sil> 250", false, true},
		{"wake word alone", "x S 0 T 0 A 0 L 0 0 -1000 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -100 0 <sil> 250", true, true},
		{"speech in a pause", "x S 0 T 0 A 0 L 0 0 -2100 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -600 0 stop 240 -100 0 <sil> 250", false, true},
		{"more of it", "x S 0 T 0 A 0 L 0 0 -2600 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -600 0 stop 240 -100 0 <sil> 250", false, false},
		{"a word that lasts", "x S 0 T 0 A 0 L 0 0 -1000 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -1600 0 hush 350 -100 0 <sil> 360", false, false},
		{"pauses", "x S 0 T 0 A 0 L 0 0 -1000 0 <sil> 100 -300 0 hey 130 -600 0 touchline 190 -900 0 <sil> 270 -900 0 <sil> 350 -600 0 stop 400", false, true},
		{"nothing", "x S 0 T 0 A 0 L 0 0", false, false},
	} {
		good, addressed, err := sphinx.Judge(c.known, free)
		require.NoError(t, err)
		require.Equal(t, c.good, good, c.name)
		require.Equal(t, c.addressed, addressed, c.name)
	}
}
