package claims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds"
	"touchline/worlds/claims"
)

// TestEvents judges the worlds' own words: all of them are claims, and true.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, world := range worlds.Worlds() {
		for seed := uint64(1); seed <= 3; seed++ {
			w, err := worlds.New(worlds.Options{World: world, Seed: seed})
			require.NoError(t, err)
			for _, e := range w.Events(0, 10*time.Minute) {
				all := claims.Parse(e.Text(), "en", world)
				require.NotEmpty(t, all, "%s: %s", world, e.Text())
				for _, v := range claims.Judge(all, w, e.At()) {
					require.True(t, v.True, "seed %d, %s at %v: %+v", seed, e.Text(), e.At(), v.Claim)
				}
			}
		}
	}
}

// TestTally tells a film in the world's own words: everything is true, and nothing is missed.
func TestTally(t *testing.T) {
	t.Parallel()
	const length = 5 * time.Minute
	for _, world := range worlds.Worlds() {
		w, err := worlds.New(worlds.Options{World: world, Seed: 5})
		require.NoError(t, err)
		tally := claims.NewTally(w, "en", world)
		for _, e := range w.Events(0, length) {
			tally.Add(e.At(), e.Text())
		}
		tally.Add(length-time.Second, "...")
		r := tally.Report(0, length)
		require.Zero(t, r.Wrong, r.Examples)
		require.Zero(t, r.Unjudged)
		require.Equal(t, 1, r.Silent)
		require.Equal(t, r.Looks-1, r.Comments)
		require.NotEmpty(t, r.Events)
		for kind, k := range r.Events {
			require.Equal(t, k.Of, k.Right, "%s: %s", world, kind)
			for _, lag := range k.Lags {
				require.InDelta(t, 0, lag, 3, kind)
			}
		}
	}
}
