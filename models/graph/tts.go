package graph

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// The sampler of codes needs the SpeechTopK best logits of a row, and the logits of the last
// SpeechHistory codes, which a repetition penalty lowers.
const (
	SpeechTopK    = 64
	SpeechHistory = 16
)

// TextTable is the name of TTSCondition's table of embeddings.
const TextTable = "table"

// TTSCondition describes the input of the TTS for a piece of text: the embedding of
// each token, plus the direction of its projected hidden state in the decoder. Two
// marks, the audio BOS and the end of the text, have an embedding only. With F as in
// Decoder:
//
//	input_ids       int64 [N]            rows of the text's embedding table
//	hidden_states   F [N,decoder.hidden] of the decoder
//	said            float32 [N,1]        1 for a token, 0 for a mark
//
//	condition       F [N,hidden]
func TTSCondition(d models.Dims, o Options) (*Description, error) {
	if err := checkSpeech(d, o); err != nil {
		return nil, fmt.Errorf("describe the condition of the TTS: %w", err)
	}
	t := d.Speech.TTS
	n := newNetwork("tts_condition", o)
	n.input("input_ids", models.Int64, "N")
	n.input("hidden_states", n.float, "N", d.Decoder.Hidden)
	n.input("said", models.Float32, "N", 1)
	n.output("condition", n.float, "N", t.Hidden)

	const source = "tts.projector_semantic."
	x := n.linear("linear1", "hidden_states", matrix{
		name: "linear1", in: d.Decoder.Hidden, out: t.Hidden, sources: []string{source + "linear1.weight"},
	})
	x = n.node("Add", "linear1.biased", []string{x, n.vector("linear1.bias", t.Hidden, source+"linear1.bias")})
	x = n.node("Relu", "relu", []string{x})
	x = n.linear("linear2", x, matrix{name: "linear2", in: t.Hidden, out: t.Hidden, sources: []string{source + "linear2.weight"}})
	x = n.node("Add", "projected", []string{x, n.vector("linear2.bias", t.Hidden, source+"linear2.bias")})

	// The length in float32: squares of float16 overflow.
	wide := n.cast("projected.wide", x, models.Float32)
	length := n.node("ReduceL2", "length", []string{wide, n.constant("last", -1)})
	x = n.node("Div", "direction", []string{wide, length})
	x = n.node("Mul", "direction.said", []string{x, "said"})
	x = n.cast("direction.float", x, n.float)
	table := n.weight(Weight{
		Name: TextTable, Type: n.float, Shape: []int{t.TextRows, t.Hidden}, Rule: RuleCopy, Sources: []string{"tts.emb_text.weight"},
	})
	text := n.node("Gather", "text", []string{table, "input_ids"}, onnx.Int("axis", 0))
	n.node("Add", "condition", []string{text, x})
	return n.describe(models.KindTTSCondition), nil
}

// checkSpeech checks the requirements of all networks of a voice.
func checkSpeech(d models.Dims, o Options) error {
	if d.Speech == nil {
		return errors.New("the checkpoint has no voice")
	}
	if o.Device == models.DeviceCUDA && o.Weights == models.WeightsFloat32 {
		return d.Validate()
	}
	return errors.Join(d.Validate(), checkFloat(o))
}

// TTS describes the language model of speech codes (Llama: as Decoder, without norms
// inside attention), from inputs to what the choice of the next code needs. The input
// of a position is the embedding of a code plus inputs_embeds. The last code ends
// speech and is never fed; its embedding is 0 here, so the inputs of a text
// (TTSCondition) go with that code, and all others with inputs_embeds of 0. With F and
// the cache as in Decoder, and K = min(SpeechTopK, codes):
//
//	codes                   int64 [B,S]
//	inputs_embeds           F [B,S,hidden]
//	seqlens_k               int32 [B]
//	total_sequence_length   int32 []
//	last_position           int64 [1]
//	temperature             float32 [1]
//	history                 int64 [B,1,SpeechHistory]  the last codes, in any order; any code where there are fewer
//	past_key_values.i.key   F [B,heads,M,head_dim], also .value
//
//	logits                  float32 [B,1,codes]
//	top_values, top_ids     float32 and int64 [B,1,K]: the best logits, descending
//	top_shares              float32 [B,1,K]            their probabilities at the temperature
//	history_values          float32 [B,1,SpeechHistory] the logits of history
//	present.i.key, .value   as past
//
// A penalty only lowers logits, so the best of all codes are in top_ids if the
// penalised ones are fewer than the surplus.
func TTS(d models.Dims, o Options) (*Description, error) {
	if err := checkSpeech(d, o); err != nil {
		return nil, fmt.Errorf("describe the TTS: %w", err)
	}
	t := d.Speech.TTS
	b := tts{
		decoder{network: newNetwork("tts", o), model: "tts.model.", Decoder: models.Decoder{
			Layers: t.Layers, Hidden: t.Hidden, Heads: t.Heads, KVHeads: t.Heads, HeadDim: t.HeadDim(), FFN: t.FFN,
			Vocab: t.Codes, Epsilon: t.Epsilon, RopeTheta: t.RopeTheta, MaxPositions: t.MaxPositions,
		}},
	}
	return b.build(), nil
}

// tts builds the graph of the language model of codes.
type tts struct{ decoder }

func (b *tts) build() *Description {
	b.ports()
	cos, sin := b.rotary()
	if b.plain() {
		b.places()
	}
	x, residual := b.embed()
	for i := range b.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		x, residual = b.skipNorm(p+"ffn_norm", residual, b.attention(i, x, cos, sin), b.layer(i)+"post_attention_layernorm.weight")
		x, residual = b.skipNorm("layers."+strconv.Itoa(i+1)+".norm", residual, b.feedForward(i, x), b.before(i+1))
	}
	b.choice(b.last("last", x))
	return b.describe(models.KindTTS)
}

func (b *tts) ports() {
	best := min(SpeechTopK, b.Vocab)
	b.input("codes", models.Int64, "B", "S")
	b.input("inputs_embeds", b.float, "B", "S", b.Hidden)
	b.input("seqlens_k", models.Int32, "B")
	b.input("total_sequence_length", models.Int32)
	b.input("last_position", models.Int64, 1)
	b.input("temperature", models.Float32, 1)
	b.input("history", models.Int64, "B", 1, SpeechHistory)
	b.output("logits", models.Float32, "B", 1, b.Vocab)
	b.output("top_values", models.Float32, "B", 1, best)
	b.output("top_ids", models.Int64, "B", 1, best)
	b.output("top_shares", models.Float32, "B", 1, best)
	b.output("history_values", models.Float32, "B", 1, SpeechHistory)
	b.cachePorts()
}

// embed sums the inputs in the pass of the first norm.
func (b *tts) embed() (normed, sum string) {
	table := b.formula("table", joined(
		tensorRows("tts.emb_code.0.weight", 0, b.Vocab-1, b.Vocab, b.Hidden), filled(0, 1, b.Hidden)))
	code := b.node("Gather", "code", []string{table, "codes"}, onnx.Int("axis", 0))
	return b.skipNorm("layers.0.norm", code, "inputs_embeds", b.before(0))
}

// attention adds a layer's attention with its projections.
func (b *tts) attention(i int, x, cos, sin string) string {
	p, source, layer := "layers."+strconv.Itoa(i)+".", b.layer(i)+"self_attn.", strconv.Itoa(i)
	qkv := b.linear(p+"qkv", x, b.Hidden, 3*b.Hidden, source+"q_proj.weight", source+"k_proj.weight", source+"v_proj.weight")
	if b.plain() {
		b.plainAttention(p, layer, qkv, cos, sin)
	} else {
		b.nodes("GroupQueryAttention", p+"attention",
			[]string{
				qkv, "", "", "past_key_values." + layer + ".key", "past_key_values." + layer + ".value",
				"seqlens_k", "total_sequence_length", cos, sin,
			},
			[]string{p + "attention", "present." + layer + ".key", "present." + layer + ".value"},
			onnx.Int("num_heads", b.Heads), onnx.Int("kv_num_heads", b.Heads),
			onnx.Real("scale", 1/math.Sqrt(float64(b.HeadDim))), onnx.Int("do_rotary", 1))
	}
	return b.linear(p+"o", p+"attention", b.Hidden, b.Hidden, source+"o_proj.weight")
}

// plain reports whether attention consists of standard operators: on CUDA, GroupQueryAttention has no float32.
func (b *tts) plain() bool { return b.options.Device == models.DeviceCUDA && b.float == models.Float32 }

// places adds the values that plainAttention of all layers shares: the position of each code [B,S], the cache's row of each key
// [B,heads,S,head_dim], and the mask of the rows of later positions [B,1,S,M]. All of it stays on the device, so that runs can be
// captured.
func (b *tts) places() {
	count := func(name, x string, axis int64, attributes ...onnx.Attribute) string {
		x = b.node("Mul", name+".zeros", []string{x, b.constant("zero", 0)})
		x = b.node("Add", name+".ones", []string{x, b.constant("one", 1)})
		return b.node("CumSum", name, []string{x, b.constant("axis."+strconv.FormatInt(axis, 10), axis)},
			append(attributes, onnx.Int("exclusive", 1))...)
	}
	last := b.node("Unsqueeze", "positions.last", []string{b.cast("seqlens", "seqlens_k", models.Int64), b.constant("axis.1", 1)})
	position := b.node("Sub", "positions", []string{last, count("positions.after", "codes", 1, onnx.Int("reverse", 1))})
	position = b.node("Unsqueeze", "positions.rows", []string{position, b.constant("axes.heads", 1, 3)})
	b.node("Expand", "cache.rows", []string{position, b.constant("cache.rows.shape", 1, int64(b.Heads), 1, int64(b.HeadDim))})

	row := b.slice("cache.first", b.slice("cache.head", "past_key_values.0.key", 1, 0, 1), 3, 0, 1)
	row = count("cache.counted", b.cast("cache.whole", row, models.Int64), 2)
	row = b.node("Transpose", "cache.positions", []string{row}, onnx.Ints("perm", 0, 1, 3, 2))
	number := func(name string, v float32) string {
		return b.weight(Weight{Name: name, Type: b.float, Shape: []int{1}, Rule: RuleValue, Floats: []float32{v}})
	}
	later := b.node("Greater", "mask.later", []string{row, position})
	b.node("Where", "mask", []string{later, number("mask.out", -1e30), number("mask.in", 0)})
}

// plainAttention adds GroupQueryAttention in standard operators. Keys and values are written to the cache in place.
func (b *tts) plainAttention(p, layer, qkv, cos, sin string) {
	b.nodes("Split", p+"qkv.split", []string{qkv}, []string{p + "q", p + "k", p + "v"}, onnx.Int("axis", -1), onnx.Int("num_outputs", 3))
	heads := func(name, x string, rotated bool) string {
		if rotated {
			x = b.node("RotaryEmbedding", name+".rotated", []string{x, "positions", cos, sin})
		}
		x = b.node("Reshape", name+".heads", []string{x, b.constant("heads", 0, 0, int64(b.Heads), int64(b.HeadDim))})
		return b.node("Transpose", name+".rows", []string{x}, onnx.Ints("perm", 0, 2, 1, 3))
	}
	cached := func(side, x string) string {
		name := layer + side
		return b.node("ScatterElements", "present."+name, []string{"past_key_values." + name, "cache.rows", x}, onnx.Int("axis", 2))
	}
	key, value := cached(".key", heads(p+"k", p+"k", true)), cached(".value", heads(p+"v", p+"v", false))
	scores := b.node("FusedMatMul", p+"scores.all", []string{heads(p+"q", p+"q", true), key},
		onnx.Int("transB", 1), onnx.Real("alpha", 1/math.Sqrt(float64(b.HeadDim))))
	shares := b.node("Softmax", p+"shares", []string{b.node("Add", p+"scores", []string{scores, "mask"})}, onnx.Int("axis", -1))
	x := b.node("MatMul", p+"attention.heads", []string{shares, value})
	x = b.node("Transpose", p+"attention.rows", []string{x}, onnx.Ints("perm", 0, 2, 1, 3))
	b.node("Reshape", p+"attention", []string{x, b.constant("width", 0, 0, int64(b.Hidden))})
}

// choice computes the logits and the sampler's inputs.
func (b *tts) choice(x string) {
	head := b.formula("head.weight", turned(normed("tts.head_code.0", b.Vocab, b.Hidden)))
	b.cast("logits", b.node("MatMul", "head", []string{x, head}), models.Float32)
	b.nodes("TopK", "top", []string{"logits", b.constant("top.k", int64(min(SpeechTopK, b.Vocab)))},
		[]string{"top_values", "top_ids"}, onnx.Int("axis", -1), onnx.Int("largest", 1), onnx.Int("sorted", 1))
	shares := b.node("Div", "logits.tempered", []string{"logits", "temperature"})
	shares = b.node("Softmax", "shares", []string{shares}, onnx.Int("axis", -1))
	b.node("GatherElements", "top_shares", []string{shares, "top_ids"}, onnx.Int("axis", 2))
	b.node("GatherElements", "history_values", []string{"logits", "history"}, onnx.Int("axis", 2))
}
