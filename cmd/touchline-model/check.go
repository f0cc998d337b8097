package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"touchline/cmd/internal/modelcmd"
	"touchline/inference/conformance/check"
	"touchline/models"
)

// checkCmd compares the engine with the official code.
type checkCmd struct {
	modelcmd.RuntimeFlags

	Golden string        `required:"" type:"existingdir" help:"Folder of recorded inputs and outputs, with their checkpoint."`
	Device models.Device `enum:"cpu,cuda" default:"cpu" help:"The device: cpu computes in float32, cuda in float16, bfloat16 and int4."`
	Index  int           `help:"The GPU's index."`
}

// Run prints the table and returns an error if a row fails.
func (c *checkCmd) Run(ctx context.Context) error {
	report, err := check.Run(ctx, check.Options{
		Golden: c.Golden, Device: c.Device, DeviceIndex: c.Index, Library: c.Library,
		Progress: func(what string) { fmt.Fprintln(os.Stderr, what) },
	})
	if err := cmp.Or(err, report.Write(os.Stdout)); err != nil {
		return err
	}
	if err := report.Err(); errors.Is(err, check.ErrFailed) {
		return fmt.Errorf("%w: see the table above", check.ErrFailed)
	} else if err != nil {
		return err
	}
	fmt.Println("all rows pass")
	return nil
}
