package voice

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice/tts"
)

// Runs of many slots come in parts, of which those without a job are left out.
func TestParts(t *testing.T) {
	t.Parallel()
	parts := func(r kvcache.Range, slots ...int) (out []kvcache.Range) {
		var jobs []*tts.Job
		for _, s := range slots {
			jobs = append(jobs, &tts.Job{Slot: s})
		}
		require.NoError(t, (&Wave{}).parts(r, jobs, func(p kvcache.Range) error {
			out = append(out, p)
			return nil
		}))
		return out
	}
	whole, low, high := kvcache.Range{Size: 32}, kvcache.Range{Size: 16}, kvcache.Range{Start: 16, Size: 16}
	require.Equal(t, []kvcache.Range{{Start: 3, Size: 1}}, parts(kvcache.Range{Start: 3, Size: 1}, 3))
	require.Equal(t, []kvcache.Range{low}, parts(low, 0, 9))
	require.Equal(t, []kvcache.Range{low, high}, parts(whole, 31, 2))
	require.Equal(t, []kvcache.Range{high}, parts(whole, 16, 31))
	broken := errors.New("broken")
	require.ErrorIs(t, (&Wave{}).parts(whole, []*tts.Job{{Slot: 1}, {Slot: 20}}, func(kvcache.Range) error { return broken }), broken)
}
