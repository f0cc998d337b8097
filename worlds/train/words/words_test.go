package words_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/worlds/train/words"
)

// TestBook draws orders and rules of every kind: texts without patterns in them, and many different ones.
func TestBook(t *testing.T) {
	t.Parallel()
	for _, world := range []string{"match", "yard"} {
		for _, language := range []string{"en", "es"} {
			b, err := words.Open(world, language)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(b.Kinds()), 25)
			dice := rand.New(rand.NewPCG(1, 2))
			rules := 0
			for _, kind := range b.Kinds() {
				for _, heldOut := range []bool{false, true} {
					seen := map[string]bool{}
					for range 60 {
						text := b.Order(dice, kind, heldOut)
						require.NotEmpty(t, text, "%s %s: %s", world, language, kind)
						require.NotRegexp(t, `[()|]|\{[XW]\}`, text)
						seen[text] = true
					}
					require.GreaterOrEqual(t, len(seen), 4, "%s %s: %s", world, language, kind)
					if rule := b.Rule(dice, kind, heldOut); rule != "" {
						require.NotRegexp(t, `[()|]|\{[XW]\}`, rule)
						rules++
					}
				}
			}
			require.GreaterOrEqual(t, rules, 2*8)
		}
	}
	_, err := words.Open("match", "xx")
	require.ErrorContains(t, err, "xx")
}
