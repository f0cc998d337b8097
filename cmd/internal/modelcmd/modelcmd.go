// Package modelcmd implements the commands on models: download a checkpoint, convert it to a bundle, verify the bundle, manage
// its voices. Two programs share them: touchline, and touchline-model, which links neither LiveKit nor libavcodec.
package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"touchline/inference/probe"
	"touchline/models"
	"touchline/models/convert"
)

// Models holds the commands under "models".
type Models struct {
	List    ListCmd    `cmd:"" help:"List the bundles in a folder."`
	Convert ConvertCmd `cmd:"" help:"Convert a published checkpoint to a bundle."`
	Pull    PullCmd    `cmd:"" help:"Download a checkpoint and convert it to a bundle."`
	Upgrade UpgradeCmd `cmd:"" help:"Add to an older bundle what this version needs, from its own files."`
	Verify  VerifyCmd  `cmd:"" help:"Verify the checksums of a bundle and run each of its graphs once."`
	Voice   VoiceCmd   `cmd:"" help:"Add, list and remove the voices of a bundle."`
}

// RuntimeFlags select the ONNX Runtime.
type RuntimeFlags struct {
	Library string `name:"ort" env:"TOUCHLINE_ORT" type:"path" help:"ONNX Runtime, file or folder. Default: runtime/ beside the program."`
}

// NewBar returns a progress bar on standard error.
func NewBar() *Bar {
	info, err := os.Stderr.Stat()
	return &Bar{out: os.Stderr, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: time.Now}
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", f.Dir, name, cmp.Or(f.Manifest.Task, "commentary"), Size(f.Manifest.Bytes()),
			strings.Join(graphs, ", "), strings.Join(f.Manifest.Missing, ", "))
	}
	return t.Flush()
}

// UpgradeCmd upgrades a bundle.
type UpgradeCmd struct {
	Bundle string `arg:"" type:"existingdir" help:"The bundle's folder."`
}

// Run adds the places of the tables to the manifest.
func (c *UpgradeCmd) Run() error {
	added, err := convert.Upgrade(c.Bundle)
	if err != nil {
		return err
	}
	if added == 0 {
		fmt.Printf("%s: nothing to add\n", c.Bundle)
		return nil
	}
	fmt.Printf("%s: %d tables added, format %d\n", c.Bundle, added, models.FormatVersion)
	return nil
}

// VerifyCmd verifies a bundle.
type VerifyCmd struct {
	RuntimeFlags

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
	progress := NewBar()
	start := time.Now()
	err = b.Verify(ctx, func(done, total int64) { progress.Step("hashed", done, total, Rate(done, start), 0) })
	progress.End()
	if err != nil {
		return err
	}
	fmt.Printf("%d files, %s: all checksums match\n", len(b.Manifest.Files), Size(b.Manifest.Bytes()))
	if c.NoRun {
		return nil
	}
	devices := c.Device
	if len(devices) == 0 {
		if devices, err = probe.Devices(c.Library); err != nil {
			return err
		}
	}
	ran, err := probe.Smoke(b, c.Library, devices...)
	if err != nil {
		return err
	}
	if ran == 0 {
		return fmt.Errorf("the bundle has no graph for %v: convert with --device", devices)
	}
	fmt.Printf("%d graphs ran once on %v: every output is finite\n", ran, devices)
	return nil
}

// Rate returns bytes per second since start; 0 in the first half second.
func Rate(done int64, start time.Time) float64 {
	if seconds := time.Since(start).Seconds(); seconds > 0.5 {
		return float64(done) / seconds
	}
	return 0
}
