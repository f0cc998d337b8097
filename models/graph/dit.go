package graph

import (
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// FlowDiT describes the flow matching network for one chunk of B rooms: all Euler steps
// from noise to the spectrogram, with classifier-free guidance. The network is a
// transformer without positions (DiT: arXiv:2212.09748; flow matching with optimal
// transport: arXiv:2210.02747). Each room has two rows: with its condition and without;
// room r has rows 2r and 2r+1. Frames attend to those of earlier chunks, in any order,
// so the caches are rings that the graph writes in place: a run with the same inputs
// does the same again. With F as in Decoder, T = ChunkFrames, s a step, i a layer, A =
// heads*head_dim and H the width:
//
//	noise          float32 [B,T,mel]   normal noise
//	mu             F [B,T,mel]         of FlowEncoder
//	speaker        F [B,1,speaker]     the voice's embedding, of length 1
//	mask           F [B2,1,1,S]        0, or very negative for ring rows to ignore. The rows of this run count
//	write          int64 [B2]          the first of T ring rows to write keys and values to, at most S-T
//	conv_write     int64 [B2]          the first of T rows to write to in the convolutions' rings, at most R-1
//	conv_rows      int64 [B2,T,3]      for each frame the rows of the two before it and its own, counted on through the
//	                                   rings of all rows (row*R + ring row)
//	past.s.i.key   F [B2,S,A]          also .value
//	past.s.i.conv1 F [B2,R,H]          R is at least T+2; also .conv2
//
//	mel            float32 [B,T,mel]
//	present.s.i.key, .value, .conv1, .conv2   as past; can be the same memory
//
// Options.Check adds velocity.s float32 [B2,T,mel], the network's output in step s.
//
// After a chunk a room keeps the newest rows, as many as its prompt has frames, and the
// last FlowKept of the prompt. If the prompt is a number of chunks long, the rows that a
// chunk makes free are a range, the one to write next, so S = prompt+FlowKept+T is enough.
//
// Values that depend on the time of a step only are computed by the conversion: the shifts and
// scales of the norms, and the gates. The gates of attention are part of the preceding matrix, except in FlowDiTOnce; the other gates
// follow their matrix.
func FlowDiT(d models.Dims, o Options) (*Description, error) { return describeDiT(d, o, false) }

// FlowDiTOnce describes the network of FlowDiT for any number of frames T of one room,
// without a change of the rings: a voice's prompt, whose keys and values the host copies
// to the rings, and the end of a speech. The differences to FlowDiT, with B = 1:
//
//	prompt         F [1,T,mel]         the spectrogram of a voice's prompt; else 0
//	mask           F [2,1,1,S+T]       the last T keys are those of the run
//	conv_rows      int64 [2,2]         the rows of the two frames before the run
//
//	present.s.i.key     F [2,T,A]      of the run, also .value
//	present.s.i.conv1   F [2,2,H]      of the last two frames, also .conv2
//
// and there is no write and conv_write.
func FlowDiTOnce(d models.Dims, o Options) (*Description, error) { return describeDiT(d, o, true) }

func describeDiT(d models.Dims, o Options, once bool) (*Description, error) {
	if err := checkSpeech(d, o); err != nil {
		return nil, fmt.Errorf("describe the flow matching network: %w", err)
	}
	f := d.Speech.Flow
	b := dit{newNetwork("flow_dit", o), f.DiT, f.Mel, f.Speaker, once, "B", "B2", models.ChunkFrames}
	if once {
		b.rooms, b.pairs, b.frames = 1, 2, "T"
		return b.build(models.KindFlowDiTOnce), nil
	}
	b.opset = 24 // TensorScatter
	return b.build(models.KindFlowDiT), nil
}

// dit builds the graph of the flow matching network.
type dit struct {
	*network
	models.DiT

	mel, speaker int
	once         bool

	rooms, pairs, frames any // sizes of values: rooms, their rows with and without a condition, frames of each
}

// Constants of the official code.
const (
	ditSource   = "flow.decoder.estimator."
	ditEpsilon  = 1e-6 // of the norms with a modulation
	ditTaps     = 3    // of the convolutions
	ditBranches = 3    // of a block, each with a shift, a scale and a gate
)

// The branches of a block, in the order of their modulations.
const (
	attentionBranch = iota
	perceptronBranch
	convolutionBranch
)

// branch is an addend of the residual.
type branch struct{ value, bias string }

func (b *dit) build(kind models.Kind) *Description {
	b.ports()
	mask, base := b.mask(), b.condition()
	x := "noise"
	for s := range b.Steps {
		x = b.step(s, x, base, mask)
	}
	return b.describe(kind)
}

func (b *dit) ports() {
	rooms, rows, frames, keys := b.rooms, b.pairs, b.frames, any("S")
	if b.once {
		keys = "K"
		b.input("prompt", b.float, rooms, frames, b.mel)
		b.input("conv_rows", models.Int64, rows, ditTaps-1)
	} else {
		b.input("write", models.Int64, rows)
		b.input("conv_write", models.Int64, rows)
		b.input("conv_rows", models.Int64, rows, frames, ditTaps)
	}
	b.input("noise", models.Float32, rooms, frames, b.mel)
	b.input("mu", b.float, rooms, frames, b.mel)
	b.input("speaker", b.float, rooms, 1, b.speaker)
	b.input("mask", b.float, rows, 1, 1, keys)
	b.output("mel", models.Float32, rooms, frames, b.mel)
	cache := func(name string, ring, run, width any) {
		b.input("past."+name, b.float, rows, ring, width)
		if b.once {
			ring = run
		}
		b.output("present."+name, b.float, rows, ring, width)
	}
	for s := range b.Steps {
		for i := range b.Layers {
			p := layerOf(s, i)
			cache(p+"key", "S", frames, b.Heads*b.HeadDim)
			cache(p+"value", "S", frames, b.Heads*b.HeadDim)
			cache(p+"conv1", "R", ditTaps-1, b.Hidden)
			cache(p+"conv2", "R", ditTaps-1, b.Hidden)
		}
		if b.options.Check {
			b.output("velocity."+strconv.Itoa(s), models.Float32, rows, frames, b.mel)
		}
	}
}

// layerOf returns the prefix of the names of a layer in a step.
func layerOf(s, i int) string { return strconv.Itoa(s) + "." + strconv.Itoa(i) + "." }

// rows reshapes a value of the frames of all rows to [B2,T,width].
func (b *dit) rows(name, x string, width int) string {
	shape := []int64{-1, models.ChunkFrames, int64(width)}
	if b.once {
		shape = []int64{2, -1, int64(width)}
	}
	x = b.node("Reshape", name, []string{x, b.constant("rows."+strconv.Itoa(width), shape...)})
	return b.shaped(x, b.float, b.pairs, b.frames, width)
}

// all is the name of the number of frames of all rows.
const all = "F"

// mask repeats the mask for each frame.
func (b *dit) mask() string {
	if !b.once {
		return b.node("Expand", "mask.frames", []string{"mask", b.constant("mask.shape", 1, 1, models.ChunkFrames, 1)})
	}
	frames := b.node("Shape", "frames", []string{"mu"}, onnx.Int("start", 1), onnx.Int("end", 2))
	one := b.constant("one", 1)
	shape := b.node("Concat", "mask.shape", []string{one, one, frames, one}, onnx.Int("axis", 0))
	return b.node("Expand", "mask.frames", []string{"mask", shape})
}

// condition adds the part of the input projection that all steps share, [B,2,T,hidden]: everything
// but the frames themselves. Rows without a condition have the bias only.
func (b *dit) condition() string {
	in, bias := tensor(ditSource+"in_proj.weight", b.Hidden, 4*b.mel), tensor(ditSource+"in_proj.bias", b.Hidden).row()
	part := func(k int) *Formula { return columns(in, k*b.mel, (k+1)*b.mel) }
	const affine = "flow.spk_embed_affine_layer."
	speaker := product(turned(tensor(affine+"weight", b.mel, b.speaker)), part(2))
	voice := add(bias, product(tensor(affine+"bias", b.mel).row(), part(2)))
	if b.once { // the prompt's part is added to mu's
		x := b.node("MatMul", "in.prompt", []string{"prompt", b.formula("in.prompt.weight", turned(part(3)))})
		b.node("Add", "in.mu", []string{b.node("MatMul", "in.mu.product", []string{"mu", b.formula("in.mu.weight", turned(part(1)))}), x})
	} else {
		b.node("MatMul", "in.mu", []string{"mu", b.formula("in.mu.weight", turned(part(1)))})
	}
	x := b.node("MatMul", "in.speaker", []string{"speaker", b.formula("in.speaker.weight", speaker)})
	x = b.node("Add", "in.sum", []string{"in.mu", x})
	x = b.node("Unsqueeze", "in.pair", []string{x, b.constant("axis.pair", 1)})
	x = b.node("Mul", "in.guided", []string{x, b.formula("in.guided.shares", fixed([]float64{1, 0}, 2, 1, 1))})
	return b.node("Add", "in.base", []string{x, b.formula("in.bias", shaped(joined(voice, bias), 2, 1, b.Hidden))})
}

// step adds an Euler step: x += dt*v, with v = (1+g)*v1 - g*v2 of the rows with (1) and
// without (2) a condition. The times are 1-cos(pi/2*s/steps).
func (b *dit) step(s int, x, base, mask string) string {
	p := strconv.Itoa(s) + "."
	in := turned(columns(tensor(ditSource+"in_proj.weight", b.Hidden, 4*b.mel), 0, b.mel))
	h := b.node("MatMul", p+"in", []string{b.cast(p+"x", x, b.float), b.formula("in.weight", in)})
	h = b.node("Unsqueeze", p+"in.pair", []string{h, b.constant("axis.pair", 1)})
	h = b.rows(p+"in.rows", b.node("Add", p+"in.sum", []string{h, base}), b.Hidden)
	var last branch
	for i := range b.Layers {
		h, last = b.block(s, i, h, last, mask)
	}
	final := func(k int) *Formula { return b.modulation(s, "final_layer.adaLN_modulation.1", k, 2) }
	y, _ := b.norm(p+"final", h, last, final(0), final(1))
	v := b.linear(p+"out", y, matrix{name: "out", in: b.Hidden, out: b.mel, sources: []string{ditSource + "final_layer.linear.weight"}})
	v = b.cast(p+"velocity", v, models.Float32)

	bias := tensor(ditSource+"final_layer.linear.bias", b.mel)
	if b.options.Check {
		b.node("Add", "velocity."+strconv.Itoa(s), []string{v, b.wide("out.bias", bias)})
	}
	shape := []int64{-1, 2, models.ChunkFrames, int64(b.mel)}
	if b.once {
		shape = []int64{1, 2, -1, int64(b.mel)}
	}
	v = b.node("Reshape", p+"velocity.pairs", []string{v, b.constant("pairs.shape", shape...)})
	b.shaped(v, models.Float32, b.rooms, 2, b.frames, b.mel)
	dt := b.time(s+1) - b.time(s)
	v = b.node("Mul", p+"velocity.shares", []string{
		v, b.wide(p+"shares", fixed([]float64{(1 + b.Guidance) * dt, -b.Guidance * dt}, 2, 1, 1)),
	})
	v = b.node("ReduceSum", p+"moved", []string{v, b.constant("axis.pair", 1)}, onnx.Int("keepdims", 0))
	name := p + "frames"
	if s+1 == b.Steps {
		name = "mel"
	}
	return b.node("Add", name, []string{b.node("Add", p+"sum", []string{x, v}), b.wide(p+"out.bias", scaled(bias, dt))})
}

// wide adds a weight in float32.
func (b *dit) wide(name string, f *Formula) string {
	return b.weight(Weight{Name: name, Type: models.Float32, Shape: f.shape, Rule: RuleFormula, Formula: f})
}

func (b *dit) time(s int) float64 { return 1 - math.Cos(math.Pi/2*float64(s)/float64(b.Steps)) }

// modulation returns part k of a linear layer's output for the time of a step, [hidden].
func (b *dit) modulation(s int, source string, k, parts int) *Formula {
	h, half := b.Hidden, b.Time/2
	embedding := make([]float64, b.Time) // cosines, then sines
	for i := range half {
		sin, cos := math.Sincos(1000 * b.time(s) * math.Pow(10000, -float64(i)/float64(half)))
		embedding[i], embedding[half+i] = cos, sin
	}
	x := fixed(embedding, 1, b.Time)
	for _, name := range []string{"0", "2"} {
		name = ditSource + "t_embedder.mlp." + name
		x = silu(add(product(x, tensor(name+".weight", h, x.shape[1])), tensor(name+".bias", h).row()))
	}
	weight := tensorRows(ditSource+source+".weight", k*h, (k+1)*h, parts*h, h)
	bias := tensorRows(ditSource+source+".bias", k*h, (k+1)*h, parts*h)
	return shaped(add(product(x, weight), bias.row()), h)
}

// modulations returns the shift, the scale and the gate of a branch.
func (b *dit) modulations(s, i, branch int) (shift, scale, gate *Formula) {
	part := func(k int) *Formula {
		return b.modulation(s, "blocks."+strconv.Itoa(i)+".adaLN_modulation.1", 3*branch+k, 3*ditBranches)
	}
	return part(0), part(1), part(2)
}

// norm adds the last branch to the residual h and norms the sum: norm(x)*(1+scale)+shift.
func (b *dit) norm(name, h string, last branch, shift, scale *Formula) (normed, sum string) {
	weight := b.formula(name+".weight", add(filled(1, b.Hidden), scale))
	bias := b.formula(name+".shift", shift)
	if last.value == "" {
		return b.node("LayerNormalization", name, []string{h, weight, bias}, onnx.Int("axis", -1), onnx.Real("epsilon", ditEpsilon)), h
	}
	b.nodes("SkipLayerNormalization", name, []string{h, last.value, weight, bias, last.bias},
		[]string{name, "", "", name + ".sum"}, onnx.Real("epsilon", ditEpsilon))
	return name, name + ".sum"
}

// block adds a block: attention, convolutions and a perceptron, each after a norm.
func (b *dit) block(s, i int, h string, last branch, mask string) (string, branch) {
	for _, kind := range []int{attentionBranch, convolutionBranch, perceptronBranch} {
		shift, scale, gate := b.modulations(s, i, kind)
		name := layerOf(s, i) + strconv.Itoa(kind) + "."
		var y string
		y, h = b.norm(name+"norm", h, last, shift, scale)
		switch kind {
		case attentionBranch:
			last = b.attention(s, i, y, mask, gate)
		case convolutionBranch:
			last = b.convolutions(s, i, y, gate)
		default:
			last = b.perceptron(s, i, y, gate)
		}
	}
	return h, last
}

// gated adds the last layer of a branch, times the gate of the step. Merging a gate into the weights costs no time, but needs one matrix
// per step. So the gate comes after the large matrices, which all steps then share, and after all matrices in the graph that seldom runs.
func (b *dit) gated(p, layer, name, x string, weight, bias, gate *Formula) branch {
	part := !b.once && elements(weight.shape) <= b.Hidden*b.Hidden
	rows := []int{b.Hidden, 1} // a row of weights belongs to an output
	turn := func(w *Formula) *Formula { return turned(w) }
	if len(weight.shape) > len(rows) {
		turn, rows = taps, append(rows, 1)
	}
	sum := b.formula(p+name+".bias", times(bias, gate))
	if !part {
		y := b.node("MatMul", p+name+".open", []string{x, b.formula(layer+name+".weight", turn(weight))})
		return branch{b.node("Mul", p+name, []string{y, b.formula(p+name+".gate", gate)}), sum}
	}
	return branch{b.node("MatMul", p+name, []string{x, b.formula(p+name+".weight", turn(times(weight, shaped(gate, rows...))))}), sum}
}

// attention adds attention to the frames of the ring and of the run. Queries and keys
// are normed by head: the keys' scale moves to the queries, and their shift adds the
// same to all scores of a query, so it is left out. The bias of the values moves to the
// bias of the result.
func (b *dit) attention(s, i int, x, mask string, gate *Formula) branch {
	p, layer, source := layerOf(s, i), "layers."+strconv.Itoa(i)+".", ditSource+"blocks."+strconv.Itoa(i)+".attn."
	width := b.Heads * b.HeadDim
	qkv := b.linear(p+"qkv", x, matrix{name: layer + "qkv", in: b.Hidden, out: 3 * width, sources: []string{
		source + "to_q.weight", source + "to_k.weight", source + "to_v.weight",
	}})
	value := p + "v"
	if b.once {
		value = "present." + p + "value"
	}
	b.nodes("Split", p+"qkv.split", []string{qkv}, []string{p + "q", p + "k", value}, onnx.Int("axis", -1), onnx.Int("num_outputs", 3))
	head := func(name string) *Formula { return tensor(source+name, b.HeadDim) }
	scale := head("k_norm.weight")
	weight := b.formula(layer+"q_norm.weight", times(head("q_norm.weight"), scale))
	shift := b.formula(layer+"q_norm.bias", times(head("q_norm.bias"), scale))
	bias := func(which string) string {
		return b.formula(layer+which+".bias", tensor2(source+"to_"+which+".bias", b.Heads, b.HeadDim))
	}
	q := b.headNorm(p+"q.normed", p+"q", bias("q"), weight, shift)
	key := p + "k.normed"
	if b.once {
		key = "present." + p + "key"
	}
	key = b.headNorm(key, p+"k", bias("k"), b.formula("k_norm.weight", filled(1, b.HeadDim)), b.formula("k_norm.bias", filled(0, b.HeadDim)))
	a := b.node("MultiHeadAttention", p+"attention", []string{
		q, b.remember(p+"key", key), b.remember(p+"value", value), "", "", mask,
	}, onnx.Int("num_heads", b.Heads))
	out := tensor(source+"proj.weight", b.Hidden, width)
	values := shaped(product(tensor(source+"to_v.bias", width).row(), out), b.Hidden)
	return b.gated(p, layer, "proj", a, out, add(tensor(source+"proj.bias", b.Hidden), values), gate)
}

// remember appends the keys or values of a run to the ring's.
func (b *dit) remember(name, x string) string {
	if b.once {
		x = b.node("Concat", name+".all", []string{"past." + name, x}, onnx.Int("axis", 1))
		return b.shaped(x, b.float, 2, "K", b.Heads*b.HeadDim)
	}
	return b.node("TensorScatter", "present."+name, []string{"past." + name, x, "write"}, onnx.Int("axis", 1), onnx.Text("mode", "circular"))
}

// headNorm adds the bias of a projection and norms each head, in one pass.
func (b *dit) headNorm(name, x, bias, weight, shift string) string {
	heads := b.node("Reshape", name+".heads", []string{x, b.constant("heads", -1, int64(b.Heads), int64(b.HeadDim))})
	b.shaped(heads, b.float, all, b.Heads, b.HeadDim)
	heads = b.node("SkipLayerNormalization", name+".norm", []string{heads, bias, weight, shift}, onnx.Real("epsilon", flowEpsilon))
	return b.rows(name, heads, b.Heads*b.HeadDim)
}

// tensor2 returns a vector of the checkpoint as a matrix.
func tensor2(name string, rows, cols int) *Formula {
	return shaped(tensor(name, rows*cols), rows, cols)
}

// convolutions adds two causal convolutions with a norm and Mish, x*tanh(softplus(x)),
// between them.
func (b *dit) convolutions(s, i int, x string, gate *Formula) branch {
	p, layer, source := layerOf(s, i), "layers."+strconv.Itoa(i)+".", ditSource+"blocks."+strconv.Itoa(i)+".conv.block."
	h := b.Hidden
	weight := func(k string) *Formula { return tensor(source+k+".weight", h, h, ditTaps) }
	x = b.node("MatMul", p+"conv1", []string{b.before(p+"conv1", x), b.formula(layer+"conv1.weight", taps(weight("1")))})
	x = b.node("Reshape", p+"conv1.rows", []string{x, b.constant("conv.rows", -1, 1, int64(h))})
	b.shaped(x, b.float, all, 1, h)
	x = b.node("SkipLayerNormalization", p+"conv.norm", []string{
		x, b.formula(layer+"conv1.bias", tensor2(source+"1.bias", 1, h)),
		b.vector(layer+"conv.norm.weight", h, source+"3.weight"), b.vector(layer+"conv.norm.bias", h, source+"3.bias"),
	}, onnx.Real("epsilon", flowEpsilon))
	mish := b.node("Tanh", p+"conv.tanh", []string{b.node("Softplus", p+"conv.softplus", []string{x})})
	x = b.rows(p+"conv.mish.rows", b.node("Mul", p+"conv.mish", []string{x, mish}), h)
	return b.gated(p, layer, "conv2", b.before(p+"conv2", x), weight("6"), tensor(source+"6.bias", h), gate)
}

// before puts the two previous frames before each frame: [B2,T,3*hidden].
func (b *dit) before(name, x string) string {
	flat := b.constant("conv.flat", -1, int64(b.Hidden))
	if b.once {
		ring := b.node("Reshape", name+".ring", []string{"past." + name, flat})
		two := b.node("Gather", name+".two", []string{ring, "conv_rows"}, onnx.Int("axis", 0))
		b.slice("present."+name, x, 1, 1-ditTaps, end)
		frames := b.node("Concat", name+".frames", []string{two, x}, onnx.Int("axis", 1))
		x = b.taps(name, b.shaped(frames, b.float, 2, "T2", b.Hidden), ditTaps)
		for k := range ditTaps {
			b.shaped(name+".tap."+strconv.Itoa(k), b.float, 2, "T", b.Hidden)
		}
		return x
	}
	ring := b.node("TensorScatter", "present."+name, []string{"past." + name, x, "conv_write"},
		onnx.Int("axis", 1), onnx.Text("mode", "circular"))
	ring = b.node("Reshape", name+".ring", []string{ring, flat})
	taken := b.node("Gather", name+".taken", []string{ring, "conv_rows"}, onnx.Int("axis", 0))
	return b.rows(name+".taps", taken, ditTaps*b.Hidden)
}

// perceptron adds a layer's perceptron, with the tanh form of GELU.
func (b *dit) perceptron(s, i int, x string, gate *Formula) branch {
	p, layer, source := layerOf(s, i), "layers."+strconv.Itoa(i)+".", ditSource+"blocks."+strconv.Itoa(i)+".mlp."
	x = b.linear(p+"fc1", x, matrix{name: layer + "fc1", in: b.Hidden, out: b.FFN, sources: []string{source + "fc1.weight"}})
	x = b.node("FastGelu", p+"gelu", []string{x, b.vector(layer+"fc1.bias", b.FFN, source+"fc1.bias")})
	return b.gated(p, layer, "fc2", x, tensor(source+"fc2.weight", b.Hidden, b.FFN), tensor(source+"fc2.bias", b.Hidden), gate)
}
