package toyworld_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/toyworld"
)

func world(tb testing.TB, o toyworld.Options) *toyworld.World {
	tb.Helper()
	w, err := toyworld.New(o)
	require.NoError(tb, err)
	return w
}

func TestSameSeedSamePicture(t *testing.T) {
	a, b := world(t, toyworld.Options{Seed: 4}), world(t, toyworld.Options{Seed: 4})
	// b is asked in another order.
	late, early := b.Frame(2000), b.Frame(100)
	require.Equal(t, a.Frame(100), early)
	require.Equal(t, a.Frame(2000), late)
	require.Equal(t, a.Events(0, 5*time.Minute), b.Events(0, 5*time.Minute))
	other := world(t, toyworld.Options{Seed: 5})
	require.NotEqual(t, early, other.Frame(100))
	require.NotEqual(t, a.Events(0, 5*time.Minute), other.Events(0, 5*time.Minute))
}

func TestSizeDoesNotChangeTheMatch(t *testing.T) {
	a, b := world(t, toyworld.Options{Seed: 4}), world(t, toyworld.Options{Seed: 4, Width: 1280, Height: 720, FPS: 25})
	require.Equal(t, a.Events(0, 2*time.Minute), b.Events(0, 2*time.Minute))
	require.Equal(t, a.Truth(9*time.Second), b.Truth(9*time.Second))
}
