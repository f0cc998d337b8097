package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"touchline/cmd/internal/modelcmd"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// options returns the options of a conversion.
func options(f modelcmd.FormatFlags) convert.Options {
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

// Run converts.
func (c *convertCmd) Run(ctx context.Context) error {
	src, err := checkpoint.Open(c.Source)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	o := options(c.FormatFlags)
	o.Name = c.Name
	return convertTo(ctx, src, c.Bundle, o)
}

// convertTo converts with a progress bar and prints a summary.
func convertTo(ctx context.Context, src convert.Source, bundle string, o convert.Options) error {
	progress := newBar()
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
	fmt.Printf("%s: %s in %d files, from %s of weights in %v (%s/s)\n", filepath.Clean(bundle), size(b.Manifest.Bytes()),
		len(b.Manifest.Files), size(last.Source), took.Round(100*time.Millisecond), size(int64(float64(last.Source)/took.Seconds())))
	return nil
}
