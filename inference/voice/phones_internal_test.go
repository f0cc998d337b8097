package voice

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzPhones reads the sounds that flite lists with their times, and their names alone.
func FuzzPhones(f *testing.F) {
	f.Add("pau:0.164 hh:0.255 ax:0.3")
	f.Add("pau hh ax pau w er l d pau")
	f.Add("x:NaN y:1e9 z:-1 ::")
	f.Fuzz(func(t *testing.T, text string) {
		at := time.Duration(0)
		for _, p := range parsePhones(text) {
			require.GreaterOrEqual(t, p.start, at)
			require.GreaterOrEqual(t, p.end, p.start)
			at = p.end
		}
		require.LessOrEqual(t, at, time.Hour)
		for _, group := range phoneGroups(text) {
			require.NotEmpty(t, group)
		}
	})
}
