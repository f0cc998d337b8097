package inference

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
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

// MiniCPMConfig sets the built-in model.
type MiniCPMConfig struct {
	// Path of the model bundle's folder.
	Path string `yaml:"path" env:"PATH"`
	// Device is the GPU's number.
	Device int `yaml:"device" env:"DEVICE"`
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
		Voice:   VoiceConfig{Enabled: true, Program: "auto", Language: "en", MaxTokens: 96},
		MiniCPM: MiniCPMConfig{SuppressTokens: []int{151667}, VocoderPrecision: "float32"},
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
	check(m.Device >= 0 && m.Device <= 63, "minicpmo.device", "between 0 and 63", m.Device)
	for _, id := range m.SuppressTokens {
		if id < 0 || id > 1<<20 {
			check(false, "minicpmo.suppress_tokens", "token ids between 0 and 1048576", id)
			break
		}
	}
	switch m.VocoderPrecision {
	case "float32", "float16":
	default:
		check(false, "minicpmo.vocoder_precision", "float32 or float16", fmt.Sprintf("%q", m.VocoderPrecision))
	}
	return errors.Join(errs...)
}
