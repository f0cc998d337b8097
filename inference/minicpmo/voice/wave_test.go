package voice_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"touchline/inference/minicpmo/voice"
	"touchline/models"
)

// TestRingRows compares the rows that the flow's rings keep with the official code's list, the newest first.
func TestRingRows(t *testing.T) {
	for _, prompt := range []int{100, 150, 300} {
		var list []int // of ring rows
		for i := range prompt {
			list = append(list, i)
		}
		for n := range 40 {
			rows, place := voice.RingRows(prompt, n)
			want := slices.Sorted(slices.Values(list))
			require.Equal(t, want, rows, "a prompt of %d frames before window %d", prompt, n)
			var fresh []int
			for i := range models.ChunkFrames {
				require.NotContains(t, list, place+i)
				fresh = append(fresh, place+i)
			}
			if list = append(fresh, list...); len(list) > prompt+models.FlowKept {
				list = slices.Concat(list[:prompt], list[len(list)-models.FlowKept:])
			}
		}
	}
}

// TestSentences: a long text is read in parts that end where sentences do.
func TestSentences(t *testing.T) {
	t.Parallel()
	one := "It is half past nine, and the red car stands in the yard. "
	long := strings.Repeat(one, 12)
	parts := voice.Sentences(long)
	require.Equal(t, long, strings.Join(parts, ""))
	require.Len(t, parts, 3)
	for _, p := range parts[:2] {
		require.True(t, strings.HasSuffix(p, "."), p)
	}
	for _, odd := range []string{"", "a", strings.Repeat("x", 1000), strings.Repeat("é", 700), strings.Repeat("ab ", 500)} {
		parts := voice.Sentences(odd)
		require.Equal(t, odd, strings.Join(parts, ""))
		for _, p := range parts {
			require.LessOrEqual(t, len(p), 300)
			require.True(t, utf8.ValidString(p))
		}
	}
}
