package inference

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// Config chooses and sets the engine.
type Config struct {
	// Engine is "scene", "remote" or "minicpmo".
	Engine string `yaml:"engine" env:"ENGINE"`
	// MaxTokens caps an answer that is only shown (tokens).
	MaxTokens int `yaml:"max_tokens" env:"MAX_TOKENS"`
	// MaxInputTokens caps a prompt (tokens).
	MaxInputTokens int `yaml:"max_input_tokens" env:"MAX_INPUT_TOKENS"`
	// MaxSlices is the detail per picture: how many tiles of 448x448 pixels it may be cut into,
	// beside the whole; each costs 66 tokens.
	MaxSlices int `yaml:"max_slices" env:"MAX_SLICES"`
	// IdleUnload frees the model when no session has lived for this long; 0 keeps it.
	IdleUnload time.Duration `yaml:"idle_unload" env:"IDLE_UNLOAD"`
	// Remote sets the OpenAI-compatible server.
	Remote RemoteConfig `yaml:"remote" envPrefix:"REMOTE_"`
	// Voice sets the speech of engines without their own.
	Voice VoiceConfig `yaml:"voice" envPrefix:"VOICE_"`
	// MiniCPM sets the built-in model.
	MiniCPM MiniCPMConfig `yaml:"minicpmo" envPrefix:"MINICPMO_"`
}

// RemoteConfig sets the remote engine.
type RemoteConfig struct {
	// URL of the server up to and including /v1.
	URL string `yaml:"url" env:"URL"`
	// Model name as the server lists it; "" takes the only one it has.
	Model string `yaml:"model" env:"MODEL"`
	// APIKey is read from the environment only.
	APIKey Secret `yaml:"-" env:"API_KEY"`
	// FirstTokenTimeout and IdleTimeout bound the wait for the first token and between tokens.
	FirstTokenTimeout time.Duration `yaml:"first_token_timeout" env:"FIRST_TOKEN_TIMEOUT"`
	IdleTimeout       time.Duration `yaml:"idle_timeout" env:"IDLE_TIMEOUT"`
	// Retries after a failed connection or a 5xx answer, before the first token.
	Retries int `yaml:"retries" env:"RETRIES"`
	// JPEGQuality of the pictures sent, 1 to 100.
	JPEGQuality int `yaml:"jpeg_quality" env:"JPEG_QUALITY"`
}

// VoiceConfig sets the speech programs.
type VoiceConfig struct {
	// Enabled turns speech on.
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// Program is "auto" (flite for English, espeak-ng for the rest), "flite" or "espeak-ng".
	Program string `yaml:"program" env:"PROGRAM"`
	// Name of the program's voice; "" is its default (flite: slt).
	Name string `yaml:"name" env:"NAME"`
	// Language, BCP 47.
	Language string `yaml:"language" env:"LANGUAGE"`
	// MaxTokens caps a spoken answer (tokens).
	MaxTokens int `yaml:"max_tokens" env:"MAX_TOKENS"`
}

// DefaultSlots of the built-in model, where the memory suffices.
const DefaultSlots = 64

// MiniCPMConfig sets the built-in model.
type MiniCPMConfig struct {
	// Path of the model bundle's folder.
	Path string `yaml:"path" env:"PATH"`
	// Runtime is the folder of ONNX Runtime; "" looks where `make runtime` and the system put it.
	Runtime string `yaml:"runtime" env:"RUNTIME"`
	// Device is "cuda" or "cpu".
	Device string `yaml:"device" env:"DEVICE"`
	// GPU is its number.
	GPU int `yaml:"gpu" env:"GPU"`
	// Weights are "auto" (int4 for few rooms and fp16 for many where both fit), "int4", "fp16" or, on the CPU, "fp32".
	Weights string `yaml:"weights" env:"WEIGHTS"`
	// Slots is how many answers are generated at once: 1, 2, 4, ... 256; 0 is DefaultSlots, or as many of
	// them as the memory suffices for.
	Slots int `yaml:"slots" env:"SLOTS"`
	// MaxLen is how long a prompt and its answer may be together (tokens); 0 is what the pictures of a look and max_tokens need.
	MaxLen int `yaml:"max_len" env:"MAX_LEN"`
	// Queue is how many answers may wait for a slot.
	Queue int `yaml:"queue" env:"QUEUE"`
	// Temperature of the draws; 0 always takes the likeliest token.
	Temperature float64 `yaml:"temperature" env:"TEMPERATURE"`
	// TopK likeliest tokens that are drawn from; 0 is all.
	TopK int `yaml:"top_k" env:"TOP_K"`
	// TopP is the probability that the tokens drawn from have together.
	TopP float64 `yaml:"top_p" env:"TOP_P"`
	// RepetitionPenalty divides the logits of tokens that the answer has already; 1 is none.
	RepetitionPenalty float64 `yaml:"repetition_penalty" env:"REPETITION_PENALTY"`
	// Seed of the random numbers: the same one gives the same answers to the same prompts in the same order.
	Seed int `yaml:"seed" env:"SEED"`
	// VisionCache is how many embedded pictures are kept; 0 keeps none and embeds a picture when it is asked about.
	VisionCache int `yaml:"vision_cache" env:"VISION_CACHE"`
	// SuppressTokens are ids that are never chosen (151667 opens a "think" section).
	SuppressTokens []int `yaml:"suppress_tokens" env:"SUPPRESS_TOKENS"`
	// Vocoder is the folder of the speech decoder; "" is the one in the bundle.
	Vocoder string `yaml:"vocoder" env:"VOCODER"`
	// VocoderPrecision is "float32" or "float16".
	VocoderPrecision string `yaml:"vocoder_precision" env:"VOCODER_PRECISION"`
	// ReferenceAudio is a clip (WAV, 16 kHz mono) of the voice to speak with; "" is the bundle's.
	ReferenceAudio string `yaml:"reference_audio" env:"REFERENCE_AUDIO"`
}

// DefaultConfig returns the scene engine with speech.
func DefaultConfig() Config {
	return Config{
		Engine:         "scene",
		MaxTokens:      512,
		MaxInputTokens: 8192,
		MaxSlices:      2,
		Remote: RemoteConfig{
			FirstTokenTimeout: 20 * time.Second,
			IdleTimeout:       10 * time.Second,
			Retries:           2,
			JPEGQuality:       85,
		},
		Voice: VoiceConfig{Enabled: true, Program: "auto", Language: "en", MaxTokens: 96},
		MiniCPM: MiniCPMConfig{
			Device: "cuda", Weights: "auto", Queue: 64,
			Temperature: 0.7, TopK: 100, TopP: 0.8, RepetitionPenalty: 1.02, VisionCache: 1024,
			SuppressTokens: []int{151667}, VocoderPrecision: "float32",
		},
	}
}

// Secret is a string that never prints.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "redacted"
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The shape of a BCP 47 tag, not the list of all languages.
var languageTag = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$`)

// Validate checks every setting and reports all that are wrong, joined. Each
// message is "path: rule, is value" with the YAML path below "inference".
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, path, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: must be %s, is %v", path, rule, value))
		}
	}
	within := func(v, low, high time.Duration) bool { return low <= v && v <= high }
	switch c.Engine {
	case "scene", "remote", "minicpmo":
	default:
		check(false, "engine", "scene, remote or minicpmo", fmt.Sprintf("%q", c.Engine))
	}
	check(c.MaxTokens >= 1 && c.MaxTokens <= 8192, "max_tokens", "between 1 and 8192 tokens", c.MaxTokens)
	check(c.MaxInputTokens >= 256 && c.MaxInputTokens <= 1<<20, "max_input_tokens",
		"between 256 and 1048576 tokens", c.MaxInputTokens)
	check(c.MaxSlices >= 1 && c.MaxSlices <= 9, "max_slices", "between 1 and 9", c.MaxSlices)
	check(c.IdleUnload == 0 || within(c.IdleUnload, time.Second, 24*time.Hour), "idle_unload",
		"0s to keep the model, or between 1s and 24h", c.IdleUnload)

	r := c.Remote
	if r.URL == "" {
		check(c.Engine != "remote", "remote.url",
			"the address of the server up to /v1 when the engine is remote", `""`)
	} else if u, err := url.Parse(r.URL); err != nil || u.User != nil {
		// The value may hold a password: it is not repeated.
		errs = append(errs, errors.New("remote.url: must be an address without name and password in it; "+
			"a key goes into TOUCHLINE_INFERENCE_REMOTE_API_KEY"))
	} else {
		check((u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == "",
			"remote.url", "http:// or https:// with a host, such as http://127.0.0.1:8000/v1", fmt.Sprintf("%q", r.URL))
	}
	check(within(r.FirstTokenTimeout, 100*time.Millisecond, 10*time.Minute), "remote.first_token_timeout",
		"between 100ms and 10m", r.FirstTokenTimeout)
	check(within(r.IdleTimeout, 100*time.Millisecond, 10*time.Minute), "remote.idle_timeout",
		"between 100ms and 10m", r.IdleTimeout)
	check(r.Retries >= 0 && r.Retries <= 10, "remote.retries", "between 0 and 10", r.Retries)
	check(r.JPEGQuality >= 1 && r.JPEGQuality <= 100, "remote.jpeg_quality", "between 1 and 100", r.JPEGQuality)

	v := c.Voice
	switch v.Program {
	case "auto", "flite", "espeak-ng":
	default:
		check(false, "voice.program", "auto, flite or espeak-ng", fmt.Sprintf("%q", v.Program))
	}
	check(languageTag.MatchString(v.Language), "voice.language",
		"a language tag such as en, nl or pt-BR", fmt.Sprintf("%q", v.Language))
	check(v.MaxTokens >= 1 && v.MaxTokens <= 8192, "voice.max_tokens", "between 1 and 8192 tokens", v.MaxTokens)

	m := c.MiniCPM
	check(m.Path != "" || c.Engine != "minicpmo", "minicpmo.path",
		"the folder of the model bundle when the engine is minicpmo", `""`)
	m.validate(check)
	return errors.Join(errs...)
}

func (m MiniCPMConfig) validate(check func(ok bool, path, rule string, value any)) {
	oneOf := func(path, value, rule string, values ...string) {
		check(slices.Contains(values, value), path, rule, fmt.Sprintf("%q", value))
	}
	oneOf("minicpmo.device", m.Device, "cuda or cpu", "cuda", "cpu")
	check(m.GPU >= 0 && m.GPU <= 63, "minicpmo.gpu", "between 0 and 63", m.GPU)
	if m.Device == "cpu" {
		oneOf("minicpmo.weights", m.Weights, "auto, int4 or fp32 when the device is cpu", "auto", "int4", "fp32")
	} else {
		oneOf("minicpmo.weights", m.Weights, "auto, int4 or fp16", "auto", "int4", "fp16")
	}
	check(m.Slots >= 0 && m.Slots <= 256 && m.Slots&(m.Slots-1) == 0, "minicpmo.slots",
		"0, 1, 2, 4, 8, 16, 32, 64, 128 or 256", m.Slots)
	check(m.MaxLen == 0 || m.MaxLen >= 128 && m.MaxLen <= 1<<17, "minicpmo.max_len",
		"0, or between 128 and 131072 tokens", m.MaxLen)
	check(m.Queue >= 1 && m.Queue <= 4096, "minicpmo.queue", "between 1 and 4096", m.Queue)
	check(m.Temperature == 0 || m.Temperature >= 0.01 && m.Temperature <= 10, "minicpmo.temperature",
		"0, or between 0.01 and 10", m.Temperature)
	check(m.TopK >= 0 && m.TopK <= 1<<20, "minicpmo.top_k", "between 0 and 1048576", m.TopK)
	check(m.TopP > 0 && m.TopP <= 1, "minicpmo.top_p", "above 0 and at most 1", m.TopP)
	check(m.RepetitionPenalty >= 0.1 && m.RepetitionPenalty <= 10, "minicpmo.repetition_penalty",
		"between 0.1 and 10", m.RepetitionPenalty)
	check(m.Seed >= 0, "minicpmo.seed", "0 or more", m.Seed)
	check(m.VisionCache >= 0 && m.VisionCache <= 1<<20, "minicpmo.vision_cache", "between 0 and 1048576", m.VisionCache)
	for _, id := range m.SuppressTokens {
		if id < 0 || id > 1<<20 {
			check(false, "minicpmo.suppress_tokens", "token ids between 0 and 1048576", id)
			break
		}
	}
	oneOf("minicpmo.vocoder_precision", m.VocoderPrecision, "float32 or float16", "float32", "float16")
}
