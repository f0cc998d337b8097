package stages

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"touchline/models"
)

// noised returns the noise of frames and the lengths of outputs.
func noised(frames int, seed uint32) (in map[string]Array, sizes map[string]int64) {
	rows := make([]int64, 8*frames)
	for i := range rows {
		rows[i] = int64(i)
	}
	in = map[string]Array{
		"noise":      Floats(Noise(models.FrameSamples*9*frames, seed), int64(8*frames), models.NoiseColumns),
		"noise_rows": Ints(rows, 1, int64(8*frames)),
	}
	return in, map[string]int64{"W": int64(models.FrameSamples * frames), "X": int64(120*frames + 1)}
}

// Pitch replays the parts of the vocoder on six frames.
func (r *Replay) Pitch() {
	most := agreed()
	f := r.Fixture("hift_6frames")
	parts := r.Graph(models.KindVocoder, true)
	bins := r.Dims.Speech.Flow.Mel
	const seed = 77 // the fixture does not have it
	in, sizes := noised(6, seed)
	in["mel"] = Floats(Rows(f.Floats("mel"), bins), 1, 6, int64(bins))
	out := parts.Run(in, sizes)
	r.Near("pitch of 6 frames", f.Floats("f0"), out["pitch"].Floats, most.pitch)
	r.Near("source of 6 frames", f.Floats("source"), out["source"].Floats, most.source)
	r.Near("spectrum of 6 frames", f.Floats("conv_post"), out["spectrum"].Floats, most.spectrum)
	r.Near("wave of 6 frames", f.Floats("wav"), out["wave"].Floats, most.short)
	r.Near("wave of the spectrum of 6 frames", inverse(out["spectrum"].Floats), out["wave"].Floats, most.inverse)
}

// Vocoder replays the pitch and the sound of a turn on its recorded spectrograms.
func (r *Replay) Vocoder() {
	most := agreed()
	parts := r.Graph(models.KindVocoder, true)
	g := r.Graph(models.KindVocoder, false)
	bins := r.Dims.Speech.Flow.Mel
	const left = models.VocoderKept * models.FrameSamples
	state := map[string]Array{
		"past.mel": Zeros(1, models.VocoderKept, int64(bins)), "past.source": Zeros(1, 1, left), "past.wave": Zeros(1, left),
	}
	for i, c := range r.Recording.Chunks {
		f := r.Fixture(fmt.Sprint("chunk_", i))
		mel := Rows(f.Floats("mel"), bins)
		count, from := len(mel)/bins, 0
		if i == 0 {
			from = models.VocoderKept
		}
		all := append(append([]float32{}, state["past.mel"].Floats...), mel...)[from*bins:]
		sound := r.vocode(g, state, mel, i, from)
		name := "wav"
		if f.Has("wav_first6000") {
			name = "wav_first6000"
		}
		want := f.Floats(name)
		r.Near(fmt.Sprintf("wave of chunk %d", i), want, sound[:len(want)], most.wave)

		frames := models.VocoderKept + count - from
		in, sizes := noised(frames, c.Seed)
		in["mel"] = Floats(all, 1, int64(frames), int64(bins))
		out := parts.Run(in, sizes)
		r.Near(fmt.Sprintf("pitch of chunk %d", i), f.Floats("f0"), out["pitch"].Floats, most.pitch)
		r.Near(fmt.Sprintf("wave of the spectrum of chunk %d", i), inverse(out["spectrum"].Floats), out["wave"].Floats, most.inverse)
	}
}

// inverse returns the sound of a spectrum [18,columns]: the log magnitudes of the bins, then values whose sines are the phases. It is the
// inverse transform of the official vocoder in float64, with windows of 16 samples, 4 apart.
func inverse(spectrum []float32) []float32 {
	const window, hop, bins = 16, 4, 9
	columns := len(spectrum) / (2 * bins)
	sum, cover := make([]float64, (columns-1)*hop+window), make([]float64, (columns-1)*hop+window)
	for c := range columns {
		for n := range window {
			w := (1 - math.Cos(2*math.Pi*float64(n)/window)) / 2
			var v float64
			for k := range bins {
				size := min(math.Exp(float64(spectrum[k*columns+c])), 100)
				if k > 0 && k < bins-1 { // and the mirrored bin
					size *= 2
				}
				v += size * math.Cos(math.Sin(float64(spectrum[(bins+k)*columns+c]))+2*math.Pi*float64(k*n)/window)
			}
			sum[c*hop+n] += v / window * w
			cover[c*hop+n] += w * w
		}
	}
	wave := make([]float32, (columns-1)*hop)
	for i := range wave {
		wave[i] = float32(max(-0.99, min(sum[i+window/2]/cover[i+window/2], 0.99)))
	}
	return wave
}

// vocode runs the i-th chunk of a turn and returns its sound, starting at frame from of the kept and new frames.
func (r *Replay) vocode(g Graph, state map[string]Array, mel []float32, i, from int) []float32 {
	bins := r.Dims.Speech.Flow.Mel
	count := len(mel) / bins
	const left = models.VocoderKept * models.FrameSamples
	var frames []int64
	for k := from; k < models.VocoderKept+count; k++ {
		frames = append(frames, int64(k))
	}
	chunk := r.Recording.Chunks[i]
	in, sizes := noised(len(frames), chunk.Seed)
	maps.Copy(in, state)
	padded := append(append([]float32{}, mel...), make([]float32, (models.ChunkFrames-count)*bins)...)
	in["mel"], in["frames"] = Floats(padded, 1, models.ChunkFrames, int64(bins)), Ints(frames, int64(len(frames)))
	in["resumed"] = Ints([]int64{min(int64(i), 1)}, 1, 1)
	out := g.Run(in, sizes)
	if i == 1 {
		r.batch(g, nil)
	}
	kept(state, out)
	wave := out["wave"].Floats
	if chunk.Last {
		r.ending(in, wave)
	}
	switch {
	case i == 0: // the official code starts with silence
		wave = append(make([]float32, left), wave[:len(wave)-left]...)
	case !chunk.Last:
		wave = wave[:len(wave)-left]
	}
	return wave
}

// ending runs the last chunk of a turn, whose sound is wave, with the padding vocoder.
func (r *Replay) ending(in map[string]Array, wave []float32) {
	g := r.Graph(models.KindVocoderTail, false)
	const padding = 7
	frames := len(wave) / models.FrameSamples
	most := frames + padding
	counts, edges, heard := models.TailInputs(frames, most)
	padded := maps.Clone(in)
	longer := func(name string, n int, shape ...int64) {
		v := slices.Clone(in[name].Ints)
		for range n {
			v = append(v, v[len(v)-1])
		}
		padded[name] = Ints(v, append(shape, int64(len(v)))...)
	}
	longer("frames", padding)
	longer("noise_rows", 8*padding, 1)
	padded["counts"], padded["edges"] = Floats(counts, 1, 1, int64(most)), Floats(edges, int64(len(edges)))
	padded["heard"] = Ints(heard, int64(len(heard)))
	out := g.Run(padded, map[string]int64{"W": int64(models.FrameSamples * most)})
	r.Near("wave of the end of a turn, padded", wave, out["wave"].Floats[:len(wave)], agreed().wave)
}
