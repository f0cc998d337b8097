package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"touchline/agent/bot"
	"touchline/cmd/internal/modelcmd"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/probe"
	"touchline/inference/qwen3asr"
	"touchline/inference/remote"
	"touchline/models"
	"touchline/models/sight"
)

// modelsCmd holds the commands about model servers and bundles.
type modelsCmd struct {
	Find findCmd `cmd:"" default:"withargs" help:"Find model servers on this machine and list their models (the default)."`

	modelcmd.Models

	Synth modelcmd.Passed `cmd:"" passthrough:"" help:"Create a bundle with random weights, for benchmarks (touchline-model)."`
	Check modelcmd.Passed `cmd:"" passthrough:"" help:"Compare the engine with recorded results of the official code (touchline-model)."`
}

// benchCmd benchmarks this machine.
type benchCmd = modelcmd.Passed

// findCmd finds model servers.
type findCmd struct {
	Addresses []string `arg:"" optional:"" help:"HOST:PORT or http://HOST:PORT/v1 to try; the usual local ports without it."`
}

// discoverTime bounds the search.
const discoverTime = 5 * time.Second

// Run lists the model servers it finds. It sends no picture anywhere.
func (m *findCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, discoverTime)
	defer cancel()
	found := remote.Discover(ctx, m.Addresses...)
	if len(found) == 0 {
		where := strings.Join(m.Addresses, ", ")
		if where == "" {
			where = strings.Join(remote.LocalAddresses(), ", ")
		}
		return fmt.Errorf("no OpenAI-compatible model server at %s: start one, or name its address", where)
	}
	for _, f := range found {
		fmt.Printf("%s  %s\n", f.URL, f.Kind)
		for _, name := range f.Models {
			fmt.Printf("    TOUCHLINE_INFERENCE_ENGINE=remote TOUCHLINE_INFERENCE_REMOTE_URL=%s TOUCHLINE_INFERENCE_REMOTE_MODEL=%s\n", f.URL, name)
		}
	}
	return nil
}

// modelFlags choose the built-in model instead of the engine in the settings.
type modelFlags struct {
	Model       string `help:"Folder of a model bundle; overrides the engine of the settings." placeholder:"DIR" type:"path"`
	ModelDevice string `help:"Device of the model: cuda or cpu; overrides the settings." placeholder:"DEVICE" enum:",cuda,cpu" default:""`

	ortFlag
}

// ortFlag is the flag of commands that run models.
type ortFlag struct {
	ORT string `name:"ort" help:"ONNX Runtime, file or folder; overrides the settings." env:"TOUCHLINE_ORT" type:"path"`
}

// override sets the runtime of every model.
func (f ortFlag) override(cfg *configs.Config) {
	cfg.Inference.MiniCPM.Runtime = cmp.Or(f.ORT, cfg.Inference.MiniCPM.Runtime)
}

// apply overrides the settings.
func (f modelFlags) apply(cfg *configs.Config) error {
	m := &cfg.Inference.MiniCPM
	if f.Model != "" {
		cfg.Inference.Engine, m.Path = "minicpmo", f.Model
	}
	m.Device = cmp.Or(f.ModelDevice, m.Device)
	f.override(cfg)
	if cfg.Inference.Engine == inference.EngineAuto {
		cfg.Inference.Auto = autoEngine(cfg.Inference)
	}
	return invalid(cfg.Validate())
}

// autoEngine returns the engine that "auto" stands for on this machine: sight where its networks and ONNX Runtime are, else scene.
func autoEngine(c configs.Inference) bot.Auto {
	_, err := sight.Locate(c.Sight.Bundle)
	if errors.Is(err, sight.ErrNoBundle) {
		return bot.Auto{Why: "its networks are not installed; `touchline models pull sight` fetches them"}
	}
	if err == nil {
		_, err = probe.Devices(c.MiniCPM.Runtime)
	}
	if err != nil {
		return bot.Auto{Why: err.Error()}
	}
	return bot.Auto{Engine: inference.EngineSight}
}

// part is a requirement of the built-in model, or an optional part of it: ok describes it, err says why it is not met.
type part struct {
	what, ok string
	err      error
	without  string // the effect of the absence of an optional part
}

// modelParts checks the requirements of the built-in model.
func modelParts(o minicpmo.Options) []part {
	cfg := o.Config.MiniCPM
	bundle, err := models.OpenBundle(cfg.Path)
	bundlePart := part{what: "model bundle"}
	if err != nil {
		bundlePart.err = fmt.Errorf("%w; `touchline models pull openbmb/MiniCPM-o-4_5 %s` gets the model, "+
			"`touchline models convert` makes a bundle of a checkpoint", err, cfg.Path)
	} else {
		bundlePart.ok = fmt.Sprintf("%s at %s", bundle.Manifest.Name, bundle.Dir)
		bundlePart.err = decoderFor(bundle, models.Device(cfg.Device))
		if bundle.Manifest.Dims.Vision == nil {
			bundlePart.err = fmt.Errorf("model bundle %s has no vision tower: convert a checkpoint that has one", bundle.Dir)
		}
	}
	cards, err := cfg.Cards()
	if err != nil {
		cards = []int{0} // the parts of the runtime have the error
	}
	parts := append([]part{bundlePart}, runtimeParts(cfg.Runtime, cfg.Device, cards...)...)
	if cfg.Device != string(models.DeviceCUDA) || slices.ContainsFunc(parts, func(p part) bool { return p.err != nil }) {
		return parts
	}
	for _, n := range cards {
		own := part{what: fmt.Sprintf("own kernels on GPU %d", n), without: "ONNX Runtime runs all decode steps"}
		own.ok, own.err = minicpmo.CheckOwn(bundle, o, n)
		parts = append(parts, own)
	}
	return parts
}

// recognizerParts checks the bundles of a recognizer; kind precedes its name.
func recognizerParts(cfg inference.RecognizerConfig, kind string) []part {
	p := part{what: kind + "recognizer bundle"}
	bundle, err := models.OpenBundle(cfg.Bundle)
	if err == nil {
		p.ok = fmt.Sprintf("%s at %s", bundle.Manifest.Name, bundle.Dir)
		_, err = qwen3asr.Describe(bundle, qwen3asr.Options{Device: cfg.Device, Step: cfg.Step})
	}
	if err == nil {
		err = decoderFor(bundle, models.Device(cfg.Device))
	}
	if p.err = err; err != nil || cfg.Aligner == "" {
		return []part{p}
	}
	_, err = qwen3asr.Describe(bundle, qwen3asr.Options{Device: cfg.Device, Step: cfg.Step, Aligner: cfg.Aligner})
	return []part{p, {what: "aligner bundle", ok: cfg.Aligner, err: err}}
}

// runtimeParts checks ONNX Runtime, and the GPUs if the device is one.
func runtimeParts(library, device string, cards ...int) []part {
	devices, err := probe.Devices(library)
	out := []part{{what: "ONNX Runtime", ok: "runs here", err: err}}
	if err != nil || device != string(models.DeviceCUDA) {
		return out
	}
	if !slices.Contains(devices, models.DeviceCUDA) {
		return append(out, part{what: "GPU", err: errors.New("this machine or its ONNX Runtime has no CUDA: `make runtime-cuda` gets the " +
			"runtime, an NVIDIA driver must be there; small models run with --model-device cpu")})
	}
	names, err := probe.GPUs(library)
	for _, n := range cards {
		gpu := part{what: fmt.Sprintf("GPU %d", n), err: err}
		if n < len(names) {
			gpu.ok = names[n]
		} else if err == nil {
			gpu.err = fmt.Errorf("the process sees %d GPUs, whose numbers begin at 0: change the setting or CUDA_VISIBLE_DEVICES", len(names))
		}
		out = append(out, gpu)
	}
	return out
}

// decoderFor returns an error if a bundle cannot run on a device.
func decoderFor(b *models.Bundle, device models.Device) error {
	for _, g := range b.Manifest.Graphs {
		if g.Kind == models.KindDecoder && g.Device == device && !g.Check {
			return nil
		}
	}
	return fmt.Errorf("model bundle %s has no graphs for %s: convert the checkpoint again with `touchline models convert --device %s`",
		b.Dir, device, device)
}
