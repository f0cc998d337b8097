//go:build integration

package minicpmo_test

import (
	"fmt"
	"testing"

	"touchline/models/graph"
)

// rowsOf turns a recorded spectrogram [bins,T] to [T,bins].
func rowsOf(values []float32, bins int) []float32 {
	frames := len(values) / bins
	out := make([]float32, len(values))
	for b := range bins {
		for t := range frames {
			out[t*bins+b] = values[b*frames+t]
		}
	}
	return out
}

// noised returns the noise of frames and sets the lengths of outputs.
func (n *network) noised(frames int, seed uint32) map[string]array {
	rows := make([]int64, 8*frames)
	for i := range rows {
		rows[i] = int64(i)
	}
	n.sizes["W"], n.sizes["X"] = int64(graph.FrameSamples*frames), int64(120*frames+1)
	return map[string]array{
		"noise":      floatArray(hashNoise(graph.FrameSamples*9*frames, seed), int64(8*frames), graph.NoiseColumns),
		"noise_rows": intArray(rows, 1, int64(8*frames)),
	}
}

// TestVocoder: the parts on six frames, then the pitch and the sound of five runs on the
// recorded spectrograms.
func TestVocoder(t *testing.T) { forms(t, testVocoder) }

func testVocoder(t *testing.T, on *machine) {
	t.Helper()
	m := voice(t)
	parts, n := on.speech(m, graph.Vocoder, true), on.speech(m, graph.Vocoder, false)
	bins := m.Speech.Flow.Mel
	f := openFixture(t, "voice_hift_6frames")
	in := parts.noised(6, 77)
	in["mel"] = floatArray(rowsOf(f.floats("mel"), bins), 1, 6, int64(bins))
	out := parts.run(in, nil, 0, 0)
	on.within(t, "pitch of 6 frames", f.floats("f0"), out["pitch"].floats, 2e-4, 1e-3)
	on.within(t, "source of 6 frames", f.floats("source"), out["source"].floats, 1e-4, 1e-4)
	on.within(t, "spectrum of 6 frames", f.floats("conv_post"), out["spectrum"].floats, 3e-4, 1e-2)
	on.within(t, "wave of 6 frames", f.floats("wav"), out["wave"].floats, 3e-4, 9e-3)

	const left = graph.VocoderKept * graph.FrameSamples
	state := map[string]array{
		"past.mel": zeros(1, graph.VocoderKept, int64(bins)), "past.source": zeros(1, 1, left), "past.wave": zeros(1, left),
	}
	for i := range fixtureRuns {
		f := openFixture(t, fmt.Sprint("voice_chunk_", i))
		mel := rowsOf(f.floats("mel"), bins)
		// The part that is not new frames is padding.
		count := len(mel) / bins
		mel = append(mel, make([]float32, (50-count)*bins)...)
		from := 0
		if i == 0 {
			from = graph.VocoderKept
		}
		var frames []int64
		for k := from; k < graph.VocoderKept+count; k++ {
			frames = append(frames, int64(k))
		}
		seed := uint32(1000 * (i + 1))
		in := n.noised(len(frames), seed)
		for name, a := range state {
			in[name] = a
		}
		in["mel"], in["frames"] = floatArray(mel, 1, 50, int64(bins)), intArray(frames, int64(len(frames)))
		in["resumed"] = intArray([]int64{min(int64(i), 1)}, 1, 1)
		past := state["past.mel"].floats
		out := n.run(in, nil, 0, 0)
		if i == 1 {
			n.rooms(nil)
		}
		kept(state, out)
		wave := out["wave"].floats
		switch {
		case i == 0: // the official code starts with silence
			wave = append(make([]float32, left), wave[:len(wave)-left]...)
		case i+1 < fixtureRuns:
			wave = wave[:len(wave)-left]
		}
		want := "wav"
		if f.has("wav_first6000") {
			want = "wav_first6000"
		}
		on.within(t, fmt.Sprintf("wave of chunk %d", i), f.floats(want), wave[:len(f.floats(want))], 3e-4, 4e-3)

		all := append(append([]float32{}, past...), mel[:count*bins]...)[from*bins:]
		in = parts.noised(len(frames), seed)
		in["mel"] = floatArray(all, 1, int64(len(frames)), int64(bins))
		on.within(t, fmt.Sprintf("pitch of chunk %d", i), f.floats("f0"), parts.run(in, nil, 0, 0)["pitch"].floats, 2e-4, 1e-3)
	}
}
