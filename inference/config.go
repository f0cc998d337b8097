package inference

import "time"

// Config chooses and sets the engine.
type Config struct {
	// Engine is "scene", "remote" or "minicpmo".
	Engine string `yaml:"engine" env:"ENGINE"`
	// MaxTokens caps an answer that is only shown (tokens).
	MaxTokens int `yaml:"max_tokens" env:"MAX_TOKENS"`
	// MaxInputTokens caps a prompt (tokens).
	MaxInputTokens int `yaml:"max_input_tokens" env:"MAX_INPUT_TOKENS"`
	// MaxSlices is the detail per picture: each slice costs 64 tokens.
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
