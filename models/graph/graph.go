// Package graph describes the networks of a bundle as ONNX graphs: the vision
// tower with its resampler, the encoder of sound, the decoder, the aligner, the
// embedding lookup, and the networks of the model's own voice, one file each. A description lists each weight with the rule
// that derives its bytes from the checkpoint's tensors. Package convert applies the
// rules and encodes the description as an ONNX file.
//
// It reads weights only to compute a Formula, and writes no files.
package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"touchline/models"
	"touchline/models/onnx"
)

// Rule is the derivation of a weight's bytes.
type Rule uint8

// The rules. "Stacked" means that the rows of all Sources are concatenated and then cut to [From,
// To) if To is set.
const (
	// RuleCopy writes the stacked sources unchanged, in Type.
	RuleCopy Rule = iota
	// RuleTranspose writes the stacked sources [N,K] as [K,N] in Type.
	RuleTranspose
	// RuleQuants, RuleScales and RuleZeros are three views of one rounding of
	// the stacked sources [N,K] to Bits in blocks of Block inputs (the last
	// block is zero-padded), with nb = ceil(K/Block):
	// quants Uint8 [N, nb, Block*Bits/8] (low nibble first),
	// scales in Type [N*nb], zero points Uint8 [N*ceil(nb*Bits/8)].
	// Without RuleZeros the rounding is symmetric: the zero is 2^(Bits-1).
	// Scales are rounded to float16 in Float32 too, so that all devices run
	// the same weights, and to bfloat16 with Wide. With Packed the checkpoint's own int4 layer
	// (models.PackedLinear) is repacked without loss.
	RuleQuants
	RuleScales
	RuleZeros
	// RuleValue writes Floats, which the description has computed.
	RuleValue
	// RuleQueries writes the matrix that multiplies the keys of a cross attention
	// with constant queries. With Q queries, H = Heads heads and Out inputs, the
	// sources are: the queries [Q,Out]; weight and bias [Out] of their LayerNorm
	// (of Epsilon); the stacked projections of queries and keys [2*Out,Out]
	// (values may follow and are ignored); their biases [2*Out]. The keys' bias
	// is ignored: it adds the same to all scores of a query. Row q*H+h of the
	// result [Q*H,Out] is
	//
	//	Scale * (norm(query q) . Wq' + bq)[head h] . Wk[head h]
	RuleQueries
	// RuleFormula writes the result of Formula.
	RuleFormula
)

// Weight is one initializer of a graph, stored in a data file.
type Weight struct {
	Name  string
	Type  models.Type
	Shape []int
	Rule  Rule
	// Sources names tensors of the checkpoint, in order.
	Sources []string
	// From and To select stacked rows; To = 0 selects all.
	From, To int
	// Fold merges the preceding norm into the matrix; nil merges none.
	Fold *Fold
	// Heads and Epsilon belong to RuleQueries, as Scale does. For other rules, Scale multiplies the stacked sources unless it is 0.
	Heads          int
	Epsilon, Scale float64
	// Bits, Block, Packed and Wide belong to RuleQuants, RuleScales and RuleZeros.
	Bits, Block  int
	Packed, Wide bool
	Floats       []float32 // of RuleValue
	Formula      *Formula  // of RuleFormula
}

// Fold merges a LayerNorm's weight g and bias b, and the bias c of the linear
// layer after it, into the layer's matrix W [N,K]. The remaining norm adds
// Shift, s, to the normed values z. Their mean is 0, so z+s always sums up to
// K*s, and the constant of an output can be distributed over its row:
//
//	W'[n,k] = g[k]*W[n,k] + t[n]/(K*s)    t[n] = c[n] + sum_k (b[k]-s*g[k])*W[n,k]
//
// The sum over k of (z[k]+s)*W'[n,k] is then the layer's original output.
type Fold struct {
	// Weight and Bias name the norm's tensors, of K values.
	Weight, Bias string
	// Biases names the layer's biases, one per source of the weight, of N values
	// in total.
	Biases []string
	// Shift must not be 0.
	Shift float64
	// Keys omits the terms of b and c. They are the same for each row of the input and have no
	// effect before a softmax over these rows.
	Keys bool
}

// Elements returns the number of elements of the weight.
func (w Weight) Elements() int64 {
	n := int64(1)
	for _, d := range w.Shape {
		n *= int64(d)
	}
	return n
}

// Bytes returns the size of the weight in a data file.
func (w Weight) Bytes() int64 { return w.Elements() * int64(w.Type.Size()) }

// Key identifies the bytes of a weight: weights with equal keys, in any graph and
// under any name, share one place in a data file.
func (w Weight) Key() string {
	value := sha256.New()
	_ = binary.Write(value, binary.LittleEndian, w.Floats)
	fold := Fold{}
	if w.Fold != nil {
		fold = *w.Fold
	}
	if w.Formula != nil {
		_, _ = value.Write([]byte(w.Formula.text))
	}
	return fmt.Sprintf("%v %v %d %q %d:%d %d/%d %t %t %q %d %g %g %x", w.Type, w.Shape, w.Rule, w.Sources,
		w.From, w.To, w.Bits, w.Block, w.Packed, w.Wide, fmt.Sprint(fold), w.Heads, w.Epsilon, w.Scale, value.Sum(nil))
}

// Options select the form of a network.
type Options struct {
	// Device and Weights of the graph. Floats are float32 on the CPU and float16
	// on CUDA; those of a voice on CUDA are float32 with WeightsFloat32. WeightsInt4 is
	// for the decoder only. WeightsBFloat16, for words and pictures on CUDA only, makes floats bfloat16.
	Device  models.Device
	Weights models.Weights
	// BFloat16 makes the floats of a decoder with WeightsInt4 on CUDA bfloat16.
	BFloat16 bool
	// Block is the inputs per scale of the int4 layers: 16, 32, 64 or 128.
	// 0 means 32.
	Block int
	// ZeroPoints uses the packed int4 layers of the checkpoint (AWQ), with its zero points and its
	// Block.
	ZeroPoints bool
	// Head is the bits of an int4 decoder's vocabulary matrix: 16 (floats), 4 or 8
	// (symmetric, in blocks of 32). 0 means 8.
	Head int
	// Check adds the outputs of the conformance check.
	Check bool
}

// Location is the place of a weight's bytes.
type Location struct {
	File   string // in the folder of the graph
	Offset int64  // a multiple of 4096
	Length int64
}

// Description is a network as a graph: its inputs, outputs and weights.
type Description struct {
	Kind    models.Kind
	Options Options // with the defaults filled in
	Inputs  []models.Port
	Outputs []models.Port
	Weights []Weight // with unique names

	graph onnx.Graph // without weights, inputs and outputs
	opset int64
}

// WeightBytes returns the size of all weights.
func (d *Description) WeightBytes() int64 {
	var n int64
	for _, w := range d.Weights {
		n += w.Bytes()
	}
	return n
}
