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
// a learned position each) and the resampler (learned queries that attend to
// the patches, which carry the sine and cosine of their place), from patches
// to the embeddings of an image. All images of a batch have the same grid of
// patches. With F as in Decoder and L patches per image:
//
//	patches        F [B,L,3*patch*patch]  rows in the order channel, y, x
//	position_ids   int64 [L]              rows of the position table
//	rows, cols     int64 [L]              place of the patch in the image
//
//	image_embeds   F [B,queries,out]
//
// Options.Check adds vision_embeddings, vision_layer.i (the input of layer i;
// vision_layer.layers comes before the last norm) and vision_hidden (after
// it), each F [B,L,hidden].
func Vision(d models.Dims, o Options) (*Description, error) {
	err := checkVision(d.Vision, o)
	if err != nil {
		return nil, fmt.Errorf("describe vision: %w", err)
	}
	b := vision{network: newNetwork("vision", o), Vision: *d.Vision}
	return b.build(), nil
}

func checkVision(c *models.Vision, o Options) error {
	if c == nil {
		return errors.New("the checkpoint has no vision tower")
	}
	err := checkSizes(size{"vision.layers", c.Layers}, size{"vision.hidden", c.Hidden}, size{"vision.heads", c.Heads},
		size{"vision.ffn", c.FFN}, size{"vision.patch", c.Patch}, size{"vision.grid", c.Grid},
		size{"vision.queries", c.Queries}, size{"vision.out", c.Out},
		size{"vision.resampler_heads", c.ResamplerHeads}, size{"vision.max_side", c.MaxSide})
	switch {
	case err != nil:
		return err
	case c.Hidden%c.Heads != 0:
		return fmt.Errorf("vision.hidden: must be a multiple of vision.heads (%d), is %d", c.Heads, c.Hidden)
	case c.Out%c.ResamplerHeads != 0 || c.Out%4 != 0:
		return fmt.Errorf("vision.out: must be a multiple of 4 and of vision.resampler_heads (%d), is %d",
			c.ResamplerHeads, c.Out)
	case !(c.Epsilon > 0) || math.IsInf(c.Epsilon, 0):
		return fmt.Errorf("vision.epsilon: must be above 0, is %g", c.Epsilon)
	}
	return checkFloat(o)
}

// vision builds the graph of the vision tower and the resampler.
type vision struct {
	*network
	models.Vision
}

// resamplerEpsilon is fixed in the official code.
const resamplerEpsilon = 1e-6

func (b *vision) build() *Description {
	pixels := 3 * b.Patch * b.Patch
	b.input("patches", b.float, "B", "L", pixels)
	b.input("position_ids", models.Int64, "L")
	b.input("rows", models.Int64, "L")
	b.input("cols", models.Int64, "L")
	b.output("image_embeds", b.float, "B", b.Queries, b.Out)

	residual := b.embed(pixels)
	b.checkpoint("vision_embeddings", residual)
	x := b.norm("layers.0.norm", residual, b.Hidden, b.Epsilon, visionLayer(0)+"layer_norm1")
	for i := range b.Layers {
		b.checkpoint("vision_layer."+strconv.Itoa(i), residual)
		p, source := "layers."+strconv.Itoa(i)+".", visionLayer(i)
		a := b.attention(i, x)
		x, residual = b.skipNorm(p+"ffn_norm", residual, a, source+"self_attn.out_proj.bias", source+"layer_norm2")
		f := b.feedForward(i, x)
		next := "vpm.post_layernorm"
		if i+1 < b.Layers {
			next = visionLayer(i+1) + "layer_norm1"
		}
		x, residual = b.skipNorm("layers."+strconv.Itoa(i+1)+".norm", residual, f, source+"mlp.fc2.bias", next)
	}
	b.checkpoint("vision_layer."+strconv.Itoa(b.Layers), residual)
	b.checkpoint("vision_hidden", x)
	b.resample(x)
	return b.describe(models.KindVision)
}

func visionLayer(i int) string { return "vpm.encoder.layers." + strconv.Itoa(i) + "." }

// checkpoint hands out a value for the conformance check.
func (b *vision) checkpoint(name, x string) {
	if b.options.Check {
		b.output(name, b.float, "B", "L", b.Hidden)
		b.node("Identity", name, []string{x})
	}
}

// embed projects the patches (the convolution of the tower has the patch as
// its stride, so it is one matrix) and adds their learned positions.
func (b *vision) embed(pixels int) string {
	x := b.linear("patch", "patches", matrix{
		name: "patch", in: pixels, out: b.Hidden, sources: []string{"vpm.embeddings.patch_embedding.weight"},
	})
	table := b.weight(Weight{
		Name: "positions", Type: b.float, Shape: []int{b.Grid * b.Grid, b.Hidden}, Rule: RuleCopy,
		Sources: []string{"vpm.embeddings.position_embedding.weight"},
	})
	place := b.node("Gather", "position", []string{table, "position_ids"}, onnx.Int("axis", 0))
	bias := b.vector("patch.bias", b.Hidden, "vpm.embeddings.patch_embedding.bias")
	place = b.node("Add", "position.biased", []string{place, bias})
	return b.node("Add", "embeddings", []string{x, place})
}

// norm is a LayerNorm.
func (b *vision) norm(name, x string, width int, epsilon float64, source string) string {
	return b.node("LayerNormalization", name, []string{
		x, b.vector(name+".weight", width, source+".weight"), b.vector(name+".bias", width, source+".bias"),
	}, onnx.Int("axis", -1), onnx.Real("epsilon", epsilon))
}

// skipNorm adds y and its bias to the residual and norms the sum: one pass
// over memory.
func (b *vision) skipNorm(name, residual, y, bias, source string) (normed, sum string) {
	b.nodes("SkipLayerNormalization", name, []string{
		residual, y, b.vector(name+".weight", b.Hidden, source+".weight"), b.vector(name+".bias", b.Hidden, source+".bias"),
		b.vector(name+".skip_bias", b.Hidden, bias),
	}, []string{name, "", "", name + ".sum"}, onnx.Real("epsilon", b.Epsilon))
	return name, name + ".sum"
}

// attention is a layer's attention; the bias of its output comes with the
// sum after it.
func (b *vision) attention(i int, x string) string {
	p, source := "layers."+strconv.Itoa(i)+".", visionLayer(i)+"self_attn."
	project := func(which string) string {
		return b.linear(p+which, x, matrix{
			name: p + which, in: b.Hidden, out: b.Hidden, sources: []string{source + which + "_proj.weight"},
		})
	}
	bias := b.vector(p+"qkv.bias", 3*b.Hidden, source+"q_proj.bias", source+"k_proj.bias", source+"v_proj.bias")
	a := b.node("MultiHeadAttention", p+"attention", []string{project("q"), project("k"), project("v"), bias},
		onnx.Int("num_heads", b.Heads), onnx.Real("scale", 1/math.Sqrt(float64(b.Hidden/b.Heads))))
	return b.linear(p+"o", a, matrix{
		name: p + "o", in: b.Hidden, out: b.Hidden, sources: []string{source + "out_proj.weight"},
	})
}

// feedForward is a layer's perceptron with the tanh form of GELU; the bias of
// its output comes with the sum after it.
func (b *vision) feedForward(i int, x string) string {
	p, source := "layers."+strconv.Itoa(i)+".", visionLayer(i)+"mlp."
	f := b.linear(p+"fc1", x, matrix{name: p + "fc1", in: b.Hidden, out: b.FFN, sources: []string{source + "fc1.weight"}})
	f = b.node("FastGelu", p+"gelu", []string{f, b.vector(p+"fc1.bias", b.FFN, source+"fc1.bias")})
	return b.linear(p+"fc2", f, matrix{name: p + "fc2", in: b.FFN, out: b.Hidden, sources: []string{source + "fc2.weight"}})
}

// resample takes the patches to the embeddings of the image.
func (b *vision) resample(x string) {
	kv := b.linear("resampler.kv", x, matrix{
		name: "resampler.kv", in: b.Hidden, out: b.Out, sources: []string{"resampler.kv_proj.weight"},
	})
	kv = b.norm("resampler.kv_norm", kv, b.Out, resamplerEpsilon, "resampler.ln_kv")
	keys := b.node("Add", "resampler.keys", []string{kv, b.places()})
	query := b.weight(Weight{
		Name: "resampler.query", Type: b.float, Shape: []int{1, b.Queries, b.Out}, Rule: RuleCopy,
		Sources: []string{"resampler.query"},
	})
	query = b.norm("resampler.query_norm", query, b.Out, resamplerEpsilon, "resampler.ln_q")
	project := func(name, x string, part int) string {
		w := b.weight(Weight{
			Name: "resampler." + name + ".weight", Type: b.float, Shape: []int{b.Out, b.Out}, Rule: RuleTranspose,
			Sources: []string{"resampler.attn.in_proj_weight"}, From: part * b.Out, To: (part + 1) * b.Out,
		})
		return b.node("MatMul", "resampler."+name, []string{x, w})
	}
	// The same queries for every image of the batch.
	batch := b.node("Shape", "batch", []string{"patches"}, onnx.Int("start", 0), onnx.Int("end", 1))
	shape := b.node("Concat", "batch.shape", []string{batch, b.constant("batch.ones", 1, 1)}, onnx.Int("axis", 0))
	queries := b.node("Expand", "resampler.queries", []string{project("q", query, 0), shape})
	bias := b.vector("resampler.qkv.bias", 3*b.Out, "resampler.attn.in_proj_bias")
	a := b.node("MultiHeadAttention", "resampler.attention",
		[]string{queries, project("k", keys, 1), project("v", kv, 2), bias},
		onnx.Int("num_heads", b.ResamplerHeads), onnx.Real("scale", 1/math.Sqrt(float64(b.Out/b.ResamplerHeads))))
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

// places looks up the sine and cosine of each patch's column (first half) and
// row (second half).
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
