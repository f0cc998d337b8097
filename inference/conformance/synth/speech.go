package synth

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"touchline/internal/wav"
	"touchline/models"
	"touchline/models/onnx"
	"touchline/models/safetensors"
	"touchline/models/torch"
)

// The files of the voice in the published folder.
const (
	speakerName = "assets/token2wav/campplus.onnx"
	codesName   = "assets/token2wav/speech_tokenizer_v2_25hz.onnx"
	flowConfig  = "assets/token2wav/flow.yaml"
	soundName   = "assets/HT_ref_audio.wav"
)

// voiceFile is a file of weights with the prefix that package checkpoint gives its tensors, and the
// prefix in the file.
type voiceFile struct{ file, prefix, stored string }

func voiceFiles() []voiceFile {
	return []voiceFile{{"assets/token2wav/flow.pt", "flow.", ""}, {"assets/token2wav/hift.pt", "hift.", "generator."}}
}

// typ returns the type in which a tensor is published.
func (p spec) typ() models.Type {
	for _, v := range voiceFiles() {
		if strings.HasPrefix(p.name, v.prefix) {
			return models.Float32
		}
	}
	return models.BFloat16
}

// namesOf returns the names with a prefix.
func (s *Source) namesOf(prefix string) (names []string) {
	for _, name := range s.names {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// writeVoice writes a file of torch.save.
func (s *Source) writeVoice(ctx context.Context, path string, v voiceFile, names []string, progress func(n int)) error {
	entries := make([]safetensors.Entry, len(names))
	for i, name := range names {
		entries[i] = safetensors.Entry{Name: v.stored + strings.TrimPrefix(name, v.prefix), TensorInfo: s.tensors[name].info}
	}
	return writeFile(path, func(out io.Writer) error {
		w, err := torch.NewWriter(out, entries)
		if err != nil {
			return err
		}
		return errors.Join(s.writeTensors(ctx, w, names, progress), w.Close())
	})
}

// OpenFile opens a file of models.Manifest.Voice and returns its size, or
// fs.ErrNotExist.
func (s *Source) OpenFile(name string) (content io.ReadCloser, size int64, err error) {
	for _, published := range []string{speakerName, codesName, soundName} {
		if b, ok := s.files[published]; ok && path.Base(published) == name {
			return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
		}
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// addVoice adds the files that make voices.
func (s *Source) addVoice() error {
	speaker, err := s.speakerModel()
	if err != nil {
		return err
	}
	codes, err := s.codesModel()
	if err != nil {
		return err
	}
	s.files[speakerName], s.files[codesName], s.files[soundName] = speaker, codes, sound(s.shape.sound)
	s.files[flowConfig] = fmt.Appendf(nil, "flow:\n  decoder:\n    inference_cfg_rate: %g\n", s.shape.Speech.Flow.DiT.Guidance)
	return nil
}

// Numbers of bins of the inputs of both models: 80 of a filter bank, 128 of a mel spectrogram.
const speakerBins, codesBins = 80, 128

// constant returns n random values as a tensor.
func (s *Source) constant(name string, std float64, shape ...int64) onnx.Tensor {
	t := &tensor{key: mix(s.seed), table: new([tableSize]float32)}
	for i, z := range quantiles() {
		t.table[i] = float32(std * z)
	}
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	values := make([]float32, n)
	t.fill(values, t.table, 0)
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return onnx.Tensor{Name: name, Type: models.Float32, Shape: shape, Raw: raw}
}

func scalar(name string, v float32) onnx.Tensor {
	return onnx.Tensor{Name: name, Type: models.Float32, Raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))}
}

// smallOpset is the ONNX opset of the speaker and speech token models.
const smallOpset = 17

// speakerModel returns a stand-in for CAM++, with its input and output: the mean of
// the frames, projected.
func (s *Source) speakerModel() ([]byte, error) {
	width := int64(s.shape.Speech.Flow.Speaker)
	m := onnx.Model{Producer: "touchline", Opsets: []onnx.Opset{{Version: smallOpset}}, Graph: onnx.Graph{
		Name:    "speaker",
		Inputs:  []onnx.Value{{Name: "input", Type: models.Float32, Shape: []onnx.Dim{{Name: "B"}, {Name: "T"}, {Size: speakerBins}}}},
		Outputs: []onnx.Value{{Name: "output", Type: models.Float32, Shape: []onnx.Dim{{Name: "B"}, {Size: width}}}},
		Nodes: []onnx.Node{
			{Name: "loud", Op: "Abs", Inputs: []string{"input"}, Outputs: []string{"loud"}}, // the mean of the input is 0
			{
				Name: "mean", Op: "ReduceMean", Inputs: []string{"loud"}, Outputs: []string{"mean"},
				Attributes: []onnx.Attribute{onnx.Ints("axes", 1), onnx.Int("keepdims", 0)},
			},
			{Name: "output", Op: "MatMul", Inputs: []string{"mean", "weight"}, Outputs: []string{"output"}},
		},
		Initializers: []onnx.Tensor{s.constant("weight", 0.1, speakerBins, width)},
	}}
	return m.Marshal()
}

// codesModel returns a stand-in for the speech tokenizer, with its inputs and output: a projection
// of each group of four frames, folded into the range of the codes.
func (s *Source) codesModel() ([]byte, error) {
	const stride = 4
	node := func(name, op string, inputs []string, attributes ...onnx.Attribute) onnx.Node {
		return onnx.Node{Name: name, Op: op, Inputs: inputs, Outputs: []string{name}, Attributes: attributes}
	}
	m := onnx.Model{Producer: "touchline", Opsets: []onnx.Opset{{Version: smallOpset}}, Graph: onnx.Graph{
		Name: "codes",
		Inputs: []onnx.Value{
			{Name: "feats", Type: models.Float32, Shape: []onnx.Dim{{Name: "B"}, {Size: codesBins}, {Name: "T"}}},
			{Name: "feats_length", Type: models.Int32, Shape: []onnx.Dim{{Name: "B"}}},
		},
		Outputs: []onnx.Value{{Name: "indices", Type: models.Int32, Shape: []onnx.Dim{{Name: "B"}, {Name: "codes"}}}},
		Nodes: []onnx.Node{
			node("projected", "Conv", []string{"feats", "weight"},
				onnx.Ints("kernel_shape", stride), onnx.Ints("strides", stride), onnx.Ints("pads", 0, stride-1)),
			node("positive", "Abs", []string{"projected"}),
			node("spread", "Mul", []string{"positive", "spread by"}),
			node("folded", "Mod", []string{"spread", "range"}, onnx.Int("fmod", 1)),
			node("row", "ReduceSum", []string{"folded", "row axis"}, onnx.Int("keepdims", 0)),
			node("indices", "Cast", []string{"row"}, onnx.Int("to", int(models.Int32))),
		},
		Initializers: []onnx.Tensor{
			s.constant("weight", 0.1, 1, codesBins, stride), scalar("spread by", 1000),
			scalar("range", float32(s.shape.Speech.TTS.Codes-1)),
			{Name: "row axis", Type: models.Int64, Shape: []int64{1}, Raw: binary.LittleEndian.AppendUint64(nil, 1)},
		},
	}}
	return m.Marshal()
}

// sound returns seconds of a hum with overtones as a WAV file of 16 kHz.
func sound(seconds int) []byte {
	const rate, pitch, overtones = 16000, 120, 20
	samples := make([]int16, rate*seconds)
	for i := range samples {
		t := float64(i) / rate
		var x float64
		phase := 2 * math.Pi * (pitch*t + 8*math.Sin(2*math.Pi*t)/math.Pi) // the pitch goes up and down by 16 Hz
		for k := 1; k <= overtones; k++ {
			x += math.Sin(float64(k)*phase) / float64(k)
		}
		loudness := 0.1 * (1.2 + math.Sin(2*math.Pi*3*t)) // three syllables a second
		samples[i] = int16(32767 * loudness * x)
	}
	return wav.EncodePCM(samples, rate)
}

// weights collects the specs of the voice.
type weights []spec

func (w *weights) vector(name string, n int, mean, std float64) {
	*w = append(*w, spec{name: name, shape: []int{n}, mean: mean, std: std})
}

func (w *weights) norm(name string, n int) {
	w.vector(name+".weight", n, 1, 0.1)
	w.vector(name+".bias", n, 0, 0.02)
}

// linear adds a matrix or convolution that preserves the scale of its input, and
// its bias.
func (w *weights) linear(name string, shape ...int) {
	inputs := 1
	for _, d := range shape[1:] {
		inputs *= d
	}
	*w = append(*w, spec{name: name + ".weight", shape: shape, std: 1 / math.Sqrt(float64(inputs))})
	w.vector(name+".bias", shape[0], 0, 0.02)
}

// normed adds a weight stored as lengths and directions, with its bias.
func (w *weights) normed(name string, length float64, bias int, shape ...int) {
	lengths := make([]int, len(shape))
	for i := range lengths {
		lengths[i] = 1
	}
	lengths[0] = shape[0]
	p := name + ".parametrizations.weight."
	*w = append(*w,
		spec{name: p + "original0", shape: lengths, mean: length, std: length / 10}, spec{name: p + "original1", shape: shape, std: 1})
	if bias > 0 {
		w.vector(name+".bias", bias, 0, 0.02)
	}
}

func (s Shape) speechSpecs() []spec {
	var w weights
	w.tts(s.Speech.TTS, s.Decoder.Hidden)
	w.flow(s.Speech.Flow)
	w.vocoder(s.Speech.Vocoder, s.Speech.Flow.Mel)
	return w
}

// unusedRows is the size of a table that the published model has but does not use.
const unusedRows = 97

func (w *weights) tts(t models.TTS, from int) {
	h, depth := t.Hidden, math.Sqrt(2*float64(t.Layers))
	table := func(name string, rows int) { *w = append(*w, spec{name: name, shape: []int{rows, h}, std: 1}) }
	matrix := func(name string, gain float64, n, k int) {
		*w = append(*w, spec{name: name + ".weight", shape: []int{n, k}, std: gain / math.Sqrt(float64(k))})
	}
	table("tts.emb_text.weight", t.TextRows)
	table("tts.emb_code.0.weight", t.Codes)
	table("tts.model.embed_tokens.weight", unusedRows)
	w.normed("tts.head_code.0", 3, 0, t.Codes, h)
	for _, name := range []string{"semantic", "spk"} {
		w.linear("tts.projector_"+name+".linear1", h, from)
		w.linear("tts.projector_"+name+".linear2", h, h)
	}
	w.vector("tts.model.norm.weight", h, 1, 0.1)
	for i := range t.Layers {
		p := "tts.model.layers." + strconv.Itoa(i) + "."
		w.vector(p+"input_layernorm.weight", h, 1, 0.1)
		w.vector(p+"post_attention_layernorm.weight", h, 1, 0.1)
		for _, name := range []string{"q", "k", "v"} {
			matrix(p+"self_attn."+name+"_proj", 1, h, h)
		}
		matrix(p+"self_attn.o_proj", 2/depth, h, h)
		matrix(p+"mlp.gate_proj", 1, t.FFN, h)
		matrix(p+"mlp.up_proj", 1, t.FFN, h)
		matrix(p+"mlp.down_proj", 2/depth, h, t.FFN)
	}
}

func (w *weights) flow(f models.Flow) {
	h := f.Hidden
	*w = append(*w, spec{name: "flow.input_embedding.weight", shape: []int{f.Codes, h}, std: 1})
	w.linear("flow.spk_embed_affine_layer", f.Mel, f.Speaker)
	w.linear("flow.encoder_proj", f.Mel, h)
	const e = "flow.encoder."
	for _, name := range []string{"embed", "up_embed"} {
		w.linear(e+name+".out.0", h, h)
		w.norm(e+name+".out.1", h)
	}
	w.linear(e+"pre_lookahead_layer.conv1", h, h, 4)
	w.linear(e+"pre_lookahead_layer.conv2", h, h, 3)
	w.linear(e+"up_layer.conv", h, h, 5)
	w.norm(e+"after_norm", h)
	for _, part := range []struct {
		name string
		n    int
	}{{"encoders.", f.Blocks}, {"up_encoders.", f.UpBlocks}} {
		for i := range part.n {
			w.conformer(f, e+part.name+strconv.Itoa(i)+".")
		}
	}
	w.dit(f)
}

func (w *weights) conformer(f models.Flow, p string) {
	h := f.Hidden
	w.norm(p+"norm_mha", h)
	w.norm(p+"norm_ff", h)
	for _, name := range []string{"q", "k", "v", "out"} {
		w.linear(p+"self_attn.linear_"+name, h, h)
	}
	*w = append(*w, spec{name: p + "self_attn.linear_pos.weight", shape: []int{h, h}, std: 1 / math.Sqrt(float64(h))})
	for _, name := range []string{"u", "v"} {
		*w = append(*w, spec{name: p + "self_attn.pos_bias_" + name, shape: []int{f.Heads, h / f.Heads}, std: 0.1})
	}
	w.linear(p+"feed_forward.w_1", f.FFN, h)
	w.linear(p+"feed_forward.w_2", h, f.FFN)
}

func (w *weights) dit(f models.Flow) {
	d := f.DiT
	h, inner := d.Hidden, d.Heads*d.HeadDim
	const p = "flow.decoder.estimator."
	w.linear(p+"t_embedder.mlp.0", h, d.Time)
	w.linear(p+"t_embedder.mlp.2", h, h)
	w.linear(p+"in_proj", h, 4*f.Mel)
	w.linear(p+"final_layer.adaLN_modulation.1", 2*h, h)
	w.linear(p+"final_layer.linear", f.Mel, h)
	for i := range d.Layers {
		p := p + "blocks." + strconv.Itoa(i) + "."
		for _, name := range []string{"q", "k", "v"} {
			w.linear(p+"attn.to_"+name, inner, h)
		}
		w.norm(p+"attn.q_norm", d.HeadDim)
		w.norm(p+"attn.k_norm", d.HeadDim)
		w.linear(p+"attn.proj", h, inner)
		w.linear(p+"mlp.fc1", d.FFN, h)
		w.linear(p+"mlp.fc2", h, d.FFN)
		w.linear(p+"conv.block.1", h, h, 3)
		w.norm(p+"conv.block.3", h)
		w.linear(p+"conv.block.6", h, h, 3)
		w.linear(p+"adaLN_modulation.1", 9*h, h)
	}
}

// vocoder adds HiFT. The pitch predictor's bias gives speech a pitch of about
// 120 Hz.
func (w *weights) vocoder(v models.Vocoder, mel int) {
	const p = "hift."
	for i, from := range []int{mel, v.Pitch, v.Pitch, v.Pitch, v.Pitch} {
		w.normed(p+"f0_predictor.condnet."+strconv.Itoa(2*i), 1, v.Pitch, v.Pitch, from, 3)
	}
	*w = append(*w, spec{name: p + "f0_predictor.classifier.weight", shape: []int{1, v.Pitch}, std: 20 / math.Sqrt(float64(v.Pitch))})
	w.vector(p+"f0_predictor.classifier.bias", 1, 120, 0)
	w.linear(p+"m_source.l_linear", 1, 9)
	w.normed(p+"conv_pre", 1, v.Channels, v.Channels, mel, 7)
	w.normed(p+"conv_post", 1, 18, 18, v.Channels/8, 7)
	for stage, k := range []struct {
		up, down, source int
		length           float64
	}{{16, 30, 7, 2}, {11, 6, 7, 1.6}, {7, 1, 11, 1.2}} {
		from, to, i := v.Channels>>stage, v.Channels>>(stage+1), strconv.Itoa(stage)
		w.normed(p+"ups."+i, k.length, to, from, to, k.up)
		w.linear(p+"source_downs."+i, to, 18, k.down)
		w.residual(p+"source_resblocks."+i, to, k.source)
		for j, kernel := range []int{3, 7, 11} {
			w.residual(p+"resblocks."+strconv.Itoa(3*stage+j), to, kernel)
		}
	}
}

func (w *weights) residual(name string, channels, kernel int) {
	for i := range 3 {
		for part, length := range []float64{1, 0.35} {
			index := fmt.Sprintf("%d.%d", part+1, i)
			w.vector(name+".activations"+index+".alpha", channels, 1, 0.1)
			w.normed(name+".convs"+index, length, channels, channels, channels, kernel)
		}
	}
}
