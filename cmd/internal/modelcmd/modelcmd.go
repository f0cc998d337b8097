// Package modelcmd implements the commands on models: convert a checkpoint to a
// bundle, check it, benchmark it. Two programs share them: touchline, and
// touchline-model, which links neither LiveKit nor libavcodec.
package modelcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"touchline/inference/conformance/check"
	"touchline/models"
)

// Models holds the commands under "models".
type Models struct {
	List    ListCmd    `cmd:"" help:"List the bundles in a folder."`
	Convert ConvertCmd `cmd:"" help:"Convert a published checkpoint to a bundle."`
	Pull    PullCmd    `cmd:"" help:"Download a checkpoint and convert it to a bundle."`
	Synth   SynthCmd   `cmd:"" help:"Create a bundle with random weights, for benchmarks."`
	Verify  VerifyCmd  `cmd:"" help:"Verify the checksums of a bundle and run each of its graphs once."`
	Voice   VoiceCmd   `cmd:"" help:"Add, list and remove the voices of a bundle."`
	Check   CheckCmd   `cmd:"" help:"Compare the engine with recorded inputs and outputs of the official code."`
}

// runtimeFlags select the ONNX Runtime.
type runtimeFlags struct {
	Library string `name:"ort" env:"TOUCHLINE_ORT" type:"path" help:"ONNX Runtime, file or folder. Default: runtime/ beside the program."`
}

// newBar returns a progress bar on standard error.
func newBar() *bar {
	info, err := os.Stderr.Stat()
	return &bar{out: os.Stderr, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: time.Now}
}

// ListCmd lists bundles.
type ListCmd struct {
	Folder string `arg:"" optional:"" default:"." type:"existingdir" help:"The folder to search, two levels deep."`
}

// Run prints a line per bundle.
func (c *ListCmd) Run() error {
	found, err := models.List(c.Folder)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%s: no bundle found: create one with `touchline models convert`", c.Folder)
	}
	return writeList(os.Stdout, found)
}

func writeList(w io.Writer, found []models.Listed) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "folder\tmodel\ttask\tsize\tgraphs\tmissing\t")
	for _, f := range found {
		if f.Err != nil {
			fmt.Fprintf(t, "%s\tcannot be used: %v\t\t\t\t\t\n", f.Dir, f.Err)
			continue
		}
		var graphs []string
		for _, g := range f.Manifest.Graphs {
			if (g.Kind == models.KindDecoder || g.Kind == models.KindAligner) && !g.Check {
				graphs = append(graphs, fmt.Sprintf("%s on %s", g.Weights, g.Device))
			}
		}
		name := f.Manifest.Name
		if f.Manifest.Random {
			name += " (random weights)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", f.Dir, name, cmp.Or(f.Manifest.Task, "commentary"), size(f.Manifest.Bytes()),
			strings.Join(graphs, ", "), strings.Join(f.Manifest.Missing, ", "))
	}
	return t.Flush()
}

// VerifyCmd verifies a bundle.
type VerifyCmd struct {
	runtimeFlags

	Bundle string          `arg:"" type:"existingdir" help:"The bundle's folder."`
	Device []models.Device `help:"Devices whose graphs to run: cpu, cuda. Default: those that the ONNX Runtime supports." enum:"cpu,cuda"`
	NoRun  bool            `help:"Verify the checksums only."`
}

// Run verifies the checksums and runs the graphs.
func (c *VerifyCmd) Run(ctx context.Context) error {
	b, err := models.OpenBundle(c.Bundle)
	if err != nil {
		return err
	}
	progress := newBar()
	start := time.Now()
	err = b.Verify(ctx, func(done, total int64) { progress.step("hashed", done, total, rate(done, start), 0) })
	progress.end()
	if err != nil {
		return err
	}
	fmt.Printf("%d files, %s: all checksums match\n", len(b.Manifest.Files), size(b.Manifest.Bytes()))
	if c.NoRun {
		return nil
	}
	devices := c.Device
	if len(devices) == 0 {
		if devices, err = check.Devices(c.Library); err != nil {
			return err
		}
	}
	ran, err := check.Smoke(b, c.Library, devices...)
	if err != nil {
		return err
	}
	if ran == 0 {
		return fmt.Errorf("the bundle has no graph for %v: convert with --device", devices)
	}
	fmt.Printf("%d graphs ran once on %v: every output is finite\n", ran, devices)
	return nil
}

func rate(done int64, start time.Time) float64 {
	if seconds := time.Since(start).Seconds(); seconds > 0.5 {
		return float64(done) / seconds
	}
	return 0
}

// CheckCmd compares the engine with the official code.
type CheckCmd struct {
	runtimeFlags

	Golden string        `required:"" type:"existingdir" help:"Folder of recorded inputs and outputs, with their checkpoint."`
	Device models.Device `enum:"cpu,cuda" default:"cpu" help:"The device: cpu computes in float32, cuda in float16 and int4."`
	Index  int           `help:"The GPU's index."`
}

// Run prints the table and returns an error if a row fails.
func (c *CheckCmd) Run(ctx context.Context) error {
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
