//go:build integration

package minicpmo_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/stages"
	"touchline/models"
)

func TestFlowDiT(t *testing.T) {
	forms(t, func(t *testing.T, on *machine) {
		t.Helper()
		replay(t, on, voiceModel(t)).Flow()
	})
}

// TestFlowDiTRing: with a prompt of two chunks, rings that are written where rows become
// free give what moved rows give, and a repeated run gives the same.
func TestFlowDiTRing(t *testing.T) {
	m, on := voiceModel(t), startMachine(t)
	r, prompt := replay(t, on, m), openFixture(t, "voice_prompt")
	ring := r.NewFlow(2 * models.ChunkFrames)
	n := ring.Prompt * m.Speech.Flow.Mel
	ring.Fill(ring.Single(ring.Noise(0, ring.Prompt), prompt.floats("mu")[:n], prompt.floats("prompt_mel")[:n]))
	moved := ring.Copy()
	mu := openFixture(t, "voice_chunk_0").floats("mu")
	mel := func(f *stages.Flow, noise []float32) []float32 {
		return f.Run(noise, mu, models.ChunkFrames)["mel"].Floats
	}
	for range 7 {
		noise := ring.Noise(len(ring.Order), models.ChunkFrames)
		first := mel(ring, noise)
		require.Equal(t, first, mel(ring, noise))
		on.within(t, "moved", mel(moved, noise), first, 1e-5, 4e-3)
		require.NoError(t, ring.Turn())
		moved.Move()
		slices.Reverse(mu)
	}
}

func TestFlowDiTStep(t *testing.T) {
	m := voiceModel(t)
	replay(t, startMachine(t), m).Step(func(name string) []float32 { return m.weights[name].values })
}
