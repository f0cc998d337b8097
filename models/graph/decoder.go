package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// TopK is the number of best ids that the decoder returns (fewer if the
// vocabulary is smaller).
const TopK = 256

// headBlock is the inputs per scale of a quantised vocabulary matrix.
const headBlock = 32

// Names of the checkpoint's tensors.
const (
	embedName = "llm.model.embed_tokens.weight"
	headName  = "llm.lm_head.weight"
)

// Decoder describes the language model (Qwen3: RMSNorm before and inside
// attention, rotary positions, grouped keys, SwiGLU), from embeddings to
// logits, best ids and hidden state of the last position. One graph serves
// prefill (one row of many tokens, after any past) and decoding (many rows of
// one token). Past and present keys and values share buffers of M positions.
//
// Inputs and outputs, with F float16 or bfloat16 on CUDA and float32 on the CPU (see Options):
//
//	inputs_embeds           F [B,S,hidden]
//	seqlens_k               int32 [B]          filled positions after this run, less 1
//	total_sequence_length   int32 []           on the CPU: the largest of them, plus 1, or M
//	last_position           int64 [1]          the position of S whose logits are returned. Later ones are padding; the
//	                                           next run must overwrite or ignore their keys and values. With a voice it is
//	                                           [R]: the positions whose hidden states are returned, and the logits of the last
//	logits_bias             float32 [BM,vocab] BM is 1 or B: 0, or very negative for forbidden ids
//	past_key_values.i.key   F [B,kv_heads,M,head_dim], also .value
//
//	logits                  float32 [B,1,vocab] without the bias
//	top_values, top_ids     float32 and int64 [B,1,K], descending, with the bias; K is TopK or HearingTopK
//	hidden_states           F [B,1,hidden]     after the last norm; with a voice [B,R,hidden]
//	present.i.key, .value   as past
//
// The decoder of a model that hears is the same; on CUDA its residual is smaller by residualScale. The
// rows of Hearing replace the rows of Embed where a prompt has Template.AudioPad.
//
// Options.Check adds all_logits, all_hidden and layer.i (the input of layer i, or
// of the last norm for i = layers), for all positions.
func Decoder(d models.Dims, o Options) (*Description, error) {
	c := d.Decoder
	o.Head = cmp.Or(o.Head, 8)
	o.Block = cmp.Or(o.Block, 32)
	if err := errors.Join(d.Validate(), checkDecoder(d, o)); err != nil {
		return nil, fmt.Errorf("describe decoder: %w", err)
	}
	b := newDecoder("decoder", d, c, o)
	return b.build(), nil
}

// residualScale multiplies the residual of speech recognition models in float16. Their hidden states exceed 10,000, and the range of
// float16 ends at 65,504. It is a power of two, and the norms undo it. A sum then has a precision of 11 bits; the official code, in
// bfloat16, has 8. A residual in float32 would need two more launches for each norm. Squares still exceed float16: sessions need
// ort.SessionOptions.StrictNorm.
const residualScale = 1.0 / 16

// newDecoder returns a decoder of the given sizes.
func newDecoder(name string, d models.Dims, c models.Decoder, o Options) decoder {
	b := decoder{
		network: newNetwork(name, o), Decoder: c, model: "llm.model.", best: min(TopK, c.Vocab), several: d.Speech != nil,
	}
	if d.Hearing != nil {
		b.best, b.grouped = min(models.HearingTopK, c.Vocab), true
		if o.Device == models.DeviceCUDA && !o.ZeroPoints { // packed layers stay as they are
			b.scale = residualScale
		}
	}
	return b
}

func checkDecoder(d models.Dims, o Options) error {
	switch {
	case o.Head != 4 && o.Head != 8 && o.Head != 16:
		return fmt.Errorf("head: must be 4, 8 or 16 bits, is %d", o.Head)
	case o.Block < 16 || o.Block > 256 || o.Block&(o.Block-1) != 0:
		return fmt.Errorf("block: must be 16, 32, 64, 128 or 256, is %d", o.Block)
	case o.ZeroPoints && o.Weights != models.WeightsInt4:
		return fmt.Errorf("zero points: weights must be int4, are %s", o.Weights)
	case o.BFloat16 && (o.Weights != models.WeightsInt4 || o.Device != models.DeviceCUDA || o.ZeroPoints || d.Hearing != nil):
		return fmt.Errorf("bfloat16: must be int4 for CUDA without zero points and hearing, is %s for %s", o.Weights, o.Device)
	}
	if o.Weights == models.WeightsInt4 && (o.Device == models.DeviceCPU || o.Device == models.DeviceCUDA) {
		return nil
	}
	return checkWords(d, o)
}

// decoder builds the graph of a language model.
type decoder struct {
	*network
	models.Decoder

	model     string  // the prefix of its tensors
	best      int     // the number of best ids
	grouped   bool    // they are looked for in groups
	scale     float64 // of the residual; 0 is 1
	several   bool    // hidden states of several positions
	stateless bool    // without past and present keys and values
}

func (b *decoder) build() *Description {
	b.ports()
	cos, sin := b.rotary()
	x, residual := b.begin()
	for i := range b.Layers {
		b.checkpoint(i, residual)
		p, source := "layers."+strconv.Itoa(i)+".", b.layer(i)
		a := b.attention(i, x, cos, sin)
		if b.lastOnly(i) {
			residual = b.last("last.residual", residual)
		}
		x, residual = b.skipNorm(p+"ffn_norm", residual, a, source+"post_attention_layernorm.weight")
		f := b.feedForward(i, x)
		x, residual = b.skipNorm("layers."+strconv.Itoa(i+1)+".norm", residual, f, b.before(i+1))
	}
	b.checkpoint(b.Layers, residual)
	b.head(x)
	return b.describe(models.KindDecoder)
}

// begin norms the input of the first layer.
func (b *decoder) begin() (normed, residual string) {
	residual = "inputs_embeds"
	if b.scale != 0 {
		scale := b.weight(Weight{Name: "residual.scale", Type: b.float, Shape: []int{1}, Rule: RuleValue, Floats: []float32{float32(b.scale)}})
		residual = b.node("Mul", "inputs_embeds.scaled", []string{residual, scale})
	}
	return b.norm("layers.0.norm", "layers.0.norm", residual, b.before(0)), residual
}

// norm adds an RMSNorm, which computes in float32.
func (b *decoder) norm(name, output, x, source string) string {
	b.nodes("SimplifiedLayerNormalization", name, []string{x, b.vector(name+".weight", b.Hidden, source)}, []string{output},
		b.epsilon(), onnx.Int("axis", -1))
	return output
}

// layer returns the prefix of a layer's tensors.
func (b *decoder) layer(i int) string { return b.model + "layers." + strconv.Itoa(i) + "." }

// before returns the norm before layer i, the last one for i = Layers.
func (b *decoder) before(i int) string {
	if i == b.Layers {
		return b.model + "norm.weight"
	}
	return b.layer(i) + "input_layernorm.weight"
}

// epsilon returns the epsilon of the residual's norms.
func (b *decoder) epsilon() onnx.Attribute {
	if b.scale != 0 {
		return onnx.Real("epsilon", b.Epsilon*b.scale*b.scale)
	}
	return onnx.Real("epsilon", b.Epsilon)
}

func (b *decoder) ports() {
	b.input("inputs_embeds", b.float, "B", "S", b.Hidden)
	b.input("seqlens_k", models.Int32, "B")
	b.input("total_sequence_length", models.Int32)
	rows := any(1)
	if b.several {
		rows = models.SeveralRows
	}
	b.input("last_position", models.Int64, rows)
	b.input("logits_bias", models.Float32, "BM", b.Vocab)
	b.output("logits", models.Float32, "B", 1, b.Vocab)
	b.output("top_values", models.Float32, "B", 1, b.best)
	b.output("top_ids", models.Int64, "B", 1, b.best)
	b.output("hidden_states", b.float, "B", rows, b.Hidden)
	b.cachePorts()
	if !b.options.Check {
		return
	}
	b.output("all_logits", models.Float32, "B", "S", b.Vocab)
	b.output("all_hidden", b.float, "B", "S", b.Hidden)
	for i := range b.Layers + 1 {
		b.output("layer."+strconv.Itoa(i), b.float, "B", "S", b.Hidden)
	}
}

func (b *decoder) cachePorts() {
	for i := range b.Layers {
		for _, side := range []string{".key", ".value"} {
			b.input("past_key_values."+strconv.Itoa(i)+side, b.float, "B", b.KVHeads, "M", b.HeadDim)
			b.output("present."+strconv.Itoa(i)+side, b.float, "B", b.KVHeads, "M", b.HeadDim)
		}
	}
}

// rotary adds the tables of the rotary embedding (RoFormer, arXiv:2104.09864):
// the cosine and sine of position p times theta^(-2j/head_dim).
func (b *decoder) rotary() (cos, sin string) {
	half := b.HeadDim / 2
	c, s := make([]float32, b.MaxPositions*half), make([]float32, b.MaxPositions*half)
	for j := range half {
		frequency := math.Pow(b.RopeTheta, -2*float64(j)/float64(b.HeadDim))
		for p := range b.MaxPositions {
			sine, cosine := math.Sincos(float64(p) * frequency)
			s[p*half+j], c[p*half+j] = float32(sine), float32(cosine)
		}
	}
	table := func(name string, values []float32) string {
		return b.weight(Weight{
			Name: name, Type: b.float, Shape: []int{b.MaxPositions, half}, Rule: RuleValue, Floats: values,
		})
	}
	return table("rotary.cos", c), table("rotary.sin", s)
}

// linear multiplies x with a matrix in the graph's weight format.
func (b *decoder) linear(name, x string, in, out int, sources ...string) string {
	return b.multiply(x, matrix{name: name, in: in, out: out, sources: sources})
}

// multiply multiplies x with a matrix in the graph's weight format.
func (b *decoder) multiply(x string, m matrix) string {
	if b.options.Weights == models.WeightsInt4 {
		return b.linearBits(m.name, x, m, 4, b.options.Block, b.options.ZeroPoints)
	}
	return b.network.linear(m.name, x, m)
}

// skipNorm adds y to the residual and norms the sum in one pass over memory.
func (b *decoder) skipNorm(name, residual, y, source string) (normed, sum string) {
	normed, sum = name, name+".sum"
	if source == b.before(b.Layers) && !b.options.Check {
		normed = "hidden_states"
	}
	b.nodes("SkipSimplifiedLayerNormalization", name,
		[]string{residual, y, b.vector(name+".weight", b.Hidden, source)},
		[]string{normed, "", "", sum}, b.epsilon())
	return normed, sum
}

// attention adds a layer's attention with its projections.
func (b *decoder) attention(i int, x, cos, sin string) string {
	p, source, layer := "layers."+strconv.Itoa(i)+".", b.layer(i)+"self_attn.", strconv.Itoa(i)
	queries, keys := b.Heads*b.HeadDim, b.KVHeads*b.HeadDim
	qkv := b.linear(p+"qkv", x, b.Hidden, queries+2*keys,
		source+"q_proj.weight", source+"k_proj.weight", source+"v_proj.weight")
	qNorm := b.vector(p+"q_norm.weight", b.HeadDim, source+"q_norm.weight")
	kNorm := b.vector(p+"k_norm.weight", b.HeadDim, source+"k_norm.weight")
	attributes := []onnx.Attribute{
		onnx.Int("num_heads", b.Heads), onnx.Int("kv_num_heads", b.KVHeads),
		onnx.Real("scale", 1/math.Sqrt(float64(b.HeadDim))),
		onnx.Int("do_rotary", 1), onnx.Int("rotary_interleaved", 0),
	}
	inputs := []string{
		qkv, "", "", "past_key_values." + layer + ".key", "past_key_values." + layer + ".value",
		"seqlens_k", "total_sequence_length", cos, sin,
	}
	if b.stateless {
		inputs[3], inputs[4] = "", ""
	}
	if b.options.Device == models.DeviceCUDA {
		// Inputs 9 to 13 are omitted: positions, bias, sink and the scales of a
		// quantised cache.
		inputs = append(inputs, "", "", "", "", "", qNorm, kNorm)
		attributes = append(attributes, onnx.Real("qk_norm_epsilon", b.Epsilon))
	} else {
		// The CPU kernel does not include the norms.
		sizes := b.constant("qkv.sizes", int64(queries), int64(keys), int64(keys))
		q, k, v := p+"q", p+"k", p+"v"
		b.nodes("Split", p+"qkv.split", []string{qkv, sizes}, []string{q, k, v}, onnx.Int("axis", -1))
		inputs[0], inputs[1], inputs[2] = b.headNorm(q, qNorm, b.Heads), b.headNorm(k, kNorm, b.KVHeads), v
	}
	b.nodes("GroupQueryAttention", p+"attention", inputs,
		[]string{p + "attention", "present." + layer + ".key", "present." + layer + ".value"}, attributes...)
	heads := p + "attention"
	if b.lastOnly(i) {
		heads = b.last("last.attention", heads)
	}
	return b.multiply(heads, matrix{
		name: p + "o", in: queries, out: b.Hidden, sources: []string{source + "o_proj.weight"}, scale: b.scale,
	})
}

// headNorm norms each head of x separately.
func (b *decoder) headNorm(x, weight string, heads int) string {
	split := b.constant("heads."+strconv.Itoa(heads), 0, 0, int64(heads), int64(b.HeadDim))
	whole := b.constant("width."+strconv.Itoa(heads), 0, 0, int64(heads*b.HeadDim))
	h := b.node("Reshape", x+".heads", []string{x, split})
	h = b.node("SimplifiedLayerNormalization", x+".norm", []string{h, weight}, b.epsilon(), onnx.Int("axis", -1))
	return b.node("Reshape", x+".normed", []string{h, whole})
}

// feedForward adds a layer's SwiGLU: down(silu(gate(x)) * up(x)). QuickGelu with
// alpha 1 is SiLU, x*sigmoid(x), in one kernel.
func (b *decoder) feedForward(i int, x string) string {
	p, source := "layers."+strconv.Itoa(i)+".", b.layer(i)+"mlp."
	both := b.linear(p+"gate_up", x, b.Hidden, 2*b.FFN, source+"gate_proj.weight", source+"up_proj.weight")
	b.nodes("Split", p+"gate_up.split", []string{both}, []string{p + "gate", p + "up"},
		onnx.Int("axis", -1), onnx.Int("num_outputs", 2))
	act := b.node("QuickGelu", p+"silu", []string{p + "gate"}, onnx.Real("alpha", 1))
	act = b.node("Mul", p+"act", []string{act, p + "up"})
	return b.multiply(act, matrix{
		name: p + "down", in: b.FFN, out: b.Hidden, sources: []string{source + "down_proj.weight"}, scale: b.scale,
	})
}

// head computes the logits and best ids of the last position.
func (b *decoder) head(x string) {
	if b.options.Check {
		b.last("hidden_states", x)
	}
	last := "hidden_states"
	if b.several {
		last = b.node("Gather", "last.hidden", []string{last, b.constant("last", -1)}, onnx.Int("axis", 1))
	}
	b.logits("logits", last)
	// The bias gets an axis of positions, so that it is added row by row.
	bias := b.node("Unsqueeze", "logits_bias.rows", []string{"logits_bias", b.constant("positions", 1)})
	biased := b.node("Add", "logits.biased", []string{"logits", bias})
	if width := groupWidth(b.Vocab); b.grouped && width > 1 {
		b.bestOfGroups(biased, width)
	} else {
		b.top("top", biased, b.best, "top_values", "top_ids")
	}
	if b.options.Check {
		b.node("Identity", "all_hidden", []string{x})
		b.logits("all_logits", x)
	}
}

// top adds a TopK node: the k largest values of each row and their positions.
func (b *decoder) top(name, x string, k int, values, positions string) {
	b.nodes("TopK", name, []string{x, b.constant("top."+strconv.Itoa(k), int64(k))}, []string{values, positions},
		onnx.Int("axis", -1), onnx.Int("largest", 1), onnx.Int("sorted", 1))
}

// groupWidth returns the largest power of two up to 128 that divides a vocabulary.
func groupWidth(vocab int) int {
	width := 1
	for width < 128 && vocab%(2*width) == 0 {
		width *= 2
	}
	return width
}

// bestOfGroups is top for a long row. CUDA's kernel would read every value many times in one block. The best k values are in the k groups
// of neighbours with the largest maxima.
func (b *decoder) bestOfGroups(x string, width int) {
	k := min(b.best, b.Vocab/width)
	last := b.constant("last", -1)
	groups := b.node("Reshape", "groups", []string{x, b.constant("groups.shape", 0, -1, int64(width))})
	peaks := b.node("ReduceMax", "groups.peaks", []string{groups, last}, onnx.Int("keepdims", 0))
	b.top("groups.top", peaks, k, "groups.values", "groups.ids")
	at := b.node("Unsqueeze", "groups.at", []string{"groups.ids", last})
	// GatherND copies from the host, which a captured graph must not.
	whole := b.node("Add", "groups.rows", []string{at, b.constant("groups.zeros", make([]int64, width)...)})
	few := b.node("GatherElements", "few", []string{groups, whole}, onnx.Int("axis", 1))
	few = b.node("Reshape", "few.row", []string{few, b.constant("few.shape", 0, 1, int64(k*width))})
	b.top("top", few, min(b.best, k*width), "top_values", "top_positions")

	offsets := make([]int64, width)
	for i := range offsets {
		offsets[i] = int64(i)
	}
	ids := b.node("Mul", "few.first", []string{at, b.constant("groups.width", int64(width))})
	ids = b.node("Add", "few.ids", []string{ids, b.constant("groups.offsets", offsets...)})
	ids = b.node("Reshape", "few.ids.row", []string{ids, "few.shape"})
	b.node("GatherElements", "top_ids", []string{ids, "top_positions"}, onnx.Int("axis", 2))
}

// logits multiplies hidden states with the vocabulary matrix. Both uses (last
// position, all positions) share the weights.
func (b *decoder) logits(name, x string) {
	m := matrix{name: "head", in: b.Hidden, out: b.Vocab, sources: []string{headName}}
	if b.TiedHead {
		m.sources[0] = embedName
	}
	raw := name
	if b.float != models.Float32 {
		raw += ".raw"
	}
	if b.options.Weights == models.WeightsInt4 && b.options.Head < 16 {
		b.linearBits(raw, x, m, b.options.Head, headBlock, false)
	} else {
		b.network.linear(raw, x, m)
	}
	if raw != name {
		b.cast(name, raw, models.Float32)
	}
}

// lastOnly reports whether layer i continues with the last position only, after
// its keys and values: no later node reads the other positions.
func (b *decoder) lastOnly(i int) bool { return i == b.Layers-1 && !b.options.Check && !b.stateless }

// last selects the last position of x.
func (b *decoder) last(name, x string) string {
	return b.node("Gather", name, []string{x, "last_position"}, onnx.Int("axis", 1))
}

// checkpoint outputs the input of layer i for the conformance check.
func (b *decoder) checkpoint(i int, residual string) {
	if !b.options.Check {
		return
	}
	if b.scale != 0 {
		name := "layer." + strconv.Itoa(i)
		residual = b.node("Div", name+".whole", []string{residual, "residual.scale"})
	}
	b.cast("layer."+strconv.Itoa(i), residual, b.float)
}
