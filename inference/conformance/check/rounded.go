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
func dequantise(src models.Source, b *models.Bundle, g models.Graph) (*rounded, error) {
	d, err := graph.Decoder(b.Manifest.Dims, graph.Options{
		Device: g.Device, Weights: g.Weights, Block: g.Block, ZeroPoints: g.ZeroPoints, Head: g.Head,
	})
	if err != nil {
		return nil, err
	}
	file, err := os.ReadFile(b.Path(g.File))
	if err != nil {
		return nil, err
	}
	constants, err := onnx.Constants(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", g.File, err)
	}
	places := map[string]*onnx.External{}
	for _, t := range constants {
		places[t.Name] = t.External
	}
	read := func(name string) ([]byte, error) {
		at := places[name]
		if at == nil {
			return nil, fmt.Errorf("%s: expected the weight %s in a data file", g.File, name)
		}
		f, err := os.Open(b.Path(at.Location))
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		raw := make([]byte, at.Length)
		_, err = f.ReadAt(raw, at.Offset)
		return raw, err
	}
	r := &rounded{Source: src, layers: map[string][]float32{}}
	byName := map[string]graph.Weight{}
	for _, w := range d.Weights {
		byName[w.Name] = w
	}
	for _, w := range d.Weights {
		if w.Rule != graph.RuleQuants {
			continue
		}
		if err := r.layer(w, byName, read); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// layer dequantises one matrix and assigns the rows to its sources.
func (r *rounded) layer(w graph.Weight, all map[string]graph.Weight, read func(string) ([]byte, error)) error {
	base := w.Name[:len(w.Name)-len(".quants")]
	quants, err := read(w.Name)
	if err != nil {
		return err
	}
	rawScales, err := read(base + ".scales")
	if err != nil {
		return err
	}
	var zeros []byte
	if w.Packed {
		if zeros, err = read(base + ".zeros"); err != nil {
			return err
		}
	}
	outputs, blocks := w.Shape[0], w.Shape[1]
	factor := float32(1)
	if w.Scale != 0 {
		factor = float32(1 / w.Scale)
	}
	scale := func(i int) float32 {
		if all[base+".scales"].Type == models.Float16 {
			return models.Float16FromBits(binary.LittleEndian.Uint16(rawScales[2*i:]))
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
			return fmt.Errorf("%s: the checkpoint has no tensor %s", w.Name, name)
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
		return fmt.Errorf("%s: expected %d outputs, its sources have %d", w.Name, outputs, row)
	}
	return nil
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
