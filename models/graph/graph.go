// Package graph describes the networks of a bundle as ONNX graphs: the
// vision tower with its resampler, the decoder and the embedding lookup, a
// file each. A description names each weight and the rule by which its bytes
// come from the checkpoint's tensors; package convert carries the rules out
// and then asks the description for the ONNX file.
//
// It reads no weights and writes no files.
package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"touchline/models"
	"touchline/models/onnx"
)

// Rule says how the bytes of a weight are made.
type Rule uint8

// The rules. "Stacked" means: the rows of all Sources one after another, cut
// to [From, To) if To is set, then spread as RowGroup and ColGroup say.
const (
	// RuleCopy writes the stacked sources as they are, in Type.
	RuleCopy Rule = iota
	// RuleTranspose writes the stacked sources [N,K] as [K,N] in Type.
	RuleTranspose
	// RuleQuants, RuleScales and RuleZeros are three views of one rounding of
	// the stacked sources [N,K] to Bits in blocks of Block inputs (the last
	// one filled up with zeros), with nb = ceil(K/Block):
	// quants Uint8 [N, nb, Block*Bits/8] (low nibble first),
	// scales in Type [N*nb], zero points Uint8 [N*ceil(nb*Bits/8)].
	// Without RuleZeros the rounding is symmetric: the zero is 2^(Bits-1).
	// Scales are rounded to float16 in every Type, so that all devices run
	// the same weights. Where Packed is set the checkpoint itself is packed
	// (models.PackedLinear) and is repacked without loss.
	RuleQuants
	RuleScales
	RuleZeros
	// RuleValue writes Floats or Ints, which the description itself computed.
	RuleValue
	// RuleQueries writes what the keys of a cross attention whose queries are
	// weights get multiplied with. With Q queries, H = Heads heads and Out
	// inputs, the sources are: the queries [Q,Out]; the weight and the bias of
	// their LayerNorm (of Epsilon) [Out]; the stacked projections of queries
	// and keys (values may follow, and are not read) [2*Out,Out]; the biases of
	// these [2*Out], of which the keys' is not used: it adds the same to all
	// scores of a query. Row q*H+h of the result [Q*H,Out] is
	//
	//	Scale * (norm(query q) . Wq' + bq)[head h] . Wk[head h]
	RuleQueries
)

// Weight is one initializer of a graph that lies in a data file.
type Weight struct {
	Name  string
	Type  models.Type
	Shape []int
	Rule  Rule
	// Sources are tensors of the checkpoint, in order.
	Sources []string
	// From and To cut the stacked rows; To = 0 takes all.
	From, To int
	// Scale multiplies float values before they are written; 0 means 1.
	Scale float64
	// RowPad rows of zeros follow every RowGroup stacked rows, ColPad columns
	// of zeros every ColGroup columns (heads or layers made wider, so that a
	// faster kernel takes them). A group of 0 pads nothing.
	RowGroup, RowPad int
	ColGroup, ColPad int
	// Fold takes the norm before the matrix into it. nil folds nothing.
	Fold *Fold
	// Heads and Epsilon belong to RuleQueries.
	Heads   int
	Epsilon float64
	// Bits, Block and Packed belong to RuleQuants, RuleScales and RuleZeros.
	Bits, Block int
	Packed      bool
	// Values of RuleValue: float types take Floats, Int64 takes Ints.
	Floats []float32
	Ints   []int64
}

// Fold takes a LayerNorm's weight g and bias b, and the bias c of the linear
// layer behind it, into the layer's matrix W [N,K]. What is left of the norm
// adds Shift, s, to the normed values z. Their mean is 0, so that z+s always
// sums up to K*s, and the constant of an output can be spread over its row:
//
//	W'[n,k] = g[k]*W[n,k] + t[n]/(K*s)    t[n] = c[n] + sum_k (b[k]-s*g[k])*W[n,k]
//
// for then the sum over k of (z[k]+s)*W'[n,k] is what it was.
type Fold struct {
	// Weight and Bias are the norm's tensors, of K values.
	Weight, Bias string
	// Biases are the layer's, one per source of the weight, of N values in all.
	Biases []string
	// Shift must not be 0.
	Shift float64
	// Keys leaves out what b and c add: the same for each row of the input,
	// which changes nothing where a softmax over these rows follows.
	Keys bool
}

// Elements is the number of elements of the weight.
func (w Weight) Elements() int64 {
	n := int64(1)
	for _, d := range w.Shape {
		n *= int64(d)
	}
	return n
}

// Bytes is the size of the weight in a data file.
func (w Weight) Bytes() int64 { return w.Elements() * int64(w.Type.Size()) }

// Key is equal for weights that have the same bytes, in whatever graph and
// under whatever name they are: such weights need storing only once.
func (w Weight) Key() string {
	value := sha256.New()
	for _, f := range w.Floats {
		_ = binary.Write(value, binary.LittleEndian, math.Float32bits(f))
	}
	for _, i := range w.Ints {
		_ = binary.Write(value, binary.LittleEndian, i)
	}
	fold := Fold{}
	if w.Fold != nil {
		fold = *w.Fold
	}
	return fmt.Sprintf("%v %v %d %q %d:%d %g %d+%d %d+%d %d/%d %t %q %d %g %x", w.Type, w.Shape, w.Rule, w.Sources,
		w.From, w.To, w.Scale, w.RowGroup, w.RowPad, w.ColGroup, w.ColPad, w.Bits, w.Block, w.Packed,
		fmt.Sprint(fold), w.Heads, w.Epsilon, value.Sum(nil))
}

// Options choose among the forms of one network.
type Options struct {
	// Device and Weights of the graph. On the CPU all floats are float32; on
	// CUDA float16. WeightsInt4 is for the decoder alone.
	Device  models.Device
	Weights models.Weights
	// Block is the inputs per scale of the int4 layers: 16, 32, 64 or 128.
	// 0 means 32.
	Block int
	// ZeroPoints says that the int4 layers come packed from the checkpoint
	// (AWQ), with zero points and in its Block.
	ZeroPoints bool
	// Head is the bits of an int4 decoder's vocabulary matrix: 16 (floats), 4 or 8
	// (symmetric, in blocks of 32). 0 means 8.
	Head int
	// Check adds the outputs of the conformance check.
	Check bool
}

// Location is where the bytes of a weight lie.
type Location struct {
	File   string // in the folder of the graph
	Offset int64  // a multiple of 4096
	Length int64
}

// Description is a network as a graph: what it takes, what it gives and the
// weights it needs.
type Description struct {
	Kind    models.Kind
	Options Options // with the defaults filled in
	Inputs  []models.Port
	Outputs []models.Port
	Weights []Weight // of unique names

	graph onnx.Graph // without weights, inputs and outputs
}

// WeightBytes is the size of all weights.
func (d *Description) WeightBytes() int64 {
	var n int64
	for _, w := range d.Weights {
		n += w.Bytes()
	}
	return n
}
