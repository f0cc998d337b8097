package graph

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// towerPrefix is the prefix of the audio encoder's tensors.
const towerPrefix = "audio_tower."

// Hearing describes the encoder of sound of Qwen3-ASR and Qwen3-ForcedAligner: three
// convolutions over each chunk of a mel spectrogram by itself, and a transformer over
// windows of chunks. A batch has W windows, of any sounds, with the same number C of
// chunks, at most Window of them; R = C*ChunkRows. With F as in Decoder:
//
//	mel     float32 [W,mel,T]  T = C*chunk frames of models.Hearing.Mel bins; 0 behind the end of a sound
//	rows    int32 [W]          the valid rows of each window, at least 1: Hearing.Rows of its frames
//
//	audio   F [W,R,out]        rows for the decoder; those from rows[w] on mean nothing
//
// A sound is cut into windows from its start; only the last one can be short, and only its
// last chunk. Windows do not see each other, so neither the batch nor the size of C
// changes a row.
//
// Options.Check adds layer.i, the input of layer i, F [W,R,hidden].
func Hearing(d models.Dims, o Options) (*Description, error) {
	if d.Hearing == nil {
		return nil, errors.New("describe hearing: the checkpoint has no encoder of sound")
	}
	if err := errors.Join(d.Validate(), checkFloat(o)); err != nil {
		return nil, fmt.Errorf("describe hearing: %w", err)
	}
	b := hearing{network: newNetwork("hearing", o), Hearing: *d.Hearing}
	return b.build(), nil
}

// hearing builds the graph of the audio encoder. The residual is float32 on all devices.
type hearing struct {
	*network
	models.Hearing
}

func (b *hearing) build() *Description {
	b.input("mel", models.Float32, "W", b.Mel, "T")
	b.input("rows", models.Int32, "W")
	b.output("audio", b.float, "W", "R", b.Out)

	residual := b.cast("embedded.wide", b.embed(), models.Float32)
	const first = "layers.0."
	weight, bias := b.affine(first+"attention_norm", towerPrefix+first+"self_attn_layer_norm")
	x := b.node("LayerNormalization", first+"attention_norm.wide", []string{residual, weight, bias},
		onnx.Int("axis", -1), onnx.Real("epsilon", b.Epsilon))
	x = b.cast(first+"attention_norm", x, b.float)
	for i := range b.Layers {
		b.checkpoint(i, residual)
		p := "layers." + strconv.Itoa(i) + "."
		source, next := towerPrefix+p, towerPrefix+"layers."+strconv.Itoa(i+1)+".self_attn_layer_norm"
		if i+1 == b.Layers {
			next = towerPrefix + "ln_post"
		}
		x, residual = b.skipNorm(p+"ffn_norm", residual, b.attention(p, x), source+"self_attn.out_proj.bias", source+"final_layer_norm")
		f := b.gelu(p+"fc1", x, b.Hidden, b.FFN, source+"fc1")
		f = b.linear(p+"fc2", f, matrix{name: p + "fc2", in: b.FFN, out: b.Hidden, sources: []string{source + "fc2.weight"}})
		x, residual = b.skipNorm(p+"next_norm", residual, f, source+"fc2.bias", next)
	}
	x = b.gelu("proj1", x, b.Hidden, b.Hidden, towerPrefix+"proj1")
	x = b.linear("proj2", x, matrix{name: "proj2", in: b.Hidden, out: b.Out, sources: []string{towerPrefix + "proj2.weight"}})
	b.node("Add", "audio", []string{x, b.vector("proj2.bias", b.Out, towerPrefix+"proj2.bias")})
	return b.describe(models.KindHearing)
}

// embed convolves the chunks, [W*C,1,mel,chunk] to [W*C,channels,mel/8,rows], and adds the positions of the rows within their chunk:
// [W,R,hidden].
func (b *hearing) embed() string {
	x := b.cast("mel.float", "mel", b.float)
	x = b.node("Reshape", "chunks.columns", []string{x, b.constant("columns.shape", 0, int64(b.Mel), -1, int64(b.Chunk))})
	x = b.node("Transpose", "chunks.rows", []string{x}, onnx.Ints("perm", 0, 2, 1, 3))
	x = b.node("Reshape", "chunks", []string{x, b.constant("chunks.shape", -1, 1, int64(b.Mel), int64(b.Chunk))})
	in := 1
	for i := range 3 {
		name := "conv2d" + strconv.Itoa(i+1)
		source := towerPrefix + name
		weight := b.weight(Weight{
			Name: name + ".weight", Type: b.float, Shape: []int{b.Channels, in, 3, 3}, Rule: RuleCopy, Sources: []string{source + ".weight"},
		})
		x = b.node("Conv", name, []string{x, weight, b.vector(name+".bias", b.Channels, source+".bias")},
			onnx.Ints("pads", 1, 1, 1, 1), onnx.Ints("strides", 2, 2), onnx.Ints("kernel_shape", 3, 3))
		x = b.node("Gelu", name+".gelu", []string{x})
		in = b.Channels
	}
	width, rows := b.Channels*b.Mel/8, b.ChunkRows()
	x = b.node("Transpose", "conv.rows", []string{x}, onnx.Ints("perm", 0, 3, 1, 2))
	x = b.node("Reshape", "conv.flat", []string{x, b.constant("flat.shape", -1, int64(rows), int64(width))})
	x = b.linear("conv_out", x, matrix{name: "conv_out", in: width, out: b.Hidden, sources: []string{towerPrefix + "conv_out.weight"}})
	x = b.node("Add", "conv.placed", []string{x, b.places(rows)})
	windows := b.node("Shape", "windows", []string{"rows"})
	shape := b.node("Concat", "embedded.shape", []string{windows, b.constant("embedded.row", -1, int64(b.Hidden))}, onnx.Int("axis", 0))
	return b.node("Reshape", "embedded", []string{x, shape})
}

// checkpoint outputs the input of layer i for the conformance check.
func (b *hearing) checkpoint(i int, residual string) {
	if b.options.Check {
		b.output("layer."+strconv.Itoa(i), b.float, "W", "R", b.Hidden)
		b.cast("layer."+strconv.Itoa(i), residual, b.float)
	}
}

// places returns the sinusoidal positions within a chunk: sines, then cosines.
func (b *hearing) places(rows int) string {
	half := b.Hidden / 2
	step := math.Log(10000) / float64(half-1)
	values := make([]float32, 0, rows*b.Hidden)
	for p := range rows {
		var cosines []float32
		for j := range half {
			sin, cos := math.Sincos(float64(p) * math.Exp(-step*float64(j)))
			values, cosines = append(values, float32(sin)), append(cosines, float32(cos))
		}
		values = append(values, cosines...)
	}
	return b.weight(Weight{Name: "places", Type: b.float, Shape: []int{rows, b.Hidden}, Rule: RuleValue, Floats: values})
}

// single adds a vector in float32.
func (b *hearing) single(name string, size int, source string) string {
	return b.weight(Weight{Name: name, Type: models.Float32, Shape: []int{size}, Rule: RuleCopy, Sources: []string{source}})
}

// affine adds the weight and the bias of a LayerNorm.
func (b *hearing) affine(name, source string) (weight, bias string) {
	return b.single(name+".weight", b.Hidden, source+".weight"), b.single(name+".bias", b.Hidden, source+".bias")
}

// skipNorm adds y and its bias to the residual and norms the sum, in float32.
func (b *hearing) skipNorm(name, residual, y, bias, source string) (normed, sum string) {
	weight, offset := b.affine(name, source)
	b.nodes("SkipLayerNormalization", name+".wide", []string{
		residual, b.cast(name+".skip", y, models.Float32), weight, offset, b.single(name+".skip_bias", b.Hidden, bias),
	}, []string{name + ".wide", "", "", name + ".sum"}, onnx.Real("epsilon", b.Epsilon))
	return b.cast(name, name+".wide", b.float), name + ".sum"
}

// attention adds a layer's attention within windows; the following skipNorm adds the bias of its
// output.
func (b *hearing) attention(p, x string) string {
	source := towerPrefix + p + "self_attn."
	project := func(which string) string {
		name := p + which
		return b.linear(name, x, matrix{name: name, in: b.Hidden, out: b.Hidden, sources: []string{source + which + "_proj.weight"}})
	}
	biases := b.vector(p+"qkv.bias", 3*b.Hidden, source+"q_proj.bias", source+"k_proj.bias", source+"v_proj.bias")
	a := b.node("MultiHeadAttention", p+"attention", []string{project("q"), project("k"), project("v"), biases, "rows"},
		onnx.Int("num_heads", b.Heads), onnx.Real("scale", 1/math.Sqrt(float64(b.Hidden/b.Heads))))
	return b.linear(p+"o", a, matrix{name: p + "o", in: b.Hidden, out: b.Hidden, sources: []string{source + "out_proj.weight"}})
}

// gelu adds a linear layer with a bias and GELU (erf).
func (b *hearing) gelu(name, x string, in, out int, source string) string {
	x = b.linear(name, x, matrix{name: name, in: in, out: out, sources: []string{source + ".weight"}})
	return b.node("BiasGelu", name+".gelu", []string{x, b.vector(name+".bias", out, source+".bias")})
}
