package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"touchline/cmd/internal/modelcmd"
	"touchline/inference/conformance/synth"
	"touchline/models/nano"
)

// synthCmd creates a bundle or a checkpoint of random weights.
type synthCmd struct {
	modelcmd.FormatFlags

	Dest       string `arg:"" type:"path" help:"The folder to create."`
	Shape      string `default:"minicpm-o-4.5" help:"The model's sizes, such as minicpm-o-4.5, qwen3-asr-0.6b or tiny."`
	Speech     bool   `help:"Add the model's own voice."`
	AWQ        bool   `name:"awq" help:"Give the bundle int4 layers as of an AWQ checkpoint, in blocks of 128 with zero points."`
	Seed       uint64 `default:"1" help:"Seed of the weights."`
	Checkpoint bool   `help:"Write a checkpoint in its published form instead of a bundle."`
	ShardBytes int64  `default:"5000000000" help:"Maximum size of a checkpoint's weight files."`
}

// Run creates the bundle or checkpoint.
func (c *synthCmd) Run(ctx context.Context) error {
	shape, err := synth.Find(c.Shape)
	if err != nil {
		return err
	}
	if c.Speech && shape.Hearing != nil {
		return fmt.Errorf("--speech: %s has no voice", c.Shape)
	}
	if c.AWQ && shape.Hearing != nil {
		return fmt.Errorf("--awq: %s has no int4 layers", c.Shape)
	}
	if shape.AWQ = c.AWQ; c.AWQ && c.Checkpoint {
		return errors.New("--awq: only for a bundle; omit --checkpoint")
	}
	if shape.Hearing == nil {
		merges, err := nano.Merges()
		if err != nil {
			return err
		}
		shape = shape.WithMerges(merges)
	}
	if c.Speech {
		shape = shape.WithSpeech()
	}
	src, err := synth.New(shape, c.Seed)
	if err != nil {
		return err
	}
	if !c.Checkpoint {
		o := options(c.FormatFlags)
		o.Random = true
		return convertTo(ctx, src, c.Dest, o)
	}
	progress := newBar()
	start := time.Now()
	var done atomic.Int64
	err = src.Write(ctx, c.Dest, c.ShardBytes, func(n int) {
		sum := done.Add(int64(n))
		progress.Step("", sum, src.Bytes(), rate(sum, start), 0)
	})
	progress.End()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s of random weights\n", c.Dest, size(src.Bytes()))
	return nil
}
