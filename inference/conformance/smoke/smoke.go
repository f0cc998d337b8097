// Package smoke runs the graphs of a bundle once, on random numbers.
package smoke

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"touchline/inference/internal/host"
	"touchline/models"
)

// smokeSize is the size of a graph's free dimensions in a smoke run.
const smokeSize = 8

// A chunk of sound, in frames and rows.
const (
	hearingChunk = 100
	hearingRows  = 13
)

// smokeSizes returns the free dimensions whose size is not smokeSize: the rooms, and dimensions
// that depend on each other. A run of the voice's networks is a chunk.
func smokeSizes(kind models.Kind) map[string]int {
	const frames, cached = models.ChunkFrames, models.ChunkFrames + smokeSize
	sizes := map[string]int{"B": 1, "BM": 1, "B2": 2}
	sizes["C"] = smokeSize / models.FramesPerCode
	switch kind {
	case models.KindFlowEncoder:
		sizes["N"] = frames/2 + models.Lookahead
		for rate, rows := range map[string]int{"25": frames / 2, "50": frames} {
			sizes["T"+rate], sizes["C"+rate], sizes["S"+rate] = rows, smokeSize, rows+smokeSize
		}
	case models.KindFlowDiT:
		sizes["S"], sizes["R"] = cached, cached
	case models.KindFlowDiTOnce:
		sizes["T"], sizes["K"] = frames, frames+smokeSize
	case models.KindVocoder:
		sizes["N"], sizes["T"] = frames, frames
		sizes["E"], sizes["W"] = 8*frames, models.FrameSamples*frames
	case models.KindVocoderTail:
		_, _, heard := models.TailInputs(frames, frames)
		sizes["N"], sizes["T"], sizes["H"] = frames, frames, len(heard)
		sizes["E"], sizes["W"] = 8*frames, models.FrameSamples*frames
	case models.KindHearing:
		sizes["W"], sizes["T"], sizes["R"] = 2, 2*hearingChunk, 2*hearingRows
	case models.KindDecoder, models.KindVision, models.KindEmbed, models.KindTTSCondition, models.KindTTS, models.KindAligner:
	}
	return sizes
}

// Run runs each graph of a bundle, and the models of its voice, for the devices once on random numbers: every output must be finite. It
// returns the number of graphs. library is the file or folder of ONNX Runtime; "" searches the default folders.
func Run(b *models.Bundle, library string, devices ...models.Device) (ran int, err error) {
	m, err := host.Open(library, 0)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	for _, g := range slices.Concat(b.Manifest.Graphs, b.Manifest.VoiceGraphs()) {
		if !slices.Contains(devices, g.Device) {
			continue
		}
		if err := smoke(m, b, g); err != nil {
			return ran, fmt.Errorf("%s: %w", g.File, err)
		}
		ran++
	}
	return ran, nil
}

func smoke(m *host.Machine, b *models.Bundle, g models.Graph) error {
	n, err := m.Open(b, g)
	if err != nil {
		return err
	}
	defer n.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	in := map[string]host.Value{}
	n.Free = smokeSizes(g.Kind)
	for _, p := range g.Inputs {
		if strings.HasPrefix(p.Name, "past_key_values.") {
			if err := n.Hold(p.Name, map[string]int{"B": 1, "M": 2 * smokeSize}); err != nil {
				return err
			}
			continue
		}
		in[p.Name] = smokeInput(p, n.Free, rng)
	}
	var want []string
	for _, p := range g.Outputs {
		if host.Past(p.Name) == "" {
			want = append(want, p.Name)
		}
	}
	out, err := n.Run(in, want...)
	if err != nil {
		return err
	}
	for name, v := range out {
		for i, f := range v.Floats {
			if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
				return fmt.Errorf("%s: number %d is %g: the weights give no finite output", name, i, f)
			}
		}
	}
	return nil
}

func smokeInput(p models.Port, sizes map[string]int, rng *rand.Rand) host.Value {
	v := host.Value{Shape: []int{}}
	count := 1
	for _, d := range p.Shape {
		size, err := strconv.Atoi(d)
		if err != nil {
			var ok bool
			if size, ok = sizes[d]; !ok {
				size = smokeSize
			}
		}
		v.Shape = append(v.Shape, size)
		count *= size
	}
	switch {
	case p.Name == "seqlens_k":
		v.Ints = []int64{smokeSize - 1}
	case p.Name == "total_sequence_length" || p.Name == "feats_length":
		v.Ints = []int64{smokeSize}
	case p.Name == "rows" && p.Type == models.Int32:
		v.Ints = []int64{2 * hearingRows, 1}
	case p.Name == "last_position":
		for i := range count {
			v.Ints = append(v.Ints, int64(smokeSize-count+i))
		}
	case p.Type == models.Int64 || p.Type == models.Int32:
		v.Ints = make([]int64, count) // ids and positions 0
	case p.Name == "logits_bias":
		v.Floats = make([]float32, count)
	case p.Name == "temperature":
		v.Floats = []float32{1}
	default:
		v.Floats = make([]float32, count)
		for i := range v.Floats {
			v.Floats[i] = float32(rng.NormFloat64()) * 0.1
		}
	}
	return v
}
