package modelcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// FormatFlags select the contents of a bundle.
type FormatFlags struct {
	Weights      []models.Weights `help:"Weights of the language model: int4, fp16, fp32. Default: by the task." enum:"int4,fp16,fp32"`
	Device       []models.Device  `help:"Devices of the graphs: cuda, cpu. Default: cuda for int4 and fp16, cpu for fp32." enum:"cuda,cpu"`
	VoiceWeights models.Weights   `help:"Weights of the model's own voice on CUDA: fp16, fp32." enum:"fp16,fp32" default:"fp16"`
	Head         int              `help:"Bits of an int4 model's vocabulary matrix." enum:"8,4" default:"8"`
	Clamp        bool             `help:"Limit weights that float16 cannot hold instead of failing."`
	Workers      int              `help:"Cores to use; 0 uses all."`
}

// Options returns the options of a conversion.
func (f FormatFlags) Options() convert.Options {
	return convert.Options{
		Weights: f.Weights, Devices: f.Device, VoiceWeights: f.VoiceWeights, Head: f.Head, Clamp: f.Clamp, Workers: f.Workers,
		Creator: creator(), Now: time.Now,
	}
}

// creator returns the name and version of this program.
func creator() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return "touchline " + info.Main.Version
	}
	return "touchline"
}

// ConvertCmd converts a checkpoint to a bundle.
type ConvertCmd struct {
	FormatFlags

	Source string `arg:"" type:"existingdir" help:"The checkpoint's folder: config.json, *.safetensors, the tokenizer's files."`
	Bundle string `arg:"" type:"path" help:"The folder to create."`
	Name   string `help:"Name of the model in the manifest. Default: the checkpoint's."`
}

// Run converts.
func (c *ConvertCmd) Run(ctx context.Context) error {
	src, err := checkpoint.Open(c.Source)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	o := c.Options()
	o.Name = c.Name
	return Convert(ctx, src, c.Bundle, o)
}

// Convert converts with a progress bar and prints a summary.
func Convert(ctx context.Context, src convert.Source, bundle string, o convert.Options) error {
	progress := NewBar()
	o.Note = progress.Note
	start := time.Now()
	var last convert.Progress
	o.Progress = func(p convert.Progress) {
		last = p
		progress.Step("", p.Done, p.Total, p.Rate, p.ETA)
	}
	err := convert.Convert(ctx, src, bundle, o)
	progress.End()
	if err != nil {
		return err
	}
	took := time.Since(start)
	b, err := models.OpenBundle(bundle)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s in %d files, from %s of weights in %v (%s/s)\n", filepath.Clean(bundle), Size(b.Manifest.Bytes()),
		len(b.Manifest.Files), Size(last.Source), took.Round(100*time.Millisecond), Size(int64(float64(last.Source)/took.Seconds())))
	return nil
}
