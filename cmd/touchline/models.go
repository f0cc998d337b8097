package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"touchline/inference/minicpmo"

	"touchline/cmd/internal/modelcmd"
	"touchline/configs"
	"touchline/inference/minicpmo/check"
	"touchline/inference/remote"
	"touchline/models"
)

// modelsCmd are the commands about models: servers that have some, and bundles.
type modelsCmd struct {
	Find findCmd `cmd:"" default:"withargs" help:"Look for model servers on this machine and list what they have (the default)."`

	modelcmd.Models
}

// benchCmd are the commands that time this machine.
type benchCmd struct{ modelcmd.Bench }

// findCmd looks for model servers.
type findCmd struct {
	Addresses []string `arg:"" optional:"" help:"HOST:PORT or http://HOST:PORT/v1 to look at; the usual local ports without."`
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
		return fmt.Errorf("expected an OpenAI-compatible model server at one of %s, found none: start one, or give its address", where)
	}
	for _, f := range found {
		fmt.Printf("%s  %s\n", f.URL, f.Kind)
		for _, name := range f.Models {
			fmt.Printf("    TOUCHLINE_INFERENCE_ENGINE=remote TOUCHLINE_INFERENCE_REMOTE_URL=%s TOUCHLINE_INFERENCE_REMOTE_MODEL=%s\n", f.URL, name)
		}
	}
	return nil
}

// modelFlags choose the built-in model over the settings' engine.
type modelFlags struct {
	Model       string `help:"Folder of a model bundle to comment with, over the settings' engine." placeholder:"DIR" type:"path"`
	ModelDevice string `help:"Where it runs: cuda or cpu, over the settings' own." placeholder:"DEVICE" enum:",cuda,cpu" default:""`
	ORT         string `name:"ort" help:"ONNX Runtime for it, file or folder, over the settings' own." env:"TOUCHLINE_ORT" type:"path"`
}

// apply puts them over the settings.
func (f modelFlags) apply(cfg *configs.Config) error {
	m := &cfg.Inference.MiniCPM
	if f.Model != "" {
		cfg.Inference.Engine, m.Path = "minicpmo", f.Model
	}
	if f.ModelDevice != "" {
		m.Device = f.ModelDevice
	}
	if f.ORT != "" {
		m.Runtime = f.ORT
	}
	return cfg.Validate()
}

// part is something that the built-in model needs, and how it stands.
type part struct {
	what, ok string
	err      error
}

// modelParts looks for all that the built-in model needs.
func modelParts(cfg minicpmo.Config) []part {
	var out []part
	bundle, err := models.OpenBundle(cfg.Path)
	bundlePart := part{what: "model bundle"}
	if err != nil {
		bundlePart.err = fmt.Errorf("%w; `touchline models pull openbmb/MiniCPM-o-4_5 %s` gets the model, "+
			"`touchline models convert` makes a bundle of a checkpoint", err, cfg.Path)
	} else {
		bundlePart.ok = fmt.Sprintf("%s at %s", bundle.Manifest.Name, bundle.Dir)
		bundlePart.err = decoderFor(bundle, models.Device(cfg.Device))
	}
	out = append(out, bundlePart)

	devices, err := check.Devices(cfg.Runtime)
	out = append(out, part{what: "ONNX Runtime", ok: "runs here", err: err})
	if err == nil && cfg.Device == string(models.DeviceCUDA) {
		gpu := part{what: "GPU", ok: fmt.Sprintf("CUDA device %d", cfg.GPU)}
		if !slices.Contains(devices, models.DeviceCUDA) {
			gpu.err = errors.New("this machine or its ONNX Runtime has no CUDA: `make runtime-cuda` gets the runtime, an NVIDIA driver " +
				"must be there; small models run with --model-device cpu")
		}
		out = append(out, gpu)
	}
	return out
}

// decoderFor says whether a bundle has what it takes to run on a device.
func decoderFor(b *models.Bundle, device models.Device) error {
	m := &b.Manifest
	if m.Dims.Vision == nil {
		return fmt.Errorf("%s sees nothing: it was made of a checkpoint without a vision tower", b.Dir)
	}
	for _, g := range m.Graphs {
		if g.Kind == models.KindDecoder && g.Device == device && !g.Check {
			return nil
		}
	}
	return fmt.Errorf("%s has no graphs for %s: convert the checkpoint again with `touchline models convert --device %s`",
		b.Dir, device, device)
}
