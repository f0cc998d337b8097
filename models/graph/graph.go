// Package graph describes the networks of a bundle as ONNX graphs: the
// vision tower with its resampler, the decoder and the embedding lookup, a
// file each. A description names each weight and the rule by which its bytes
// come from the checkpoint's tensors; package convert carries the rules out.
package graph

import "touchline/models"

// Rule says how the bytes of a weight are made.
type Rule uint8

// The rules. "Stacked" means: the rows of all Sources one after another.
const (
	// RuleCopy writes the stacked sources as they are, in Type.
	RuleCopy Rule = iota
	// RuleTranspose writes the stacked sources [N,K] as [K,N] in Type.
	RuleTranspose
	// RuleQuants, RuleScales and RuleZeros are three views of one rounding of
	// the stacked sources [N,K] to Bits in blocks of Block inputs:
	// quants Uint8 [N, K/Block, Block*Bits/8] (low nibble first),
	// scales in Type [N*K/Block], zero points Uint8 [N * ceil(K/Block*Bits/8)].
	// Where the checkpoint itself is packed (models.PackedLinear) and Packed
	// is set, they are repacked without loss.
	RuleQuants
	RuleScales
	RuleZeros
	// RuleValue writes Value, which the description itself computed.
	RuleValue
	// RuleRepeat writes the stacked sources Count times (a vector per head).
	RuleRepeat
)

// Weight is one initializer of a graph.
type Weight struct {
	Name  string
	Type  models.Type
	Shape []int
	Rule  Rule
	// Sources are tensors of the checkpoint, in order.
	Sources []string
	// Scale multiplies float values before they are written; 0 means 1.
	Scale float64
	// Bits, Block and Packed belong to RuleQuants, RuleScales and RuleZeros.
	Bits, Block int
	Packed      bool
	Count       int // of RuleRepeat
	// Value of RuleValue, float32 or int64 by Type (float types take Floats).
	Floats []float32
	Ints   []int64
}
