package minicpmo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
)

// TestPaddedPrompts feeds padded prompts, whole and in chunks, and expects the
// answers of unpadded ones.
func TestPaddedPrompts(t *testing.T) {
	orttest.NoLeaks(t)
	texts := []string{"What do you see?", "Say one two three.", "Question 0: what is it?"}
	shown := frame(t, "320x240.png", 0)
	answers := func(o minicpmo.Options) (all [][]int32) {
		o.Config, o.Threads = settings(t), 1
		e, err := minicpmo.Open(t.Context(), tiny(t), o)
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		for i, text := range texts {
			var frames []inference.Frame
			if i != 1 {
				frames = append(frames, shown)
			}
			ids, _, err := ask(t, e, chat(t, e, text, 24, frames...))
			require.NoError(t, err)
			all = append(all, ids)
		}
		return all
	}
	plain := answers(minicpmo.Options{})
	require.Equal(t, plain, answers(minicpmo.Options{}.WithPad(32)))
	require.Equal(t, plain, answers(minicpmo.Options{}.WithPad(64)))
	require.Equal(t, plain, answers(minicpmo.Options{}.WithPad(16).WithChunk(48)))
}
