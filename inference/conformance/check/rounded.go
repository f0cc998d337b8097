package check

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"touchline/models"
	"touchline/models/graph"
	"touchline/models/onnx"
)

// rounded is a checkpoint whose linear layers have the values of its int4 bundle.
type rounded struct {
	models.Source
	layers map[string][]float32 // by tensor name, row-major
}

// dequantise reads the rounded weights of a bundle's decoder.
func dequantise(src models.Source, b *models.Bundle, g models.Graph) *rounded {
	d, err := graph.Decoder(b.Manifest.Dims, graph.Options{
		Device: g.Device, Weights: g.Weights, Block: g.Block, ZeroPoints: g.ZeroPoints, Head: g.Head,
		BFloat16: g.Float() == models.BFloat16,
	})
	must(err)
	constants, err := onnx.Constants(need(os.ReadFile(b.Path(g.File))))
	if err != nil {
		must(fmt.Errorf("read %s: %w", g.File, err))
	}
	places := map[string]*onnx.External{}
	for _, t := range constants {
		places[t.Name] = t.External
	}
	read := func(name string) []byte {
		at := places[name]
		if at == nil {
			must(fmt.Errorf("%s: expected the weight %s in a data file", g.File, name))
		}
		f := need(os.Open(b.Path(at.Location)))
		defer func() { _ = f.Close() }()
		raw := make([]byte, at.Length)
		need(f.ReadAt(raw, at.Offset))
		return raw
	}
	r := &rounded{Source: src, layers: map[string][]float32{}}
	byName := map[string]graph.Weight{}
	for _, w := range d.Weights {
		byName[w.Name] = w
	}
	for _, w := range d.Weights {
		if w.Rule == graph.RuleQuants {
			r.layer(w, byName, read)
		}
	}
	return r
}

// layer dequantises one matrix and assigns the rows to its sources.
func (r *rounded) layer(w graph.Weight, all map[string]graph.Weight, read func(string) []byte) {
	base := w.Name[:len(w.Name)-len(".quants")]
	quants, rawScales := read(w.Name), read(base+".scales")
	var zeros []byte
	if w.Packed {
		zeros = read(base + ".zeros")
	}
	outputs, blocks := w.Shape[0], w.Shape[1]
	factor := float32(1)
	if w.Scale != 0 {
		factor = float32(1 / w.Scale)
	}
	scale := func(i int) float32 {
		switch all[base+".scales"].Type {
		case models.Float16:
			return models.Float16FromBits(binary.LittleEndian.Uint16(rawScales[2*i:]))
		case models.BFloat16:
			return models.BFloat16FromBits(binary.LittleEndian.Uint16(rawScales[2*i:]))
		default:
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(rawScales[4*i:]))
	}
	at := func(b []byte, i int) int {
		if w.Bits == 8 {
			return int(b[i])
		}
		return int(b[i/2]>>(4*(i&1))) & 15
	}
	row := 0
	for _, name := range w.Sources {
		info, ok := r.Info(name)
		if !ok {
			must(fmt.Errorf("%s: the checkpoint has no tensor %s", w.Name, name))
		}
		width := info.Cols()
		values := make([]float32, 0, info.Rows()*width)
		for range info.Rows() {
			for k := range width {
				zero := 1 << (w.Bits - 1)
				if zeros != nil {
					perRow := (blocks*w.Bits + 7) / 8
					zero = at(zeros[row*perRow:], k/w.Block)
				}
				q := at(quants[row*blocks*w.Block*w.Bits/8:], k)
				values = append(values, float32(q-zero)*scale(row*blocks+k/w.Block)*factor)
			}
			row++
		}
		r.layers[name] = values
	}
	if row != outputs {
		must(fmt.Errorf("%s: expected %d outputs, its sources have %d", w.Name, outputs, row))
	}
}

// Rows returns the rounded values of a layer, and others unchanged.
func (r *rounded) Rows(dst []float32, name string, from, to int) error {
	values, ok := r.layers[name]
	if !ok {
		return r.Source.Rows(dst, name, from, to)
	}
	info, _ := r.Info(name)
	copy(dst, values[from*info.Cols():to*info.Cols()])
	return nil
}

// Packed is always false: the values are plain numbers.
func (r *rounded) Packed(string) (models.PackedLinear, bool) { return nil, false }
