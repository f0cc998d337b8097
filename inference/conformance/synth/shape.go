package synth

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"touchline/models"
)

// Shape holds the sizes of a checkpoint.
type Shape struct {
	Name string
	models.Dims

	ScaleResolution int // of an image's slices
	MaxSlices       int

	AWQ bool // the matrices of the language model's layers are in int4 as well, in blocks of 128 with zero points

	voice  models.Speech // for WithSpeech
	sound  int           // seconds of its reference sound
	spare  int           // last ids of the vocabulary, without a token
	merges []string      // of the tokenizer
}

// Shapes returns the named shapes: "minicpm-o-4.5", the published model (decoder, vision tower and
// resampler; about 17.5 GB, and 1.35 GB more with speech), "tiny", a model for tests, and the
// shapes of speech recognition models.
func Shapes() []Shape {
	tiny := published("tiny",
		models.Decoder{Layers: 3, Hidden: 256, Heads: 6, KVHeads: 3, HeadDim: 64, FFN: 384, Vocab: 1362},
		models.Vision{Layers: 2, Hidden: 96, Heads: 4, FFN: 200, ResamplerHeads: 2},
		models.Speech{
			TTS: models.TTS{Layers: 3, Hidden: 64, Heads: 4, FFN: 160, Codes: 4250, TextRows: 1369},
			Flow: models.Flow{
				Codes: 4300, Hidden: 32, Heads: 2, FFN: 64, Blocks: 2, UpBlocks: 2,
				DiT: models.DiT{Layers: 2, Hidden: 32, Heads: 2, HeadDim: 16, FFN: 128},
			},
			Vocoder: models.Vocoder{Channels: 32, Pitch: 24},
		})
	tiny.sound = 3
	return append([]Shape{
		published("minicpm-o-4.5",
			models.Decoder{Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 12288, Vocab: 151748},
			models.Vision{Layers: 26, Hidden: 1152, Heads: 16, FFN: 4304, ResamplerHeads: 32},
			models.Speech{
				TTS: models.TTS{Layers: 20, Hidden: 768, Heads: 12, FFN: 3072, Codes: 6562, TextRows: 152064},
				Flow: models.Flow{
					Codes: 6561, Hidden: 512, Heads: 8, FFN: 2048, Blocks: 6, UpBlocks: 4,
					DiT: models.DiT{Layers: 16, Hidden: 512, Heads: 8, HeadDim: 64, FFN: 2048},
				},
				Vocoder: models.Vocoder{Channels: 512, Pitch: 512},
			}),
		tiny,
	}, hearingShapes()...)
}

// maxPositions is the maximum cache length of a bundle.
const maxPositions = 8192

// published completes a shape with the constants of the published model.
func published(name string, d models.Decoder, v models.Vision, voice models.Speech) Shape {
	d.Epsilon, d.RopeTheta, d.MaxPositions = 1e-6, 1e6, maxPositions
	v.Epsilon, v.Patch, v.Grid, v.Queries, v.Out, v.MaxSide = 1e-6, 14, 70, 64, d.Hidden, 1024
	voice.TTS.Epsilon, voice.TTS.RopeTheta, voice.TTS.MaxPositions = 1e-6, 1e4, 4096
	f := &voice.Flow
	f.Mel, f.Speaker, f.MaxPrompt = 80, 192, 425
	f.DiT.Time, f.DiT.Steps, f.DiT.Guidance = 256, 10, 0.7
	return Shape{Name: name, ScaleResolution: 448, MaxSlices: 9, Dims: models.Dims{Decoder: d, Vision: &v}, voice: voice, sound: 6}
}

// WithSpeech returns the shape with the model's own voice.
func (s Shape) WithSpeech() Shape {
	voice := s.voice
	tokens := s.specialTokens() // their ids are also rows of the voice's text table
	voice.TTS.AudioBOS, voice.TTS.TextEOS = int(tokens["<focus>"]), int(tokens["</perception>"])
	s.Speech = &voice
	return s
}

// WithMerges returns the shape with the pieces of a trained tokenizer after the bytes, in its order, so that English needs as few tokens
// as with that tokenizer. A shape with a vocabulary too small for them is unchanged.
func (s Shape) WithMerges(merges []string) Shape {
	if s.firstToken() >= len(alphabet())+len(merges) {
		s.merges = merges
	}
	return s
}

// Find returns a shape by its name.
func Find(name string) (Shape, error) {
	var known []string
	for _, s := range Shapes() {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	return Shape{}, fmt.Errorf("shape: must be one of %s, is %q", strings.Join(known, ", "), name)
}

// spec describes a tensor with normally distributed values.
type spec struct {
	name      string
	shape     []int
	mean, std float64
	// quiet is the first row that is scaled by quietFactor; 0 for none.
	quiet int
}

// quietFactor is a power of two, so that values stay exact in bfloat16.
const quietFactor = 0.125

// specs lists the tensors. The deviations keep activations finite in float16 and
// the text varied:
//   - a matrix preserves the scale of its input;
//   - matrices that write to the residual stream shrink with the number of
//     layers, so that the stream does not grow with depth;
//   - the norms sharpen attention, so that it selects instead of averaging;
//   - the head's rows of special tokens are small, so that greedy text contains
//     none and does not end early.
func (s Shape) specs() []spec {
	d := s.Decoder
	norm := func(name string, n int) spec { return spec{name: name, shape: []int{n}, mean: 1, std: 0.1} }
	sharp := func(name string, n int) spec { return spec{name: name, shape: []int{n}, mean: 2, std: 0.1} }
	matrix := func(name string, n, k int, gain float64) spec {
		return spec{name: name, shape: []int{n, k}, std: gain / math.Sqrt(float64(k))}
	}
	depth := math.Sqrt(2 * float64(d.Layers))
	q, kv := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	embed := spec{name: "llm.model.embed_tokens.weight", shape: []int{d.Vocab, d.Hidden}, std: 1}
	list := []spec{norm("llm.model.norm.weight", d.Hidden)}
	switch {
	case d.TiedHead:
		embed.std, embed.quiet = tiedStd, s.firstToken()
	case s.Task() == models.TaskAligner:
		list = append(list, matrix("llm.lm_head.weight", s.Hearing.Classes, d.Hidden, 2))
	default:
		head := matrix("llm.lm_head.weight", d.Vocab, d.Hidden, 2)
		head.quiet = s.firstToken()
		list = append(list, head)
	}
	list = append(list, embed)
	for i := range d.Layers {
		p := "llm.model.layers." + strconv.Itoa(i) + "."
		list = append(list,
			norm(p+"input_layernorm.weight", d.Hidden),
			norm(p+"post_attention_layernorm.weight", d.Hidden),
			matrix(p+"self_attn.q_proj.weight", q, d.Hidden, 1),
			matrix(p+"self_attn.k_proj.weight", kv, d.Hidden, 1),
			matrix(p+"self_attn.v_proj.weight", kv, d.Hidden, 1),
			matrix(p+"self_attn.o_proj.weight", d.Hidden, q, 2/depth),
			sharp(p+"self_attn.q_norm.weight", d.HeadDim),
			sharp(p+"self_attn.k_norm.weight", d.HeadDim),
			matrix(p+"mlp.gate_proj.weight", d.FFN, d.Hidden, 1),
			matrix(p+"mlp.up_proj.weight", d.FFN, d.Hidden, 1),
			matrix(p+"mlp.down_proj.weight", d.Hidden, d.FFN, 2/depth),
		)
	}
	if s.Vision != nil {
		list = append(list, s.visionSpecs()...)
	}
	if s.Speech != nil {
		list = append(list, s.speechSpecs()...)
	}
	if s.Hearing != nil {
		list = append(list, s.hearingSpecs()...)
	}
	return list
}

func (s Shape) visionSpecs() []spec {
	v := s.Vision
	vector := func(name string, n int, mean, std float64) spec {
		return spec{name: name, shape: []int{n}, mean: mean, std: std}
	}
	norm := func(name string, n int) []spec {
		return []spec{vector(name+".weight", n, 1, 0.1), vector(name+".bias", n, 0, 0.02)}
	}
	linear := func(name string, n, k int, gain float64) []spec {
		return []spec{
			{name: name + ".weight", shape: []int{n, k}, std: gain / math.Sqrt(float64(k))},
			vector(name+".bias", n, 0, 0.02),
		}
	}
	pixels := math.Sqrt(float64(3 * v.Patch * v.Patch))
	depth := math.Sqrt(2 * float64(v.Layers))
	list := []spec{
		{name: "vpm.embeddings.patch_embedding.weight", shape: []int{v.Hidden, 3, v.Patch, v.Patch}, std: 1 / pixels},
		vector("vpm.embeddings.patch_embedding.bias", v.Hidden, 0, 0.02),
		{name: "vpm.embeddings.position_embedding.weight", shape: []int{v.Grid * v.Grid, v.Hidden}, std: 0.5},
	}
	for i := range v.Layers {
		p := "vpm.encoder.layers." + strconv.Itoa(i) + "."
		list = append(list, norm(p+"layer_norm1", v.Hidden)...)
		list = append(list, norm(p+"layer_norm2", v.Hidden)...)
		for _, name := range []string{"q", "k", "v"} {
			list = append(list, linear(p+"self_attn."+name+"_proj", v.Hidden, v.Hidden, 1)...)
		}
		list = append(list, linear(p+"self_attn.out_proj", v.Hidden, v.Hidden, 1/depth)...)
		list = append(list, linear(p+"mlp.fc1", v.FFN, v.Hidden, 1)...)
		list = append(list, linear(p+"mlp.fc2", v.Hidden, v.FFN, 1/depth)...)
	}
	list = append(list, norm("vpm.post_layernorm", v.Hidden)...)
	width := math.Sqrt(float64(v.Out))
	list = append(list,
		spec{name: "resampler.query", shape: []int{v.Queries, v.Out}, std: 1},
		spec{name: "resampler.kv_proj.weight", shape: []int{v.Out, v.Hidden}, std: 1 / math.Sqrt(float64(v.Hidden))},
		spec{name: "resampler.attn.in_proj_weight", shape: []int{3 * v.Out, v.Out}, std: 1 / width},
		vector("resampler.attn.in_proj_bias", 3*v.Out, 0, 0.02),
		spec{name: "resampler.proj", shape: []int{v.Out, v.Out}, std: 1 / width},
	)
	list = append(list, linear("resampler.attn.out_proj", v.Out, v.Out, 1)...)
	for _, name := range []string{"ln_q", "ln_kv", "ln_post"} {
		list = append(list, norm("resampler."+name, v.Out)...)
	}
	return list
}
