package inference

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Config chooses and sets the engine.
type Config struct {
	// Engine is one of EngineChoices. "auto" is nano for the generated worlds, and sight for everything else where its networks are
	// installed, else scene.
	Engine string `yaml:"engine" env:"ENGINE"`
	// MaxTokens is the limit of an answer that is not spoken, in tokens.
	MaxTokens int `yaml:"max_tokens" env:"MAX_TOKENS"`
	// MaxInputTokens is the limit of a prompt, in tokens.
	MaxInputTokens int `yaml:"max_input_tokens" env:"MAX_INPUT_TOKENS"`
	// MaxSlices is the largest number of tiles of 448x448 pixels per picture, in addition to the whole picture; each costs 66 tokens.
	MaxSlices int `yaml:"max_slices" env:"MAX_SLICES"`
	// IdleUnload frees the model after this time without a session; 0 keeps it.
	IdleUnload time.Duration `yaml:"idle_unload" env:"IDLE_UNLOAD"`
	// Voice sets the speech.
	Voice VoiceConfig `yaml:"voice" envPrefix:"VOICE_"`
	// Recognizer sets the recognition of speech.
	Recognizer RecognizerConfig `yaml:"recognizer" envPrefix:"RECOGNIZER_"`
}

// The programs of RecognizerConfig.
const (
	RecognizerOff    = "off"
	RecognizerModel  = "model"
	RecognizerRemote = "remote"
	RecognizerSphinx = "sphinx"
)

// RecognizerConfig sets the speech recognizer.
type RecognizerConfig struct {
	// Program is "off", "model" (a bundle), "remote" (a server) or "sphinx" (spoken orders only).
	Program string `yaml:"program" env:"PROGRAM"`
	// Bundle is the folder of the model, Aligner the folder of the model that finds word times; "" means no word times.
	Bundle  string `yaml:"bundle" env:"BUNDLE"`
	Aligner string `yaml:"aligner" env:"ALIGNER"`
	// Device of the model is "cuda" or "cpu"; GPU is the number of the GPU.
	Device string `yaml:"device" env:"DEVICE"`
	GPU    int    `yaml:"gpu" env:"GPU"`
	// Slots is the number of utterances that the model transcribes in parallel: 1, 2, 4, ... 256; 0 means as many as fit the memory.
	Slots int `yaml:"slots" env:"SLOTS"`
	// Step is the interval of interim transcripts, in new audio.
	Step time.Duration `yaml:"step" env:"STEP"`
	// IdleUnload frees the model after this time without work and without an open session; 0 keeps it.
	IdleUnload time.Duration `yaml:"idle_unload" env:"IDLE_UNLOAD"`
	// URL of the server of program remote, up to and including /v1. With ws:// or wss:// for http:// or https://, live speech goes
	// through the server's /v1/realtime.
	URL string `yaml:"url" env:"URL"`
	// Model of the server; "" is "whisper-1".
	Model string `yaml:"model" env:"MODEL"`
	// APIKey of the server is read from the environment only.
	APIKey redact.Secret `yaml:"-" env:"API_KEY"`
	// Interim chooses a faster recognizer for interim texts.
	Interim InterimConfig `yaml:"interim" envPrefix:"INTERIM_"`

	interims bool // made by Interims
}

// InterimConfig chooses the recognizer of interim texts: a bundle, or a server with its address and model as in RecognizerConfig. Without
// either, interim texts come from the recognizer of the finals.
type InterimConfig struct {
	Bundle string        `yaml:"bundle" env:"BUNDLE"`
	URL    string        `yaml:"url" env:"URL"`
	Model  string        `yaml:"model" env:"MODEL"`
	APIKey redact.Secret `yaml:"-" env:"API_KEY"`
}

// Interims returns the settings of the recognizer of interim texts, and false without one. Device, slots and times are those of the
// finals.
func (c RecognizerConfig) Interims() (RecognizerConfig, bool) {
	i := c.Interim
	if c.Program != RecognizerModel && c.Program != RecognizerRemote || i.Bundle == "" && i.URL == "" {
		return RecognizerConfig{}, false
	}
	if c.Program = RecognizerModel; i.URL != "" {
		c.Program = RecognizerRemote
	}
	c.Bundle, c.Aligner, c.URL, c.Model, c.APIKey = i.Bundle, "", i.URL, i.Model, i.APIKey
	c.Interim, c.interims = InterimConfig{}, true
	return c, true
}

// OfInterims reports whether the settings are those of Interims.
func (c RecognizerConfig) OfInterims() bool { return c.interims }

// Setting returns the path of the settings.
func (c RecognizerConfig) Setting() string {
	if c.interims {
		return "inference.recognizer.interim"
	}
	return "inference.recognizer"
}

// Address returns URL with http:// or https://. live means that it has ws:// or wss://: live speech goes through realtime sessions.
func (c RecognizerConfig) Address() (address string, live bool) {
	if rest, live := strings.CutPrefix(c.URL, "ws"); live {
		return "http" + rest, true
	}
	return c.URL, false
}

// The bounds of the voice's level, dB.
const (
	MinGain = -24
	MaxGain = 12
)

// The values of VoiceConfig.Prompt.
const (
	ShortPrompt = 3 * time.Second
	LongPrompt  = 6 * time.Second
)

// VoiceConfig sets the voice.
type VoiceConfig struct {
	// Enabled turns speech on.
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// Program is one of VoiceChoices: "auto" (the model if it has a voice, else a program by the language), "model", or a program.
	Program string `yaml:"program" env:"PROGRAM"`
	// Name of the program's voice; "" selects its default (flite: slt).
	Name string `yaml:"name" env:"NAME"`
	// Gain is the initial level of the voice, dB; 0 leaves the engine's level unchanged.
	Gain float64 `yaml:"gain" env:"GAIN"`
	// URL of the speech server of program remote, up to and including /v1.
	URL string `yaml:"url" env:"URL"`
	// Model of the speech server; "" is "tts-1".
	Model string `yaml:"model" env:"MODEL"`
	// APIKey of the speech server is read from the environment only.
	APIKey redact.Secret `yaml:"-" env:"API_KEY"`
	// Slots is the number of answers that a model speaks in parallel in its own voice: 1, 2, 4, ... 64; 0 is 16, or as many as answers
	// are written in parallel. Fewer if the memory has no room for them.
	Slots int `yaml:"slots" env:"SLOTS"`
	// Prompt is how much of a reference recording the model's own voices use: 3s or 6s. Without the memory for 6s it is 3s.
	Prompt time.Duration `yaml:"prompt" env:"PROMPT"`
	// Language, BCP 47.
	Language string `yaml:"language" env:"LANGUAGE"`
	// MaxTokens is the limit of a spoken answer, in tokens.
	MaxTokens int `yaml:"max_tokens" env:"MAX_TOKENS"`
	// Lenient lets POST /v1/audio/speech ignore unknown voices and instructions; otherwise they are refused.
	Lenient bool `yaml:"lenient" env:"LENIENT"`
}

// DefaultConfig returns the automatic choice of the engine.
func DefaultConfig() Config {
	return Config{
		Engine: "auto", MaxTokens: 512, MaxInputTokens: 8192, MaxSlices: 2,
		Voice:      VoiceConfig{Enabled: true, Program: "auto", Prompt: LongPrompt, Language: "en", MaxTokens: 96},
		Recognizer: RecognizerConfig{Program: RecognizerOff, Device: "cuda", Step: 500 * time.Millisecond},
	}
}

// Validate returns all violations, joined. Each message is "path: must be rule,
// is value" with the YAML path below "inference".
func (c Config) Validate() error {
	var s check.Settings
	s.That(slices.Contains(EngineChoices(), c.Engine), "engine", List(EngineChoices()), strconv.Quote(c.Engine))
	s.That(check.Within(c.MaxTokens, 1, 8192), "max_tokens", "between 1 and 8192 tokens", c.MaxTokens)
	s.That(check.Within(c.MaxInputTokens, 256, 1<<20), "max_input_tokens", "between 256 and 1048576 tokens", c.MaxInputTokens)
	s.That(check.Within(c.MaxSlices, 1, 9), "max_slices", "between 1 and 9", c.MaxSlices)
	s.That(c.IdleUnload == 0 || check.Within(c.IdleUnload, time.Second, 24*time.Hour), "idle_unload",
		"0s to keep the model, or between 1s and 24h", c.IdleUnload)
	s.Part("voice", c.Voice.Validate())
	s.Part("recognizer", c.Recognizer.Validate())
	return s.Err()
}

// languageTag matches the syntax of a BCP 47 tag.
var languageTag = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$`)

// Validate is Config.Validate for the settings below "inference.voice".
func (c VoiceConfig) Validate() error {
	var s check.Settings
	s.That(slices.Contains(VoiceChoices(), c.Program), "program", List(VoiceChoices()), strconv.Quote(c.Program))
	s.That(c.Gain >= MinGain && c.Gain <= MaxGain, "gain", fmt.Sprintf("between %d and %d dB", MinGain, MaxGain), c.Gain)
	s.That(c.Slots >= 0 && c.Slots <= 64 && c.Slots&(c.Slots-1) == 0, "slots", "0, 1, 2, 4, 8, 16, 32 or 64", c.Slots)
	s.That(c.Prompt == ShortPrompt || c.Prompt == LongPrompt, "prompt", "3s or 6s", c.Prompt)
	s.Add(checkURL(c.URL, c.Program == VoiceServer, "a speech server", "VOICE"))
	s.That(languageTag.MatchString(c.Language), "language", "a language tag such as en, nl or pt-BR", strconv.Quote(c.Language))
	s.That(check.Within(c.MaxTokens, 1, 8192), "max_tokens", "between 1 and 8192 tokens", c.MaxTokens)
	return s.Err()
}

// Validate is Config.Validate for the settings below "inference.recognizer".
func (c RecognizerConfig) Validate() error {
	var s check.Settings
	s.That(slices.Contains([]string{RecognizerOff, RecognizerModel, RecognizerRemote, RecognizerSphinx}, c.Program), "program",
		"off, model, remote or sphinx", strconv.Quote(c.Program))
	s.That(c.Program != RecognizerModel || c.Bundle != "", "bundle", "the folder of a model, as program is model", strconv.Quote(c.Bundle))
	s.That(c.Device == "cuda" || c.Device == "cpu", "device", "cuda or cpu", strconv.Quote(c.Device))
	s.That(check.Within(c.GPU, 0, 63), "gpu", "between 0 and 63", c.GPU)
	s.That(check.Within(c.Slots, 0, 256) && c.Slots&(c.Slots-1) == 0, "slots", "0, 1, 2, 4, 8, 16, 32, 64, 128 or 256", c.Slots)
	s.That(check.Within(c.Step, 100*time.Millisecond, 10*time.Second), "step", "between 100ms and 10s", c.Step)
	s.That(c.IdleUnload == 0 || check.Within(c.IdleUnload, time.Second, 24*time.Hour), "idle_unload",
		"0s to keep the model, or between 1s and 24h", c.IdleUnload)
	address, _ := c.Address()
	s.Add(checkURL(address, c.Program == RecognizerRemote, "a transcription server", "RECOGNIZER"))
	s.Part("interim", c.Interim.validate())
	return s.Err()
}

func (c InterimConfig) validate() error {
	var s check.Settings
	s.That(c.Bundle == "" || c.URL == "", "bundle", "empty, as url is set", strconv.Quote(c.Bundle))
	address, _ := RecognizerConfig{URL: c.URL}.Address()
	s.Add(checkURL(address, false, "a transcription server", "RECOGNIZER_INTERIM"))
	return s.Err()
}

// checkURL returns the violation of a server's address. group is the environment group of its key.
func checkURL(address string, needed bool, server, group string) error {
	u, err := url.Parse(address)
	switch {
	case address == "" && needed:
		return fmt.Errorf("url: must be the address of %s, such as http://127.0.0.1:8880/v1, as program is remote", server)
	case address == "":
		return nil
	case err != nil || u.User != nil:
		// The message omits the value, which may contain a password.
		return errors.New("url: must be an address without name and password in it; a key goes into TOUCHLINE_INFERENCE_" + group + "_API_KEY")
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("url: must be http:// or https:// with a host, such as http://127.0.0.1:8880/v1, is %q", address)
	}
	return nil
}
