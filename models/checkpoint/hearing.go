package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"touchline/models"
)

// maxHearing is maxCache for speech recognition: 20 minutes of audio have 15,600 rows.
const maxHearing = 32768

// hearingConfig is config.json of Qwen3-ASR and Qwen3-ForcedAligner, with the fields of
// thinker_config, which in newer versions are at the root.
type hearingConfig struct {
	ModelType  string          `json:"model_type"`
	Audio      *audioConfig    `json:"audio_config"`
	Text       json.RawMessage `json:"text_config"`
	AudioPad   *int            `json:"audio_token_id"`
	AudioStart *int            `json:"audio_start_token_id"`
	AudioEnd   *int            `json:"audio_end_token_id"`
	Classes    *int            `json:"classify_num"` // of an aligner

	// Fields at the root.
	Languages []string        `json:"support_languages"`
	Timestamp *int            `json:"timestamp_token_id"`
	StepMS    *int            `json:"timestamp_segment_time"`
	Thinker   json.RawMessage `json:"thinker_config"`

	text config
}

// audioConfig is the audio encoder.
type audioConfig struct {
	Mel          *int   `json:"num_mel_bins"`
	Window       *int   `json:"n_window"`       // half the frames of a chunk
	WindowInfer  *int   `json:"n_window_infer"` // frames of a window of attention
	Positions    *int   `json:"max_source_positions"`
	Activation   string `json:"activation_function"`
	ScaleInput   bool   `json:"scale_embedding"`
	Out          *int   `json:"output_dim"`
	Hidden       *int   `json:"d_model"`
	Layers       *int   `json:"encoder_layers"`
	Heads        *int   `json:"encoder_attention_heads"`
	FFN          *int   `json:"encoder_ffn_dim"`
	Channels     *int   `json:"downsample_hidden_size"`
	Downsampling *int   `json:"downsample_rate"`
}

// Constants of the official code.
const (
	hearingEpsilon = 1e-5 // of LayerNorm
	hearingBins    = 128
	hearingWindow  = 50
)

// parseHearing returns nil for the config of another model.
func parseHearing(content []byte) (*hearingConfig, error) {
	h := &hearingConfig{}
	if err := json.Unmarshal(content, h); err != nil {
		return nil, nil //nolint:nilerr,nilnil // parseConfig names the field
	}
	nested := len(h.Thinker) > 0 && string(h.Thinker) != "null"
	if !nested && !strings.HasPrefix(h.ModelType, "qwen3_asr") && !strings.HasPrefix(h.ModelType, "qwen3_forced_aligner") {
		return nil, nil //nolint:nilnil // another model
	}
	at := ""
	if nested {
		if err := json.Unmarshal(h.Thinker, h); err != nil {
			return nil, fmt.Errorf("thinker_config: %w", jsonError(err))
		}
		at = "thinker_config."
	}
	if err := h.parse(); err != nil {
		return nil, fmt.Errorf("%s%w", at, err)
	}
	return h, nil
}

func (h *hearingConfig) parse() error {
	if h.Audio == nil || len(h.Text) == 0 {
		return errors.New("audio_config, text_config: missing")
	}
	if err := json.Unmarshal(h.Text, &h.text); err != nil {
		return fmt.Errorf("text_config: %w", jsonError(err))
	}
	if h.text.RopeTheta == nil && (h.text.RopeParameters == nil || h.text.RopeParameters.Theta == nil) {
		return errors.New("text_config: rope_theta: missing")
	}
	for name, v := range map[string]*int{"num_key_value_heads": h.text.KVHeads, "head_dim": h.text.HeadDim} {
		if v == nil {
			return fmt.Errorf("text_config: %s: missing", name)
		}
	}
	if err := h.text.checkDecoder(); err != nil {
		return fmt.Errorf("text_config: %w", err)
	}
	if h.text.Quantization != nil {
		return errors.New("quantization_config: must be missing: use the unquantised model")
	}
	err := errors.Join(
		h.Audio.check(*h.text.Hidden), token("audio_token_id", h.AudioPad), token("audio_start_token_id", h.AudioStart),
		token("audio_end_token_id", h.AudioEnd))
	if h.Classes != nil {
		setDefault(&h.StepMS, 0)
		err = errors.Join(err, size("classify_num", h.Classes, 1<<16), size("timestamp_segment_time", h.StepMS, 10000),
			token("timestamp_token_id", h.Timestamp))
	}
	return err
}

// token checks an id.
func token(field string, id *int) error {
	if id == nil {
		return fmt.Errorf("%s: missing", field)
	}
	if *id < 0 || *id >= maxSize {
		return fmt.Errorf("%s: must be between 0 and %d, is %d", field, maxSize-1, *id)
	}
	return nil
}

func (a *audioConfig) check(hidden int) error {
	const p = "audio_config."
	err := errors.Join(
		size(p+"num_mel_bins", a.Mel, maxSize), size(p+"n_window", a.Window, maxSize), size(p+"n_window_infer", a.WindowInfer, maxSize),
		size(p+"output_dim", a.Out, maxSize), size(p+"d_model", a.Hidden, maxSize), size(p+"encoder_layers", a.Layers, 1000),
		size(p+"encoder_attention_heads", a.Heads, 1<<12), size(p+"encoder_ffn_dim", a.FFN, maxSize),
		size(p+"downsample_hidden_size", a.Channels, maxSize), oneOf(p+"activation_function", a.Activation, "gelu"))
	if err != nil {
		return err
	}
	setDefault(&a.Positions, 1500)
	setDefault(&a.Downsampling, 8)
	const chunk = 2 * hearingWindow
	switch {
	case *a.Mel != hearingBins:
		return fmt.Errorf("%snum_mel_bins: must be %d, is %d", p, hearingBins, *a.Mel)
	case *a.Window != hearingWindow:
		return fmt.Errorf("%sn_window: must be %d, is %d", p, hearingWindow, *a.Window)
	case *a.WindowInfer%chunk != 0 || *a.WindowInfer > 64*chunk:
		return fmt.Errorf("%sn_window_infer: must be a multiple of %d up to %d, is %d", p, chunk, 64*chunk, *a.WindowInfer)
	case *a.Positions < (chunk+7)/8:
		return fmt.Errorf("%smax_source_positions: must be at least %d, is %d", p, (chunk+7)/8, *a.Positions)
	case *a.Downsampling != 8:
		return fmt.Errorf("%sdownsample_rate: must be 8, is %d", p, *a.Downsampling)
	case a.ScaleInput:
		return fmt.Errorf("%sscale_embedding: must be false, is true", p)
	case *a.Hidden%(2**a.Heads) != 0:
		return fmt.Errorf("%sd_model: must be a multiple of twice encoder_attention_heads %d, is %d", p, *a.Heads, *a.Hidden)
	case *a.Out != hidden:
		return fmt.Errorf("%soutput_dim: must be hidden_size of text_config (%d), is %d", p, hidden, *a.Out)
	}
	return nil
}

// config returns the settings of the decoder.
func (h *hearingConfig) config() config {
	if h == nil {
		return config{}
	}
	c := h.text
	c.hearing = h
	return c
}

// classes returns the classes of an aligner and their distance, or 0.
func (h *hearingConfig) classes() (n, stepMS int) {
	if h == nil || h.Classes == nil {
		return 0, 0
	}
	return *h.Classes, *h.StepMS
}

// hearingName returns the name of a tensor in this program: decoder tensors as in MiniCPM-o,
// encoder tensors with the prefix "audio_tower.".
func hearingName(name string) string {
	for _, r := range []struct{ published, ours string }{
		{"thinker.model.", "llm.model."},
		{"thinker.lm_head.", headPrefix},
		{"thinker.audio_tower.", towerPrefix},
		// The layout of the port in transformers.
		{"model.language_model.", "llm.model."},
		{"model.multi_modal_projector.linear_1.", towerPrefix + "proj1."},
		{"model.multi_modal_projector.linear_2.", towerPrefix + "proj2."},
		{"model.audio_tower.", towerPrefix},
		{"lm_head.", headPrefix},
		{"score.", headPrefix},
	} {
		if rest, ok := strings.CutPrefix(name, r.published); ok {
			return r.ours + rest
		}
	}
	return name
}

const (
	headPrefix  = "llm.lm_head."
	towerPrefix = "audio_tower."
)

// dropCopy drops a head that is a copy of the embedding, and uses the embedding for a missing head.
func (c *Checkpoint) dropCopy() {
	const head = headPrefix + "weight"
	_, ok := c.plain[head]
	if classes, _ := c.config.hearing.classes(); classes > 0 {
		c.config.TiedHead = false // for the classes
		return
	}
	if !ok {
		c.config.TiedHead = true
	}
	if c.config.TiedHead {
		delete(c.plain, head)
	}
}

// hearing returns the sizes of the audio encoder. It compares the shape of every tensor with them.
func (c *Checkpoint) hearing() (*models.Hearing, error) {
	a := c.config.hearing.Audio
	h := &models.Hearing{
		Layers: *a.Layers, Hidden: *a.Hidden, Heads: *a.Heads, FFN: *a.FFN, Channels: *a.Channels, Out: *a.Out, Mel: *a.Mel,
		Chunk: 2 * *a.Window, Window: *a.WindowInfer / (2 * *a.Window), Epsilon: hearingEpsilon,
	}
	h.Classes, h.StepMS = c.config.hearing.classes()
	return h, c.complete(hearingTensors(h), "the encoder of sound", fmt.Sprintf("an encoder of %d layers (encoder_layers)", h.Layers),
		func(name string) bool { return strings.HasPrefix(name, towerPrefix) })
}

// hearingTensors lists the tensors of the audio encoder.
func hearingTensors(h *models.Hearing) []expected {
	var list []expected
	add := func(field, name string, shape ...int) {
		list = append(list, expected{towerPrefix + name, shape, field})
	}
	layer := func(field, name string, shape ...int) {
		add(field, name+".weight", shape...)
		add(field, name+".bias", shape[0])
	}
	const (
		channels = "audio_config.downsample_hidden_size"
		width    = "audio_config.d_model"
		ffn      = "audio_config.d_model, audio_config.encoder_ffn_dim"
	)
	d := h.Hidden
	for i, in := range []int{1, h.Channels, h.Channels} {
		layer(channels, fmt.Sprintf("conv2d%d", i+1), h.Channels, in, 3, 3)
	}
	add(channels+", "+width+", audio_config.num_mel_bins", "conv_out.weight", d, h.Channels*h.Mel/8)
	for i := range h.Layers {
		p := fmt.Sprintf("layers.%d.", i)
		for _, name := range []string{"q", "k", "v", "out"} {
			layer(width, p+"self_attn."+name+"_proj", d, d)
		}
		layer(width, p+"self_attn_layer_norm", d)
		layer(width, p+"final_layer_norm", d)
		layer(ffn, p+"fc1", h.FFN, d)
		layer(ffn, p+"fc2", d, h.FFN)
	}
	layer(width, "ln_post", d)
	layer(width, "proj1", d, d)
	layer("audio_config.output_dim, "+width, "proj2", h.Out, d)
	return list
}

// describeHearing sets the manifest of a speech recognition model.
func (c *Checkpoint) describeHearing(m *models.Manifest) error {
	var err error
	if m.Dims.Hearing, err = c.hearing(); err != nil {
		return err
	}
	m.Task, m.Format = m.Dims.Task(), m.Dims.Format()
	if err := c.describeTokens(m); err != nil {
		return err
	}
	if len(m.Tokens) == 0 {
		return fmt.Errorf("%s: neither %s nor %s found", c.dir, models.TokenizerName, models.VocabName)
	}
	return c.markers(m)
}

// markers names the tokens of a prompt, and the ids without a token.
func (c *Checkpoint) markers(m *models.Manifest) error {
	g, t := c.config.hearing, &m.Template
	named := map[string]struct {
		id *int
		to *string
	}{
		"audio_start_token_id": {g.AudioStart, &t.AudioStart},
		"audio_token_id":       {g.AudioPad, &t.AudioPad},
		"audio_end_token_id":   {g.AudioEnd, &t.AudioEnd},
	}
	t.NoThink = ""
	if m.Task == models.TaskAligner {
		*t, m.Stop = models.Template{}, nil
		named["timestamp_token_id"] = struct {
			id *int
			to *string
		}{g.Timestamp, &t.Timestamp}
	} else {
		t.Transcript = transcript
		if _, ok := m.Tokens[transcript]; !ok {
			return fmt.Errorf("%s: %s is missing in the added tokens", c.path(models.TokenizerConfigName), transcript)
		}
		m.Languages = g.Languages
		m.Forbidden = nameless(m)
	}
	for field, n := range named {
		for name, id := range m.Tokens {
			if int(id) == *n.id {
				*n.to = name
			}
		}
		if *n.to == "" {
			return fmt.Errorf("%s: %s: %d is not the id of an added token", c.path("config.json"), field, *n.id)
		}
	}
	return nil
}

// transcript separates the language from the text in an answer.
const transcript = "<asr_text>"

// nameless returns the ids above the ids of all tokens: rows of the embedding without text.
func nameless(m *models.Manifest) []int32 {
	var top int32
	for _, id := range m.Tokens {
		top = max(top, id)
	}
	var ids []int32
	for id := top + 1; int(id) < m.Dims.Decoder.Vocab; id++ {
		ids = append(ids, id)
	}
	return slices.Clip(ids)
}
