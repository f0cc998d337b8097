package graph

import (
	"errors"
	"fmt"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// Aligner describes the decoder of Qwen3-ForcedAligner, which runs once over whole
// prompts and classifies marked positions. With F as in Decoder:
//
//	inputs_embeds           F [B,S,hidden]   Embed of the prompts, with the rows of Hearing; anything behind the end of a prompt
//	seqlens_k               int32 [B]        the length of each prompt, less 1
//	total_sequence_length   int32 []         on the CPU: S
//	positions               int64 [K]        the marks: row*S + position
//
//	classes                 int64 [K]        the best class of each
//
// Options.Check adds logits float32 [K,classes].
func Aligner(d models.Dims, o Options) (*Description, error) {
	if d.Task() != models.TaskAligner {
		return nil, errors.New("describe aligner: the checkpoint has no classes")
	}
	if err := errors.Join(d.Validate(), checkFloat(o)); err != nil {
		return nil, fmt.Errorf("describe aligner: %w", err)
	}
	c := d.Decoder
	c.Vocab, c.TiedHead = d.Hearing.Classes, false
	b := aligner{newDecoder("aligner", d, c, o)}
	b.stateless = true
	return b.build(), nil
}

// aligner builds the graph of an aligner's decoder.
type aligner struct{ decoder }

func (b *aligner) build() *Description {
	b.input("inputs_embeds", b.float, "B", "S", b.Hidden)
	b.input("seqlens_k", models.Int32, "B")
	b.input("total_sequence_length", models.Int32)
	b.input("positions", models.Int64, "K")
	b.output("classes", models.Int64, "K")
	cos, sin := b.rotary()
	x, residual := b.begin()
	for i := range b.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		x, residual = b.skipNorm(p+"ffn_norm", residual, b.attention(i, x, cos, sin), b.layer(i)+"post_attention_layernorm.weight")
		x, residual = b.skipNorm("layers."+strconv.Itoa(i+1)+".norm", residual, b.feedForward(i, x), b.before(i+1))
	}
	x = b.node("Reshape", "rows", []string{x, b.constant("rows.shape", -1, int64(b.Hidden))})
	x = b.node("Gather", "marks", []string{x, "positions"}, onnx.Int("axis", 0))
	b.logits("logits", x)
	if b.options.Check {
		b.output("logits", models.Float32, "K", b.Vocab)
	}
	b.node("ArgMax", "classes", []string{"logits"}, onnx.Int("axis", -1), onnx.Int("keepdims", 0))
	return b.describe(models.KindAligner)
}
