package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// config is config.json. The language model's settings are at the root, next to the settings
// of the other parts.
type config struct {
	ModelType        string   `json:"model_type"`
	Hidden           *int     `json:"hidden_size"`
	Layers           *int     `json:"num_hidden_layers"`
	Heads            *int     `json:"num_attention_heads"`
	KVHeads          *int     `json:"num_key_value_heads"`
	HeadDim          *int     `json:"head_dim"`
	FFN              *int     `json:"intermediate_size"`
	Vocab            *int     `json:"vocab_size"`
	Epsilon          *float64 `json:"rms_norm_eps"`
	RopeTheta        *float64 `json:"rope_theta"`
	MaxPositions     *int     `json:"max_position_embeddings"`
	TiedHead         bool     `json:"tie_word_embeddings"`
	Activation       string   `json:"hidden_act"`
	AttentionBias    bool     `json:"attention_bias"`
	UseSlidingWindow bool     `json:"use_sliding_window"`

	RopeScaling    *rope `json:"rope_scaling"`
	RopeParameters *rope `json:"rope_parameters"` // its name in newer versions

	Queries    *int          `json:"query_num"`
	DropLast   *bool         `json:"drop_vision_last_layer"`
	Vision     *visionConfig `json:"vision_config"`
	TTS        *ttsConfig    `json:"tts_config"`
	UseImageID *bool         `json:"use_image_id"`

	Quantization *quantization `json:"quantization_config"`

	hearing *hearingConfig // nil unless the model hears
}

type rope struct {
	Type    string   `json:"rope_type"`
	OldType string   `json:"type"`
	Theta   *float64 `json:"rope_theta"`
}

type visionConfig struct {
	Hidden     *int     `json:"hidden_size"`
	Layers     *int     `json:"num_hidden_layers"`
	Heads      *int     `json:"num_attention_heads"`
	FFN        *int     `json:"intermediate_size"`
	ImageSize  *int     `json:"image_size"`
	Patch      *int     `json:"patch_size"`
	Channels   *int     `json:"num_channels"`
	Epsilon    *float64 `json:"layer_norm_eps"`
	Activation string   `json:"hidden_act"`
}

// ttsConfig is the language model of speech codes. It is checked only if the
// checkpoint has it.
type ttsConfig struct {
	Hidden       *int     `json:"hidden_size"`
	Layers       *int     `json:"num_hidden_layers"`
	Heads        *int     `json:"num_attention_heads"`
	KVHeads      *int     `json:"num_key_value_heads"`
	FFN          *int     `json:"intermediate_size"`
	Codes        *int     `json:"num_audio_tokens"`
	TextRows     *int     `json:"num_text_tokens"`
	AudioBOS     *int     `json:"audio_bos_token_id"`
	TextEOS      *int     `json:"text_eos_token_id"`
	MaxPositions *int     `json:"max_position_embeddings"`
	Epsilon      *float64 `json:"rms_norm_eps"`
	RopeTheta    *float64 `json:"rope_theta"`
	Steps        *int     `json:"s3_stream_n_timesteps"`
	Books        *int     `json:"num_vq"`

	Activation string `json:"hidden_act"`
	Backbone   string `json:"backbone_model"`
	Projector  string `json:"projector_type"`
	Condition  string `json:"condition_type"`
	Tokenizer  string `json:"audio_tokenizer_type"`
	Normalize  *bool  `json:"normalize_projected_hidden"`
}

type quantization struct {
	Method    string `json:"quant_method"`
	Bits      int    `json:"bits"`
	GroupSize int    `json:"group_size"`
	ZeroPoint bool   `json:"zero_point"`
	Version   string `json:"version"`

	Format string `json:"format"` // of compressed-tensors
}

// methodInt8 is the quantization method of int8 rows with scales.
const methodInt8 = "compressed-tensors"

// maxSize is the maximum of every size in a config: far above any model's, and
// the product of two fits 64 bits.
const maxSize = 1 << 24

// parseConfig parses and checks the fields that do not depend on tensors. Published files omit
// defaults; missing fields get the defaults of the official configuration classes.
func parseConfig(content []byte) (config, error) {
	if h, err := parseHearing(content); err != nil || h != nil {
		return h.config(), err
	}
	var c config
	if err := json.Unmarshal(content, &c); err != nil {
		return c, jsonError(err)
	}
	c.TTS.setDefaults()
	return c, errors.Join(c.checkDecoder(), c.checkVision(), c.checkQuantization())
}

func (c *config) checkDecoder() error {
	if c.RopeTheta == nil && c.RopeParameters != nil {
		c.RopeTheta = c.RopeParameters.Theta
	}
	setDefault(&c.KVHeads, 32)
	setDefault(&c.HeadDim, 128)
	setDefault(&c.MaxPositions, 32768)
	setDefault(&c.Epsilon, 1e-6)
	setDefault(&c.RopeTheta, 10000)
	errs := []error{
		size("hidden_size", c.Hidden, maxSize),
		size("num_hidden_layers", c.Layers, 1000),
		size("num_attention_heads", c.Heads, 1<<16),
		size("num_key_value_heads", c.KVHeads, 1<<16),
		size("head_dim", c.HeadDim, 1<<12),
		size("intermediate_size", c.FFN, maxSize),
		size("vocab_size", c.Vocab, maxSize),
		size("max_position_embeddings", c.MaxPositions, math.MaxInt32),
		positive("rms_norm_eps", *c.Epsilon),
		positive("rope_theta", *c.RopeTheta),
		oneOf("hidden_act", c.Activation, "silu"),
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch {
	case *c.HeadDim%16 != 0:
		return fmt.Errorf("head_dim: must be a multiple of 16 for the attention kernels, is %d", *c.HeadDim)
	case *c.Heads%*c.KVHeads != 0:
		return fmt.Errorf("num_attention_heads: must be a multiple of num_key_value_heads %d, is %d", *c.KVHeads, *c.Heads)
	case c.AttentionBias:
		return errors.New("attention_bias: must be false, is true: attention biases are not supported")
	case c.UseSlidingWindow:
		return errors.New("use_sliding_window: must be false, is true: windowed attention is not supported")
	}
	for name, r := range map[string]*rope{"rope_scaling": c.RopeScaling, "rope_parameters": c.RopeParameters} {
		if r == nil {
			continue
		}
		for _, t := range []string{r.Type, r.OldType} {
			if err := oneOf(name+".rope_type", t, "default"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *config) checkVision() error {
	setDefault(&c.DropLast, true)
	if c.ModelType == "minicpmo" || c.ModelType == "minicpmv" {
		setDefault(&c.Queries, 64)
	}
	if c.Vision == nil {
		return nil
	}
	v := c.Vision
	setDefault(&v.Epsilon, 1e-6)
	setDefault(&v.Channels, 3)
	errs := []error{
		size("query_num", c.Queries, 1<<16),
		size("vision_config.hidden_size", v.Hidden, maxSize),
		size("vision_config.num_hidden_layers", v.Layers, 1000),
		size("vision_config.num_attention_heads", v.Heads, 1<<16),
		size("vision_config.intermediate_size", v.FFN, maxSize),
		size("vision_config.image_size", v.ImageSize, 1<<16),
		size("vision_config.patch_size", v.Patch, 64),
		positive("vision_config.layer_norm_eps", *v.Epsilon),
		oneOf("vision_config.hidden_act", v.Activation, "gelu_pytorch_tanh"),
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch {
	case *v.Channels != 3:
		return fmt.Errorf("vision_config.num_channels: must be 3, is %d", *v.Channels)
	case *v.Hidden%*v.Heads != 0:
		return fmt.Errorf("vision_config.hidden_size: must be a multiple of num_attention_heads %d, is %d", *v.Heads, *v.Hidden)
	case *v.ImageSize < *v.Patch:
		return fmt.Errorf("vision_config.image_size: must be at least patch_size %d, is %d", *v.Patch, *v.ImageSize)
	case *c.DropLast && *v.Layers < 2:
		return errors.New("vision_config.num_hidden_layers: must be at least 2 with drop_vision_last_layer, is 1")
	}
	return nil
}

func (t *ttsConfig) setDefaults() {
	if t == nil {
		return
	}
	setDefault(&t.Layers, 20)
	setDefault(&t.Hidden, 768)
	setDefault(&t.Heads, 12)
	setDefault(&t.KVHeads, *t.Heads)
	setDefault(&t.FFN, 3072)
	setDefault(&t.MaxPositions, 4096)
	setDefault(&t.Epsilon, 1e-6)
	setDefault(&t.RopeTheta, 10000)
	setDefault(&t.Steps, 10)
	setDefault(&t.Books, 1)
	setDefault(&t.Normalize, true)
}

// check returns an error if a field is out of range, or is unlike the checkpoints with speech that are supported.
func (t *ttsConfig) check() error {
	const p = "tts_config."
	err := errors.Join(
		size(p+"hidden_size", t.Hidden, maxSize),
		size(p+"num_hidden_layers", t.Layers, 1000),
		size(p+"num_attention_heads", t.Heads, 1<<12),
		size(p+"intermediate_size", t.FFN, maxSize),
		size(p+"num_audio_tokens", t.Codes, maxSize),
		size(p+"num_text_tokens", t.TextRows, maxSize),
		size(p+"audio_bos_token_id", t.AudioBOS, maxSize),
		size(p+"text_eos_token_id", t.TextEOS, maxSize),
		size(p+"max_position_embeddings", t.MaxPositions, maxSize),
		size(p+"s3_stream_n_timesteps", t.Steps, 1000),
		positive(p+"rms_norm_eps", *t.Epsilon),
		positive(p+"rope_theta", *t.RopeTheta),
		oneOf(p+"hidden_act", t.Activation, "silu"),
		oneOf(p+"backbone_model", t.Backbone, "llama"),
		oneOf(p+"projector_type", t.Projector, "mlp"),
		oneOf(p+"condition_type", t.Condition, "hidden_text_merge"),
		oneOf(p+"audio_tokenizer_type", t.Tokenizer, "s3tokenizer_step_audio"),
	)
	if err != nil {
		return err
	}
	switch {
	case *t.Hidden%(16**t.Heads) != 0:
		return fmt.Errorf("tts_config.hidden_size: must be a multiple of 16 times num_attention_heads %d, is %d", *t.Heads, *t.Hidden)
	case *t.KVHeads != *t.Heads:
		return fmt.Errorf("tts_config.num_key_value_heads: must be num_attention_heads (%d), is %d", *t.Heads, *t.KVHeads)
	case *t.Books != 1:
		return fmt.Errorf("tts_config.num_vq: must be 1, is %d", *t.Books)
	case !*t.Normalize:
		return errors.New("tts_config.normalize_projected_hidden: must be true, is false")
	case *t.AudioBOS >= *t.TextRows || *t.TextEOS >= *t.TextRows:
		return fmt.Errorf("tts_config.audio_bos_token_id, text_eos_token_id: must be below num_text_tokens %d, are %d and %d",
			*t.TextRows, *t.AudioBOS, *t.TextEOS)
	}
	return nil
}

func (c *config) checkQuantization() error {
	q := c.Quantization
	if q == nil {
		return nil
	}
	if q.Method == methodInt8 {
		if q.Format != "int-quantized" {
			return fmt.Errorf("quantization_config.format: must be int-quantized, is %q: use the unquantised model", q.Format)
		}
		return nil
	}
	if q.GroupSize < -1 || q.GroupSize == 0 || q.GroupSize > maxSize {
		return fmt.Errorf("quantization_config.group_size: must be between 1 and %d, or -1, is %d", maxSize, q.GroupSize)
	}
	if q.Method != "awq" || q.Version != "gemm" && q.Version != "GEMM" || q.Bits != 4 || !q.ZeroPoint {
		return fmt.Errorf("quantization_config: must be quant_method awq, version gemm, 4 bits and zero_point, "+
			"is %q, %q, %d and %t: use the unquantised model", q.Method, q.Version, q.Bits, q.ZeroPoint)
	}
	return nil
}

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func size(field string, v *int, most int) error {
	if v == nil {
		return fmt.Errorf("%s: missing", field)
	}
	if *v < 1 || *v > most {
		return fmt.Errorf("%s: must be between 1 and %d, is %d", field, most, *v)
	}
	return nil
}

func positive(field string, v float64) error {
	if !(v > 0) || math.IsInf(v, 0) {
		return fmt.Errorf("%s: must be a positive number, is %g", field, v)
	}
	return nil
}

// oneOf accepts the only supported value, or an empty one.
func oneOf(field, v, want string) error {
	if v != "" && v != want {
		return fmt.Errorf("%s: must be %q, is %.40q", field, want, v)
	}
	return nil
}
