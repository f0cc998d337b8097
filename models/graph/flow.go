package graph

import (
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// FlowEncoder describes the encoder of codes: a convolution that looks ahead, conformer
// blocks at 25 rows a second (encoders), doubling, and conformer blocks at 50 rows a
// second (up_encoders). A run encodes N-3 codes. The caches hold rows of keys and
// values, the newest next to those of the run. With F as in Decoder, H the width and r
// 25 or 50:
//
//	codes            int64 [B,N]
//	coded            F [B,N,1]      1 for codes; 0 for the three rows after the last code of a speech, and for padding
//	mask.r           F [B,1,1,Sr]   0, or very negative for keys to ignore: unfilled cache, padding
//	distances.r      int64 [Tr,Sr]  FlowDistances
//	keep.r           int64 [B,Cr]   the new cache: rows of [cache, run], counted on through the rooms (room*Sr + row)
//	past.ahead       F [B,2,H]      of the convolution that looks ahead; 0 at first
//	past.up          F [B,4,H]      of the convolution after the doubling; 0 at first
//	past.r.i.key     F [B,Cr,H]     of block i at rate r, also .value
//
//	mu               F [B,T50,mel]
//	present.ahead, .up, .r.i.key, .r.i.value   as past; can be the same memory: each depends on the value it replaces
//
// Here T25 = N-3, T50 = 2*T25 and Sr = Cr+Tr.
//
// (Conformer: arXiv:2005.08100; its relative positions: arXiv:1901.02860.)
func FlowEncoder(d models.Dims, o Options) (*Description, error) {
	if err := checkSpeech(d, o); err != nil {
		return nil, fmt.Errorf("describe the flow's encoder: %w", err)
	}
	b := encoder{network: newNetwork("flow_encoder", o), Flow: d.Speech.Flow, embedded: map[string]*Formula{}}
	return b.build(), nil
}

// encoder builds the graph of the flow's encoder.
type encoder struct {
	*network
	models.Flow

	embedded map[string]*Formula // distances, by rate
}

// Constants of the official code.
const (
	blockEpsilon = 1e-12 // of the norms in a conformer block
	flowEpsilon  = 1e-5  // of the other norms
)

func (b *encoder) build() *Description {
	const source = "flow.encoder."
	b.ports()
	x := b.ahead(b.embed())
	x, branch, bias := b.blocks(x, "25", b.Blocks, source+"encoders.")
	x = b.node("Add", "encoded.branch", []string{x, branch})
	x = b.node("Add", "encoded", []string{x, bias})
	x = b.double(x)
	x, branch, bias = b.blocks(x, "50", b.UpBlocks, source+"up_encoders.")
	x, _ = b.skipNorm("after_norm", x, branch, bias, source+"after_norm", flowEpsilon)
	x = b.linear("mu.product", x, matrix{name: "mu", in: b.Hidden, out: b.Mel, sources: []string{"flow.encoder_proj.weight"}})
	b.node("Add", "mu", []string{x, b.vector("mu.bias", b.Mel, "flow.encoder_proj.bias")})
	return b.describe(models.KindFlowEncoder)
}

func (b *encoder) ports() {
	b.input("codes", models.Int64, "B", "N")
	b.input("coded", b.float, "B", "N", 1)
	b.output("mu", b.float, "B", "T50", b.Mel)
	both := func(name string, shape ...any) {
		b.input("past."+name, b.float, shape...)
		b.output("present."+name, b.float, shape...)
	}
	both("ahead", "B", 2, b.Hidden)
	both("up", "B", 4, b.Hidden)
	for _, rate := range []string{"25", "50"} {
		count := b.Blocks
		if rate == "50" {
			count = b.UpBlocks
		}
		b.input("mask."+rate, b.float, "B", 1, 1, "S"+rate)
		b.input("distances."+rate, models.Int64, "T"+rate, "S"+rate)
		b.input("keep."+rate, models.Int64, "B", "C"+rate)
		for i := range count {
			for _, side := range []string{".key", ".value"} {
				both(rate+"."+strconv.Itoa(i)+side, "B", "C"+rate, b.Hidden)
			}
		}
	}
}

// embed looks the codes up, in a table that includes the linear layer after it, and
// norms them. The norm is followed by a factor of sqrt(width).
func (b *encoder) embed() string {
	h := b.Hidden
	table := product(tensor("flow.input_embedding.weight", b.Codes, h), tensor("flow.encoder.embed.out.0.weight", h, h))
	table = add(table, tensor("flow.encoder.embed.out.0.bias", h).row())
	x := b.node("Gather", "code", []string{b.formula("table", table), "codes"}, onnx.Int("axis", 0))
	x = b.embedNorm("embed", x)
	return b.node("Mul", "embed.coded", []string{x, "coded"})
}

func (b *encoder) embedNorm(name, x string) string {
	source, factor := "flow.encoder."+name+".out.1.", math.Sqrt(float64(b.Hidden))
	return b.node("LayerNormalization", name+".norm", []string{
		x, b.formula(name+".norm.weight", scaled(tensor(source+"weight", b.Hidden), factor)),
		b.formula(name+".norm.bias", scaled(tensor(source+"bias", b.Hidden), factor)),
	}, onnx.Int("axis", -1), onnx.Real("epsilon", flowEpsilon))
}

// ahead adds the two convolutions that look ahead, and their skip connection.
func (b *encoder) ahead(x string) string {
	const source = "flow.encoder.pre_lookahead_layer."
	y := b.convolution("ahead1", x, models.Lookahead+1, source+"conv1")
	y = b.node("LeakyRelu", "ahead1.relu", []string{y}, onnx.Real("alpha", 0.01))
	y = b.node("Concat", "ahead2.rows", []string{"past.ahead", y}, onnx.Int("axis", 1))
	b.slice("present.ahead", y, 1, -2, end)
	y = b.convolution("ahead2", y, 3, source+"conv2")
	return b.node("Add", "ahead", []string{b.slice("ahead.skip", x, 1, 0, -models.Lookahead), y})
}

// convolution adds a convolution over the rows of x without padding: the rows of each position side
// by side, times a matrix.
func (b *encoder) convolution(name, x string, size int, source string) string {
	x = b.taps(name, x, size)
	m := b.formula(name+".weight", taps(tensor(source+".weight", b.Hidden, b.Hidden, size)))
	x = b.node("MatMul", name+".product", []string{x, m})
	return b.node("Add", name, []string{x, b.vector(name+".bias", b.Hidden, source+".bias")})
}

// double repeats each row and adds the convolution and the embedding after it.
func (b *encoder) double(x string) string {
	x = b.node("Concat", "up.pairs", []string{x, x}, onnx.Int("axis", -1))
	x = b.node("Reshape", "up.rows", []string{x, b.constant("up.shape", 0, -1, int64(b.Hidden))})
	x = b.node("Concat", "up.extended", []string{"past.up", x}, onnx.Int("axis", 1))
	b.slice("present.up", x, 1, -4, end)
	x = b.convolution("up", x, 5, "flow.encoder.up_layer.conv")
	x = b.linear("up_embed.product", x, matrix{
		name: "up_embed", in: b.Hidden, out: b.Hidden, sources: []string{"flow.encoder.up_embed.out.0.weight"},
	})
	x = b.node("Add", "up_embed.biased", []string{x, b.vector("up_embed.bias", b.Hidden, "flow.encoder.up_embed.out.0.bias")})
	return b.embedNorm("up_embed", x)
}

// blocks adds conformer blocks. The caller adds the last block's branch and its bias to the
// residual.
func (b *encoder) blocks(x, rate string, count int, from string) (residual, branch, bias string) {
	b.embedded[rate] = b.distances(rate == "50")
	residual = x
	for i := range count {
		p, source := rate+"."+strconv.Itoa(i)+".", from+strconv.Itoa(i)+"."
		var y string
		if i == 0 {
			y = b.node("LayerNormalization", p+"norm", []string{
				x, b.vector(p+"norm.weight", b.Hidden, source+"norm_mha.weight"), b.vector(p+"norm.bias", b.Hidden, source+"norm_mha.bias"),
			}, onnx.Int("axis", -1), onnx.Real("epsilon", blockEpsilon))
		} else {
			y, residual = b.skipNorm(p+"norm", residual, branch, bias, source+"norm_mha", blockEpsilon)
		}
		branch, bias = b.attention(p, y, rate, source+"self_attn.")
		y, residual = b.skipNorm(p+"ff_norm", residual, branch, bias, source+"norm_ff", blockEpsilon)
		branch, bias = b.feedForward(p, y, source+"feed_forward.")
	}
	return residual, branch, bias
}

// skipNorm adds a branch and its bias to the residual and norms the sum in one pass over
// memory.
func (b *encoder) skipNorm(name, residual, branch, bias, source string, epsilon float64) (normed, sum string) {
	b.nodes("SkipLayerNormalization", name, []string{
		residual, branch, b.vector(name+".weight", b.Hidden, source+".weight"), b.vector(name+".shift", b.Hidden, source+".bias"), bias,
	}, []string{name, "", "", name + ".sum"}, onnx.Real("epsilon", epsilon))
	return name, name + ".sum"
}

// attention adds a block's attention. The score of a query q and a key k at distance d
// is (q+u).k + (q+v).p[d], with learned u and v and the projected embedding p of the
// distance. The bias of the keys adds the same to all scores of a query, so it is left
// out; the bias of the values moves to the bias of the result.
func (b *encoder) attention(p, x, rate, source string) (branch, bias string) {
	h, head := b.Hidden, b.Hidden/b.Heads
	qkv := b.linear(p+"qkv", x, matrix{name: p + "qkv", in: h, out: 3 * h, sources: []string{
		source + "linear_q.weight", source + "linear_k.weight", source + "linear_v.weight",
	}})
	b.nodes("Split", p+"qkv.split", []string{qkv}, []string{p + "q", p + "k", p + "v"}, onnx.Int("axis", -1), onnx.Int("num_outputs", 3))
	query := func(which string) string {
		learned := shaped(tensor(source+"pos_bias_"+which, b.Heads, head), h)
		sum := b.formula(p+"q."+which+".bias", add(tensor(source+"linear_q.bias", h), learned))
		return b.node("Add", p+"q."+which, []string{p + "q", sum})
	}
	scores := b.positions(p, query("v"), rate, source)
	sides := map[string]string{}
	for _, side := range []string{"key", "value"} {
		name := p + side
		rows := b.node("Concat", p+side+".rows", []string{"past." + name, p + side[:1]}, onnx.Int("axis", 1))
		flat := b.node("Reshape", p+side+".flat", []string{rows, b.constant("flat", -1, int64(h))})
		b.node("Gather", "present."+name, []string{flat, "keep." + rate}, onnx.Int("axis", 0))
		sides[side] = rows
	}
	a := b.node("MultiHeadAttention", p+"attention", []string{query("u"), sides["key"], sides["value"], "", "", scores},
		onnx.Int("num_heads", b.Heads))
	out := tensor(source+"linear_out.weight", h, h)
	values := product(tensor(source+"linear_v.bias", h).row(), out)
	bias = b.formula(p+"o.bias", add(tensor(source+"linear_out.bias", h), shaped(values, h)))
	return b.node("MatMul", p+"o", []string{a, b.formula(p+"o.weight", turned(out))}), bias
}

// distances returns the embeddings of the distances, the farthest first: a sine and a
// cosine for each frequency.
func (b *encoder) distances(up bool) *Formula {
	farthest, width := b.Flow.Distances(up)
	values := make([]float64, 0, width*b.Hidden)
	for j := range width {
		for i := 0; i < b.Hidden; i += 2 {
			sin, cos := math.Sincos(float64(farthest-j) * math.Pow(10000, -float64(i)/float64(b.Hidden)))
			values = append(values, sin, cos)
		}
	}
	return fixed(values, width, b.Hidden)
}

// positions computes the scores of the distances and of the mask.
func (b *encoder) positions(p, q, rate, source string) string {
	h, head := b.Hidden, b.Hidden/b.Heads
	table := product(b.embedded[rate], tensor(source+"linear_pos.weight", h, h))
	table = scaled(turned(shaped(table, table.shape[0], b.Heads, head), 1, 2, 0), 1/math.Sqrt(float64(head)))
	q = b.node("Reshape", p+"q.v.heads", []string{q, b.constant("heads", 0, 0, int64(b.Heads), int64(head))})
	q = b.node("Transpose", p+"q.v.rows", []string{q}, onnx.Ints("perm", 0, 2, 1, 3))
	s := b.node("MatMul", p+"positions.all", []string{q, b.formula(p+"positions", table)})
	s = b.node("Reshape", p+"positions.flat", []string{s, b.constant("scores", 0, 0, -1)})
	s = b.node("Gather", p+"positions.keys", []string{s, "distances." + rate}, onnx.Int("axis", 2))
	return b.node("Add", p+"scores", []string{s, "mask." + rate})
}

// feedForward adds a block's perceptron.
func (b *encoder) feedForward(p, x, source string) (branch, bias string) {
	x = b.linear(p+"w1.product", x, matrix{name: p + "w1", in: b.Hidden, out: b.FFN, sources: []string{source + "w_1.weight"}})
	x = b.node("Add", p+"w1", []string{x, b.vector(p+"w1.bias", b.FFN, source+"w_1.bias")})
	x = b.node("QuickGelu", p+"silu", []string{x}, onnx.Real("alpha", 1))
	x = b.linear(p+"w2", x, matrix{name: p + "w2", in: b.FFN, out: b.Hidden, sources: []string{source + "w_2.weight"}})
	return x, b.vector(p+"w2.bias", b.Hidden, source+"w_2.bias")
}
