package sample_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/sample"
)

// allowing is a constraint that allows some ids.
type allowing struct {
	ids      map[int32]bool
	only     int32 // if not negative
	ends     bool
	accepted []int32
}

func (a *allowing) Only() (int32, bool)  { return a.only, a.only >= 0 }
func (a *allowing) Allows(id int32) bool { return a.ids[id] }
func (a *allowing) Ends() bool           { return a.ends }
func (a *allowing) Complete() bool       { return a.ends && len(a.ids) == 0 }
func (a *allowing) Accept(id int32)      { a.accepted = append(a.accepted, id) }

func (a *allowing) Best(row []float32) (best int32, ok bool) {
	low := float32(math.Inf(-1))
	for id, v := range row {
		if a.ids[int32(id)] && v > low {
			best, low, ok = int32(id), v, true
		}
	}
	return best, ok
}

// Under a constraint Top and Full choose the allowed id with the largest logit, and
// a stop id only where the answer may end.
func TestConstraint(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	const vocab = 40
	s, st := sample.New(vocab), sample.NewState(vocab)
	row := make([]float32, vocab)
	answered, asked, stops := 0, 0, 0
	for range 20_000 {
		for i := range row {
			row[i] = float32(rng.IntN(12))
		}
		c := &allowing{ids: map[int32]bool{}, only: -1, ends: rng.IntN(3) == 0}
		for range 1 + rng.IntN(8) {
			c.ids[int32(rng.IntN(vocab-2))] = true
		}
		set := sample.Chat() // random, with penalties: the constraint overrides both
		set.Stop, set.Constraint = []int32{vocab - 1, vocab - 2}, c
		st.Reset(set, 1, 1)
		want, best := int32(-1), float32(-1)
		for id, v := range row {
			if allowed := c.ids[int32(id)] || id >= vocab-2 && c.ends; allowed && v > best {
				want, best = int32(id), v
			}
		}
		full, err := s.Full(st, row, -1)
		require.NoError(t, err)
		require.Equal(t, want, full)
		values, ids := topOf(rng, row, nil, 4+rng.IntN(vocab), nil, nil)
		got, ok, err := s.Top(st, values, ids, -1)
		require.NoError(t, err)
		if !ok {
			asked++
			continue
		}
		answered++
		require.Equal(t, want, got)
		if got >= vocab-2 {
			stops++
		}
		require.False(t, st.Complete())
		st.Accept(got)
		require.Equal(t, []int32{got}, c.accepted)
		c.only = 7
		got, ok, err = s.Top(st, values, ids, -1)
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 7, got)
	}
	require.Greater(t, answered, 5000)
	require.Greater(t, asked, 1000)
	require.Greater(t, stops, 100)
}
