package minicpmo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"touchline/inference"
	"touchline/internal/check"
)

const (
	maxGPU  = 63    // the largest number of a GPU
	allGPUs = "all" // every GPU that the process sees
)

// DefaultSlots of the built-in model, where the memory suffices.
const DefaultSlots = 64

// Config sets the built-in model.
type Config struct {
	// Path of the model bundle's folder.
	Path string `yaml:"path" env:"PATH"`
	// Runtime is the folder of ONNX Runtime; "" means the folder of `make runtime`, then the system's library.
	Runtime string `yaml:"runtime" env:"RUNTIME"`
	// Device is "cuda" or "cpu".
	Device string `yaml:"device" env:"DEVICE"`
	// GPU is the number of the GPU.
	GPU int `yaml:"gpu" env:"GPU"`
	// GPUs are the numbers of several GPUs, as "0,1", or "all", in place of GPU; "" means GPU alone.
	GPUs string `yaml:"gpus" env:"GPUS"`
	// Weights are "auto" (int4 for few rooms and fp16 or bf16, as the bundle has it, for many where both fit), "int4", "fp16", "bf16" or,
	// on the CPU, "fp32".
	Weights string `yaml:"weights" env:"WEIGHTS"`
	// Memory is how much of the GPU's memory the model may use, such as "12GB" (12e9 bytes); "auto" means what is free.
	Memory string `yaml:"memory" env:"MEMORY"`
	// Slots is the number of answers generated in parallel: 1, 2, 4, ... 256; 0 means DefaultSlots, or as many
	// of them as fit the memory.
	Slots int `yaml:"slots" env:"SLOTS"`
	// MaxLen is the maximum tokens of a prompt and its answer together; 0 derives it from the pictures of a look and max_tokens, and
	// is less if the memory is small.
	MaxLen int `yaml:"max_len" env:"MAX_LEN"`
	// Queue is the maximum number of answers that wait for a slot.
	Queue int `yaml:"queue" env:"QUEUE"`
	// Temperature is the sampling temperature; 0 means greedy decoding.
	Temperature float64 `yaml:"temperature" env:"TEMPERATURE"`
	// TopK is the number of likeliest tokens to draw from; 0 means all.
	TopK int `yaml:"top_k" env:"TOP_K"`
	// TopP is the total probability of the tokens to draw from.
	TopP float64 `yaml:"top_p" env:"TOP_P"`
	// RepetitionPenalty divides the logits of tokens already in the answer; 1 is off.
	RepetitionPenalty float64 `yaml:"repetition_penalty" env:"REPETITION_PENALTY"`
	// Seed of the random numbers: with the same seed, the same prompts in the same order get the same answers.
	Seed int `yaml:"seed" env:"SEED"`
	// VisionCache is the number of embedded images to keep; 0 embeds each picture only when a prompt shows it.
	VisionCache int `yaml:"vision_cache" env:"VISION_CACHE"`
	// PrefixCache is the memory in bytes for the beginnings of prompts, which further prompts copy instead of computing them; 0 is off.
	PrefixCache int `yaml:"prefix_cache" env:"PREFIX_CACHE"`
	// SuppressTokens are ids that are never chosen (151667 opens a "think" section).
	SuppressTokens []int `yaml:"suppress_tokens" env:"SUPPRESS_TOKENS"`
}

// Settings of an Engine: those common to all engines, and its own.
type Settings struct {
	inference.Config

	MiniCPM Config
}

// DefaultSettings returns both at their defaults.
func DefaultSettings() Settings {
	return Settings{Config: inference.DefaultConfig(), MiniCPM: DefaultConfig()}
}

// Budget returns the bytes of Memory, 0 for what is free. ok is false if it is no size.
func (c Config) Budget() (bytes int64, ok bool) {
	if c.Memory == "auto" {
		return 0, true
	}
	number, found := strings.CutSuffix(c.Memory, "GB")
	gigabytes, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !found || err != nil || !check.Within(gigabytes, 1, 1000) {
		return 0, false
	}
	return int64(gigabytes * 1e9), true
}

// DefaultConfig returns the settings of the published model on one GPU.
func DefaultConfig() Config {
	return Config{
		Device: "cuda", Weights: "auto", Memory: "auto", Queue: 64,
		Temperature: 0.7, TopK: 100, TopP: 0.8, RepetitionPenalty: 1.02, VisionCache: 1024, PrefixCache: 500e6,
		SuppressTokens: []int{151667},
	}
}

// Validate returns all invalid settings, joined. Each message is "path: must be
// rule, is value" with the YAML path below "inference.minicpmo".
func (c Config) Validate() error {
	var s check.Settings
	oneOf := func(path, value, rule string, values ...string) {
		s.That(slices.Contains(values, value), path, rule, fmt.Sprintf("%q", value))
	}
	oneOf("device", c.Device, "cuda or cpu", "cuda", "cpu")
	s.That(c.GPU >= 0 && c.GPU <= maxGPU, "gpu", fmt.Sprintf("between 0 and %d", maxGPU), c.GPU)
	if c.GPUs != allGPUs {
		_, err := c.Cards()
		s.That(err == nil, "gpus", errGPUs.Error(), strconv.Quote(c.GPUs))
	}
	s.That(c.GPUs == "" || c.GPU == 0 && c.Device == "cuda", "gpus",
		fmt.Sprintf("empty with gpu %d and device %s: leave gpu at 0, and set device to cuda", c.GPU, c.Device), strconv.Quote(c.GPUs))
	if c.Device == "cpu" {
		oneOf("weights", c.Weights, "auto, int4 or fp32 when the device is cpu", "auto", "int4", "fp32")
		oneOf("memory", c.Memory, "auto when the device is cpu", "auto")
	} else {
		oneOf("weights", c.Weights, "auto, int4, fp16 or bf16", "auto", "int4", "fp16", "bf16")
		_, ok := c.Budget()
		s.That(ok, "memory", "auto, or a size between 1GB and 1000GB such as 12GB", fmt.Sprintf("%q", c.Memory))
	}
	s.That(c.Slots >= 0 && c.Slots <= 256 && c.Slots&(c.Slots-1) == 0, "slots",
		"0, 1, 2, 4, 8, 16, 32, 64, 128 or 256", c.Slots)
	s.That(c.MaxLen == 0 || c.MaxLen >= 128 && c.MaxLen <= 1<<17, "max_len",
		"0, or between 128 and 131072 tokens", c.MaxLen)
	s.That(c.Queue >= 1 && c.Queue <= 4096, "queue", "between 1 and 4096", c.Queue)
	s.That(c.Temperature == 0 || c.Temperature >= 0.01 && c.Temperature <= 10, "temperature",
		"0, or between 0.01 and 10", c.Temperature)
	s.That(c.TopK >= 0 && c.TopK <= 1<<20, "top_k", "between 0 and 1048576", c.TopK)
	s.That(c.TopP > 0 && c.TopP <= 1, "top_p", "above 0 and at most 1", c.TopP)
	s.That(c.RepetitionPenalty >= 0.1 && c.RepetitionPenalty <= 10, "repetition_penalty",
		"between 0.1 and 10", c.RepetitionPenalty)
	s.That(c.Seed >= 0, "seed", "0 or more", c.Seed)
	s.That(c.VisionCache >= 0 && c.VisionCache <= 1<<20, "vision_cache", "between 0 and 1048576", c.VisionCache)
	s.That(check.Within(c.PrefixCache, 0, 1e12), "prefix_cache", "between 0 and 1000000000000 bytes", c.PrefixCache)
	for _, id := range c.SuppressTokens {
		if id < 0 || id > 1<<20 {
			s.That(false, "suppress_tokens", "token ids between 0 and 1048576", id)
			break
		}
	}
	return s.Err()
}
