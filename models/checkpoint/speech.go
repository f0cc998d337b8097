package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"touchline/models"
	"touchline/models/torch"
)

// The files of the voice in the published folder.
const (
	flowName    = "assets/token2wav/flow.pt"
	vocoderName = "assets/token2wav/hift.pt"
	flowConfig  = "assets/token2wav/flow.yaml"
	speakerName = "assets/token2wav/campplus.onnx"
	codesName   = "assets/token2wav/speech_tokenizer_v2_25hz.onnx"
	soundName   = "assets/HT_ref_audio.wav"
)

// openVoice maps the files of the voice that are not in the shards, if the folder has them. Their
// tensors get a prefix: "flow.", and "hift." for "generator.".
func (c *Checkpoint) openVoice() error {
	for _, v := range []struct{ file, prefix, drop string }{{flowName, "flow.", ""}, {vocoderName, "hift.", "generator."}} {
		f, err := torch.Open(c.path(v.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		c.files = append(c.files, f)
		for _, name := range f.Names() {
			t, _ := f.Tensor(name)
			name = v.prefix + strings.TrimPrefix(name, v.drop)
			if _, ok := c.plain[name]; ok {
				return fmt.Errorf("%s: tensor %q: duplicate name", c.path(v.file), name)
			}
			c.plain[name] = t
		}
	}
	return nil
}

// OpenFile opens a file of models.Manifest.Voice and returns its size, or
// fs.ErrNotExist.
func (c *Checkpoint) OpenFile(name string) (content io.ReadCloser, size int64, err error) {
	for _, published := range []string{speakerName, codesName, soundName} {
		if path.Base(published) != name {
			continue
		}
		f, err := os.Open(c.path(published))
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// missingError names a part that the checkpoint lacks; its text goes into the
// manifest.
type missingError string

func (e missingError) Error() string { return string(e) }

// incomplete returns the missingError of a part.
func incomplete(part string, missing []string, of int) error {
	if len(missing) == 0 {
		return nil
	}
	return missingError(fmt.Sprintf("%s (%d of its %d tensors are missing, for example %s)", part, len(missing), of, missing[0]))
}

func (c *Checkpoint) describeSpeech(m *models.Manifest) error {
	s, err := c.speech()
	if none, ok := errors.AsType[missingError](err); ok {
		m.Missing = append(m.Missing, none.Error())
		return nil
	}
	if err != nil {
		return err
	}
	m.Dims.Speech = s
	m.Voice = &models.Voice{Speaker: path.Base(speakerName), Codes: path.Base(codesName)}
	if c.has(soundName) {
		m.Voice.Sound = path.Base(soundName)
	} else {
		m.Missing = append(m.Missing, "voice ("+soundName+" is missing)")
	}
	m.Format = m.Dims.Format()
	return nil
}

func (c *Checkpoint) has(file string) bool {
	_, err := os.Stat(c.path(file))
	return err == nil
}

// speech returns the sizes of the voice's networks, or a missingError if the
// checkpoint lacks one of them or a part of it.
func (c *Checkpoint) speech() (*models.Speech, error) {
	if !slices.ContainsFunc(c.names, func(n string) bool { return strings.HasPrefix(n, "tts.") }) {
		return nil, missingError("speech")
	}
	t, err := c.tts()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{flowName, vocoderName, speakerName, codesName} {
		if !c.has(name) {
			return nil, missingError("token2wav (" + name + " is missing)")
		}
	}
	f, err := (&measure{Checkpoint: c}).flow()
	if err != nil {
		return nil, err
	}
	v, err := (&measure{Checkpoint: c}).vocoder(f.Mel)
	return &models.Speech{TTS: t, Flow: f, Vocoder: v}, err
}

// tts returns the sizes of the language model of the codes. It compares the shape
// of every tensor with them.
func (c *Checkpoint) tts() (models.TTS, error) {
	g := c.config.TTS
	if g == nil {
		return models.TTS{}, fmt.Errorf("%s: tts_config: missing, but the checkpoint has tensors of speech", c.path("config.json"))
	}
	if err := g.check(); err != nil {
		return models.TTS{}, fmt.Errorf("%s: %w", c.path("config.json"), err)
	}
	t := models.TTS{
		Layers: *g.Layers, Hidden: *g.Hidden, Heads: *g.Heads, FFN: *g.FFN, Codes: *g.Codes, TextRows: *g.TextRows,
		Epsilon: *g.Epsilon, RopeTheta: *g.RopeTheta, MaxPositions: *g.MaxPositions, AudioBOS: *g.AudioBOS, TextEOS: *g.TextEOS,
	}
	list := ttsTensors(t, *c.config.Hidden)
	missing, err := c.compare(list)
	if err != nil {
		return t, err
	}
	return t, incomplete("speech", missing, len(list))
}

// ttsTensors lists the tensors of the language model of the codes. projector_spk
// and model.embed_tokens are in the checkpoint, but not used.
func ttsTensors(t models.TTS, from int) []expected {
	const (
		hidden = "tts_config.hidden_size"
		ffn    = "tts_config.intermediate_size, tts_config.hidden_size"
		codes  = "tts_config.num_audio_tokens, tts_config.hidden_size"
	)
	h := t.Hidden
	list := []expected{
		{"tts.emb_text.weight", []int{t.TextRows, h}, "tts_config.num_text_tokens, tts_config.hidden_size"},
		{"tts.emb_code.0.weight", []int{t.Codes, h}, codes},
		{"tts.head_code.0.parametrizations.weight.original0", []int{t.Codes, 1}, codes},
		{"tts.head_code.0.parametrizations.weight.original1", []int{t.Codes, h}, codes},
		{"tts.projector_semantic.linear1.weight", []int{h, from}, "tts_config.hidden_size, hidden_size"},
		{"tts.projector_semantic.linear1.bias", []int{h}, hidden},
		{"tts.projector_semantic.linear2.weight", []int{h, h}, hidden},
		{"tts.projector_semantic.linear2.bias", []int{h}, hidden},
		{"tts.model.norm.weight", []int{h}, hidden},
	}
	for i := range t.Layers {
		p := fmt.Sprintf("tts.model.layers.%d.", i)
		list = append(list, []expected{
			{p + "input_layernorm.weight", []int{h}, hidden},
			{p + "post_attention_layernorm.weight", []int{h}, hidden},
			{p + "self_attn.q_proj.weight", []int{h, h}, hidden},
			{p + "self_attn.k_proj.weight", []int{h, h}, hidden},
			{p + "self_attn.v_proj.weight", []int{h, h}, hidden},
			{p + "self_attn.o_proj.weight", []int{h, h}, hidden},
			{p + "mlp.gate_proj.weight", []int{t.FFN, h}, ffn},
			{p + "mlp.up_proj.weight", []int{t.FFN, h}, ffn},
			{p + "mlp.down_proj.weight", []int{h, t.FFN}, ffn},
		}...)
	}
	return list
}

// measure reads sizes from the shapes of tensors.
type measure struct {
	*Checkpoint

	missing []string // tensors that do not have them
}

// dim returns a dimension of a tensor, or 1.
func (m *measure) dim(name string, axis int) int {
	info, _ := m.Info(name)
	if axis >= len(info.Shape) || info.Shape[axis] < 1 {
		m.missing = append(m.missing, name)
		return 1
	}
	return info.Shape[axis]
}

// check returns an error unless all tensors of a part have these sizes.
func (m *measure) check(part string, list []expected) error {
	if err := incomplete(part, m.missing, len(list)); err != nil {
		return err
	}
	missing, err := m.compare(list)
	if err != nil {
		return err
	}
	return incomplete(part, missing, len(list))
}

// blocks returns the number of blocks whose names begin with prefix and their index.
func (m *measure) blocks(prefix string) int {
	n := 0
	for _, name := range m.names {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			index, _, _ := strings.Cut(rest, ".")
			if i, err := strconv.Atoi(index); err == nil && i < maxBlocks {
				n = max(n, i+1)
			}
		}
	}
	return n
}

const (
	maxBlocks = 1000
	// maxPromptCodes is the longest prompt of a voice: the official code has caches of 1000 frames,
	// 2 per code, of which it uses 150 for speech.
	maxPromptCodes = 425
)

// flow returns the sizes of the flow, from its tensors.
func (m *measure) flow() (models.Flow, error) {
	const encoder, blocks = "flow.encoder.encoders.", "flow.decoder.estimator.blocks."
	f := models.Flow{
		Codes: m.dim("flow.input_embedding.weight", 0), Hidden: m.dim("flow.input_embedding.weight", 1),
		Heads: m.dim(encoder+"0.self_attn.pos_bias_u", 0), FFN: m.dim(encoder+"0.feed_forward.w_1.weight", 0),
		Blocks: m.blocks(encoder), UpBlocks: m.blocks("flow.encoder.up_encoders."),
		Mel: m.dim("flow.encoder_proj.weight", 0), Speaker: m.dim("flow.spk_embed_affine_layer.weight", 1), MaxPrompt: maxPromptCodes,
		DiT: models.DiT{
			Layers: m.blocks(blocks), Hidden: m.dim("flow.decoder.estimator.in_proj.weight", 0),
			HeadDim: m.dim(blocks+"0.attn.q_norm.weight", 0), FFN: m.dim(blocks+"0.mlp.fc1.weight", 0),
			Time: m.dim("flow.decoder.estimator.t_embedder.mlp.0.weight", 1), Steps: *m.config.TTS.Steps,
		},
	}
	f.DiT.Heads = m.dim(blocks+"0.attn.to_q.weight", 0) / f.DiT.HeadDim
	err := m.check("token2wav", flowTensors(f))
	if err == nil {
		f.DiT.Guidance, err = m.guidance()
	}
	return f, err
}

// defaultGuidance is the published value.
const defaultGuidance = 0.7

// guidance returns the rate of classifier-free guidance, the only setting of flow.yaml that cannot
// be derived from the tensors.
func (c *Checkpoint) guidance() (float64, error) {
	content, err := models.ReadFile(c.path(flowConfig), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return defaultGuidance, nil
	}
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^\s*inference_cfg_rate:\s*([^\s#]+)`).FindSubmatch(content)
	if found == nil {
		return defaultGuidance, nil
	}
	rate, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil || !(rate >= 0 && rate <= 100) {
		return 0, fmt.Errorf("%s: inference_cfg_rate: must be a number from 0 to 100, is %.40q", c.path(flowConfig), found[1])
	}
	return rate, nil
}

// shapes collects tensors whose sizes are not in a config.
type shapes []expected

func (s *shapes) add(name string, shape ...int) { *s = append(*s, expected{name: name, shape: shape}) }

// layer adds a weight and a bias with the weight's first dimension.
func (s *shapes) layer(name string, shape ...int) {
	s.add(name+".weight", shape...)
	s.add(name+".bias", shape[0])
}

// normed adds a convolution whose weights are stored as lengths and directions.
func (s *shapes) normed(name string, bias int, shape ...int) {
	s.add(name+".parametrizations.weight.original0", shape[0], 1, 1)
	s.add(name+".parametrizations.weight.original1", shape...)
	s.add(name+".bias", bias)
}

// flowTensors lists the tensors of the flow.
func flowTensors(f models.Flow) []expected {
	var s shapes
	h := f.Hidden
	s.add("flow.input_embedding.weight", f.Codes, h)
	s.layer("flow.spk_embed_affine_layer", f.Mel, f.Speaker)
	s.layer("flow.encoder_proj", f.Mel, h)
	const e = "flow.encoder."
	for _, name := range []string{"embed", "up_embed"} {
		s.layer(e+name+".out.0", h, h)
		s.layer(e+name+".out.1", h)
	}
	s.layer(e+"pre_lookahead_layer.conv1", h, h, 4)
	s.layer(e+"pre_lookahead_layer.conv2", h, h, 3)
	s.layer(e+"up_layer.conv", h, h, 5)
	s.layer(e+"after_norm", h)
	for name, n := range map[string]int{"encoders.": f.Blocks, "up_encoders.": f.UpBlocks} {
		for i := range n {
			p := e + name + strconv.Itoa(i) + "."
			s.layer(p+"norm_mha", h)
			s.layer(p+"norm_ff", h)
			for _, linear := range []string{"q", "k", "v", "out"} {
				s.layer(p+"self_attn.linear_"+linear, h, h)
			}
			s.add(p+"self_attn.linear_pos.weight", h, h)
			s.add(p+"self_attn.pos_bias_u", f.Heads, h/f.Heads)
			s.add(p+"self_attn.pos_bias_v", f.Heads, h/f.Heads)
			s.layer(p+"feed_forward.w_1", f.FFN, h)
			s.layer(p+"feed_forward.w_2", h, f.FFN)
		}
	}
	s.dit(f)
	return s
}

// dit adds the flow matching network.
func (s *shapes) dit(f models.Flow) {
	d := f.DiT
	h, inner := d.Hidden, d.Heads*d.HeadDim
	const p = "flow.decoder.estimator."
	s.layer(p+"t_embedder.mlp.0", h, d.Time)
	s.layer(p+"t_embedder.mlp.2", h, h)
	s.layer(p+"in_proj", h, 4*f.Mel)
	s.layer(p+"final_layer.adaLN_modulation.1", 2*h, h)
	s.layer(p+"final_layer.linear", f.Mel, h)
	for i := range d.Layers {
		p := p + "blocks." + strconv.Itoa(i) + "."
		for _, linear := range []string{"q", "k", "v"} {
			s.layer(p+"attn.to_"+linear, inner, h)
		}
		s.layer(p+"attn.q_norm", d.HeadDim)
		s.layer(p+"attn.k_norm", d.HeadDim)
		s.layer(p+"attn.proj", h, inner)
		s.layer(p+"mlp.fc1", d.FFN, h)
		s.layer(p+"mlp.fc2", h, d.FFN)
		s.layer(p+"conv.block.1", h, h, 3)
		s.layer(p+"conv.block.3", h)
		s.layer(p+"conv.block.6", h, h, 3)
		s.layer(p+"adaLN_modulation.1", 9*h, h)
	}
}

// vocoder returns the sizes of the vocoder, from its tensors.
func (m *measure) vocoder(mel int) (models.Vocoder, error) {
	v := models.Vocoder{Channels: m.dim("hift.conv_pre.bias", 0), Pitch: m.dim("hift.f0_predictor.classifier.weight", 1)}
	return v, m.check("token2wav", vocoderTensors(v, mel))
}

// vocoderTensors lists the tensors of HiFT for sound of 24 kHz: three stages, with
// spectra of 16 samples.
func vocoderTensors(v models.Vocoder, mel int) []expected {
	const (
		p         = "hift."
		harmonics = 9
		spectrum  = 18 // of 9 complex numbers
	)
	var s shapes
	for i, from := range []int{mel, v.Pitch, v.Pitch, v.Pitch, v.Pitch} {
		s.normed(p+"f0_predictor.condnet."+strconv.Itoa(2*i), v.Pitch, v.Pitch, from, 3)
	}
	s.layer(p+"f0_predictor.classifier", 1, v.Pitch)
	s.layer(p+"m_source.l_linear", 1, harmonics)
	s.normed(p+"conv_pre", v.Channels, v.Channels, mel, 7)
	s.normed(p+"conv_post", spectrum, spectrum, v.Channels/8, 7)
	for stage, kernels := range []struct{ up, down, source int }{{16, 30, 7}, {11, 6, 7}, {7, 1, 11}} {
		from, to := v.Channels>>stage, v.Channels>>(stage+1)
		i := strconv.Itoa(stage)
		s.normed(p+"ups."+i, to, from, to, kernels.up)
		s.layer(p+"source_downs."+i, to, spectrum, kernels.down)
		s.residual(p+"source_resblocks."+i, to, kernels.source)
		for j, kernel := range []int{3, 7, 11} {
			s.residual(p+"resblocks."+strconv.Itoa(3*stage+j), to, kernel)
		}
	}
	return s
}

// residual adds a block of three pairs of convolutions.
func (s *shapes) residual(name string, channels, kernel int) {
	for i := range 3 {
		for _, part := range []string{"1.", "2."} {
			index := part + strconv.Itoa(i)
			s.add(name+".activations"+index+".alpha", channels)
			s.normed(name+".convs"+index, channels, channels, channels, kernel)
		}
	}
}
