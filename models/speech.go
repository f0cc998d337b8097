package models

import "math"

// Rows of the flow, shared by its graphs and the engine. A chunk is 25 codes, so ChunkFrames frames of the spectrogram. Except for longer
// prompts and shorter ends, all runs are one chunk.
const (
	ChunkFrames = 50
	// Lookahead is the number of codes after the encoded ones that the flow's encoder sees.
	Lookahead = 3
	// LastCodes is the maximum number of codes of the last run of a speech.
	LastCodes = ChunkFrames/2 + Lookahead - 1
	// FlowKept is the number of frames that the caches keep besides the frames of a prompt.
	FlowKept = 100
)

// Constants of the vocoder.
const (
	FrameSamples = 480 // of a frame
	// VocoderKept is the number of frames at the end of a run that the next one repeats.
	VocoderKept = 8
	// Harmonics is the number of harmonics of the pitch that the vocoder draws noise for, including
	// the pitch itself.
	Harmonics = 9
	// NoiseColumns is the width of a row of noise: an eighth of a frame's samples, each with all harmonics.
	NoiseColumns = FrameSamples / 8 * Harmonics
	// VocoderWindow and VocoderHop are the window and the hop of the vocoder's STFT, in samples.
	VocoderWindow = 16
	VocoderHop    = 4
)

// HearingTopK is the number of best ids that a speech recognition decoder returns (fewer if the vocabulary is smaller).
const HearingTopK = 32

// FlowDistances returns an input of the flow's encoder: for each row of a run and each key, [rows,cached+rows], the index of its position
// score. up selects the blocks at 50 rows a second.
func FlowDistances(f Flow, up bool, rows, cached int) []int64 {
	farthest, width := f.Distances(up)
	places := make([]int64, 0, rows*(cached+rows))
	for t := range rows {
		for key := range cached + rows {
			// Only masked keys are farther away.
			places = append(places, int64(t*width+farthest-min(cached+t-key, farthest)))
		}
	}
	return places
}

// Distances returns the distance from a row to the farthest key of a run with the longest prompt, and the number of all distances, in both
// directions. up selects the blocks at 50 rows a second.
func (f Flow) Distances(up bool) (farthest, width int) {
	rows, kept, last := f.MaxPrompt, FlowKept/2, LastCodes
	if up {
		rows, kept, last = 2*rows, FlowKept, 2*last
	}
	farthest = rows + kept + last - 1
	return farthest, farthest + max(rows, last)
}

// Hann is the periodic window of the vocoder's transforms.
func Hann(n int) float64 { return 0.5 - 0.5*math.Cos(2*math.Pi*float64(n)/VocoderWindow) }

// WindowsCover is the sum of the squared windows over a sample.
const WindowsCover = 1.5

// EdgeGains returns the gains of the first and last samples of a run, which are covered by one window less than the others.
func EdgeGains() (first, last []float64) {
	first, last = make([]float64, VocoderHop), make([]float64, VocoderHop)
	for i := range VocoderHop {
		end := VocoderWindow - VocoderHop + i
		first[i] = WindowsCover / (WindowsCover - Hann(end)*Hann(end))
		last[i] = WindowsCover / (WindowsCover - Hann(i)*Hann(i))
	}
	return first, last
}

// TailInputs returns the inputs of the vocoder's tail (KindVocoderTail) that depend on its number of frames, t of most.
func TailInputs(t, most int) (counts, edges []float32, heard []int64) {
	samples := t * FrameSamples
	counts, edges = make([]float32, most), make([]float32, most*FrameSamples)
	for i := range t {
		counts[i] = 1
	}
	for i := range edges {
		edges[i] = 1
	}
	first, last := EdgeGains()
	for i := range VocoderHop {
		edges[i], edges[samples-VocoderHop+i] = float32(first[i]), float32(last[i])
	}
	heard = make([]int64, 0, most*FrameSamples+VocoderWindow)
	for i := -VocoderWindow / 2; i < most*FrameSamples+VocoderWindow/2; i++ {
		at := max(i, -i)
		if at >= samples {
			at = max(2*(samples-1)-at, 0)
		}
		heard = append(heard, int64(at))
	}
	return counts, edges, heard
}
