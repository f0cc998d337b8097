package graph

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// Vision describes the vision tower (SigLIP: a transformer over patches with
// learned positions) and the resampler (learned queries that attend to the
// patches with sinusoidal positions), from patches to the embeddings of an
// image. All images of a batch have the same grid of patches. With F as in
// Decoder and L patches per image:
//
//	patches        F [B,L,3*patch*patch]  rows in the order channel, y, x
//	position_ids   int64 [L]              rows of the position table
//	rows, cols     int64 [L]              position of the patch in the image
//
//	image_embeds   F [B,queries,out]
//
// Options.Check adds vision_embeddings, vision_layer.i (the input of layer i, or
// of the last norm for i = layers) and vision_hidden (the output of the last
// norm), each F [B,L,hidden].
func Vision(d models.Dims, o Options) (*Description, error) {
	if d.Vision == nil {
		return nil, errors.New("describe vision: the checkpoint has no vision tower")
	}
	if err := errors.Join(d.Validate(), checkWords(d, o)); err != nil {
		return nil, fmt.Errorf("describe vision: %w", err)
	}
	b := vision{network: newNetwork("vision", o), Vision: *d.Vision}
	return b.build(), nil
}

// vision builds the graph of the vision tower and the resampler.
type vision struct {
	*network
	models.Vision
}

// resamplerEpsilon is a constant of the official code.
const resamplerEpsilon = 1e-6

func (b *vision) build() *Description {
	pixels := 3 * b.Patch * b.Patch
	b.input("patches", b.float, "B", "L", pixels)
	b.input("position_ids", models.Int64, "L")
	b.input("rows", models.Int64, "L")
	b.input("cols", models.Int64, "L")
	b.output("image_embeds", b.float, "B", b.Queries, b.Out)

	x, residual := b.embed(pixels)
	b.checkpoint("vision_embeddings", residual)
	for i := range b.Layers {
		b.checkpoint("vision_layer."+strconv.Itoa(i), residual)
		p, source := "layers."+strconv.Itoa(i)+".", visionLayer(i)
		a := b.attention(i, x)
		weight, shift := b.folded()
		x, residual = b.skipNorm(p+"ffn_norm", residual, a, source+"self_attn.out_proj.bias", weight, shift)
		f := b.feedForward(i, x)
		if i+1 == b.Layers {
			weight, shift = b.affine("post_norm", b.Hidden, "vpm.post_layernorm")
		}
		x, residual = b.skipNorm("layers."+strconv.Itoa(i+1)+".norm", residual, f, source+"mlp.fc2.bias", weight, shift)
	}
	b.checkpoint("vision_layer."+strconv.Itoa(b.Layers), residual)
	b.checkpoint("vision_hidden", x)
	b.resample(x)
	return b.describe(models.KindVision)
}

func visionLayer(i int) string { return "vpm.encoder.layers." + strconv.Itoa(i) + "." }

// checkpoint outputs a value for the conformance check.
func (b *vision) checkpoint(name, x string) {
	if b.options.Check {
		b.output(name, b.float, "B", "L", b.Hidden)
		b.node("Identity", name, []string{x})
	}
}

// embed projects the patches (the tower's convolution has the patch size as its
// stride, so it is a matrix), adds their learned positions and norms the sum.
func (b *vision) embed(pixels int) (normed, sum string) {
	x := b.linear("patch", "patches", matrix{
		name: "patch", in: pixels, out: b.Hidden, sources: []string{"vpm.embeddings.patch_embedding.weight"},
	})
	table := b.weight(Weight{
		Name: "positions", Type: b.float, Shape: []int{b.Grid * b.Grid, b.Hidden}, Rule: RuleCopy,
		Sources: []string{"vpm.embeddings.position_embedding.weight"},
	})
	place := b.node("Gather", "position", []string{table, "position_ids"}, onnx.Int("axis", 0))
	weight, shift := b.folded()
	return b.skipNorm("layers.0.norm", x, place, "vpm.embeddings.patch_embedding.bias", weight, shift)
}

// affine adds the weight and the bias of a LayerNorm.
func (b *vision) affine(name string, width int, source string) (weight, bias string) {
	return b.vector(name+".weight", width, source+".weight"), b.vector(name+".bias", width, source+".bias")
}

// normShift is the shift of the layers' norms. Their weights and biases, and the
// biases of the linear layers after them, are merged into the matrices (Fold), so
// attention and GELU need no pass that adds a bias. At 0.25 float16 loses no
// precision: the shift is small compared with the normed values, and its share
// of a row is small compared with the weights.
const normShift = 0.25

// folded is affine for the folded norms: all layers share one weight and bias.
func (b *vision) folded() (weight, bias string) {
	constant := func(name string, value float32) string {
		values := make([]float32, b.Hidden)
		for i := range values {
			values[i] = value
		}
		return b.weight(Weight{Name: name, Type: b.float, Shape: []int{b.Hidden}, Rule: RuleValue, Floats: values})
	}
	return constant("norm.weight", 1), constant("norm.shift", normShift)
}

// behind adds a linear layer after a norm.
func (b *vision) behind(name, x string, out int, layer, norm string, keys bool) string {
	return b.linear(name, x, matrix{
		name: name, in: b.Hidden, out: out, sources: []string{layer + ".weight"},
		fold: &Fold{
			Weight: norm + ".weight", Bias: norm + ".bias", Biases: []string{layer + ".bias"}, Shift: normShift, Keys: keys,
		},
	})
}

// norm adds a LayerNorm.
func (b *vision) norm(name, x string, width int, epsilon float64, source string) string {
	weight, bias := b.affine(name, width, source)
	return b.node("LayerNormalization", name, []string{x, weight, bias}, onnx.Int("axis", -1), onnx.Real("epsilon", epsilon))
}

// skipNorm adds y and its bias to the residual and norms the sum in one pass over
// memory.
func (b *vision) skipNorm(name, residual, y, bias, weight, shift string) (normed, sum string) {
	b.nodes("SkipLayerNormalization", name, []string{
		residual, y, weight, shift, b.vector(name+".skip_bias", b.Hidden, bias),
	}, []string{name, "", "", name + ".sum"}, onnx.Real("epsilon", b.Epsilon))
	return name, name + ".sum"
}

// attention adds a layer's attention; the following skipNorm adds the bias of
// its output.
func (b *vision) attention(i int, x string) string {
	p, source := "layers."+strconv.Itoa(i)+".", visionLayer(i)
	project := func(which string) string {
		return b.behind(p+which, x, b.Hidden, source+"self_attn."+which+"_proj", source+"layer_norm1", which == "k")
	}
	a := b.node("MultiHeadAttention", p+"attention", []string{project("q"), project("k"), project("v")},
		onnx.Int("num_heads", b.Heads), onnx.Real("scale", 1/math.Sqrt(float64(b.Hidden/b.Heads))))
	return b.linear(p+"o", a, matrix{
		name: p + "o", in: b.Hidden, out: b.Hidden, sources: []string{source + "self_attn.out_proj.weight"},
	})
}

// feedForward adds a layer's perceptron with the tanh form of GELU; the following
// skipNorm adds the bias of its output.
func (b *vision) feedForward(i int, x string) string {
	p, source := "layers."+strconv.Itoa(i)+".", visionLayer(i)
	f := b.behind(p+"fc1", x, b.FFN, source+"mlp.fc1", source+"layer_norm2", false)
	f = b.node("FastGelu", p+"gelu", []string{f})
	return b.linear(p+"fc2", f, matrix{
		name: p + "fc2", in: b.FFN, out: b.Hidden, sources: []string{source + "mlp.fc2.weight"},
	})
}

// resample computes the embeddings of an image: learned queries attend to its
// patches. The queries are constant, so conversion merges them with the
// projection of the keys (RuleQueries). There are few of them, so the values are
// pooled before their projection. Together this halves the work of projecting
// all patches to keys and values.
func (b *vision) resample(x string) {
	kv := b.linear("resampler.kv", x, matrix{
		name: "resampler.kv", in: b.Hidden, out: b.Out, sources: []string{"resampler.kv_proj.weight"},
	})
	kv = b.norm("resampler.kv_norm", kv, b.Out, resamplerEpsilon, "resampler.ln_kv")
	keys := b.node("Add", "resampler.keys", []string{kv, b.places()})
	heads, width := b.ResamplerHeads, b.Out/b.ResamplerHeads
	queries := b.weight(Weight{
		Name: "resampler.queries", Type: b.float, Shape: []int{b.Queries * heads, b.Out}, Rule: RuleQueries,
		Sources: []string{
			"resampler.query", "resampler.ln_q.weight", "resampler.ln_q.bias",
			"resampler.attn.in_proj_weight", "resampler.attn.in_proj_bias",
		},
		Scale: 1 / math.Sqrt(float64(width)), Heads: heads, Epsilon: resamplerEpsilon,
	})
	// [B,L,Q*H]: the queries come second, so that one product serves all images.
	scores := b.node("FusedMatMul", "resampler.scores", []string{keys, queries}, onnx.Int("transB", 1))
	scores = b.node("Transpose", "resampler.scores.rows", []string{scores}, onnx.Ints("perm", 0, 2, 1))
	scores = b.node("Softmax", "resampler.shares", []string{scores}, onnx.Int("axis", -1))
	pooled := b.node("MatMul", "resampler.pooled", []string{scores, kv})
	// [B*Q,H,Out] by [H,width,Out]: each head has its own part of the matrix.
	pooled = b.node("Reshape", "resampler.pooled.heads", []string{pooled, b.constant("pooled.shape", -1, int64(heads), int64(b.Out))})
	values := b.weight(Weight{
		Name: "resampler.v.weight", Type: b.float, Shape: []int{heads, width, b.Out}, Rule: RuleCopy,
		Sources: []string{"resampler.attn.in_proj_weight"}, From: 2 * b.Out, To: 3 * b.Out,
	})
	a := b.node("FusedMatMul", "resampler.v", []string{pooled, values}, onnx.Int("transBatchA", 1), onnx.Int("transB", 1))
	a = b.node("Transpose", "resampler.v.rows", []string{a}, onnx.Ints("perm", 1, 0, 2))
	a = b.node("Reshape", "resampler.attention", []string{a, b.constant("attention.shape", -1, int64(b.Queries), int64(b.Out))})
	a = b.node("Add", "resampler.v.biased", []string{a, b.weight(Weight{
		Name: "resampler.v.bias", Type: b.float, Shape: []int{b.Out}, Rule: RuleCopy,
		Sources: []string{"resampler.attn.in_proj_bias"}, From: 2 * b.Out, To: 3 * b.Out,
	})})
	a = b.linear("resampler.o", a, matrix{
		name: "resampler.o", in: b.Out, out: b.Out, sources: []string{"resampler.attn.out_proj.weight"},
	})
	a = b.node("Add", "resampler.o.biased", []string{a, b.vector("resampler.o.bias", b.Out, "resampler.attn.out_proj.bias")})
	a = b.norm("resampler.out_norm", a, b.Out, resamplerEpsilon, "resampler.ln_post")
	b.node("MatMul", "image_embeds", []string{a, b.weight(Weight{
		Name: "resampler.proj", Type: b.float, Shape: []int{b.Out, b.Out}, Rule: RuleCopy,
		Sources: []string{"resampler.proj"},
	})})
}

// places looks up the sinusoidal position of each patch: its column (first half)
// and row (second half).
func (b *vision) places() string {
	half := b.Out / 2
	values := make([]float32, b.MaxSide*half)
	for j := range half / 2 {
		frequency := math.Pow(10000, -float64(j)/float64(half/2))
		for t := range b.MaxSide {
			sin, cos := math.Sincos(float64(t) * frequency)
			values[t*half+j], values[t*half+half/2+j] = float32(sin), float32(cos)
		}
	}
	table := b.weight(Weight{
		Name: "places", Type: b.float, Shape: []int{b.MaxSide, half}, Rule: RuleValue, Floats: values,
	})
	col := b.node("Gather", "place.col", []string{table, "cols"}, onnx.Int("axis", 0))
	row := b.node("Gather", "place.row", []string{table, "rows"}, onnx.Int("axis", 0))
	return b.node("Concat", "place", []string{col, row}, onnx.Int("axis", -1))
}
