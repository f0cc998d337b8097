package main

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

	"touchline/cmd/internal/modelcmd"
	"touchline/inference/conformance/smoke"
	"touchline/inference/probe"
	"touchline/models"
	"touchline/models/convert"
	"touchline/models/disk"
	"touchline/models/sight"
)

// modelsCmd holds the commands under "models".
type modelsCmd struct {
	List    listCmd    `cmd:"" help:"List the bundles in a folder."`
	Convert convertCmd `cmd:"" help:"Convert a published checkpoint to a bundle."`
	Pull    pullCmd    `cmd:"" help:"Download a checkpoint and convert it to a bundle."`
	Upgrade upgradeCmd `cmd:"" help:"Add to an older bundle what this version needs, from its own files."`
	Verify  verifyCmd  `cmd:"" help:"Verify the checksums of a bundle and run each of its graphs once."`
	Voice   struct {
		Add    voiceAddCmd    `cmd:"" help:"Add a voice from a recording of speech."`
		List   voiceListCmd   `cmd:"" help:"List the voices of a bundle."`
		Remove voiceRemoveCmd `cmd:"" help:"Remove a voice."`
	} `cmd:"" help:"Add, list and remove the voices of a bundle."`

	Synth synthCmd `cmd:"" help:"Create a bundle with random weights, for benchmarks."`
	Check checkCmd `cmd:"" help:"Compare the engine with recorded inputs and outputs of the official code."`
}

// The commands that touchline has as well.
type (
	listCmd        struct{ modelcmd.List }
	convertCmd     struct{ modelcmd.Convert }
	pullCmd        struct{ modelcmd.Pull }
	upgradeCmd     struct{ modelcmd.Upgrade }
	verifyCmd      struct{ modelcmd.Verify }
	voiceAddCmd    struct{ modelcmd.VoiceAdd }
	voiceListCmd   struct{ modelcmd.VoiceList }
	voiceRemoveCmd struct{ modelcmd.VoiceRemove }
)

// Run prints a line per bundle.
func (c *listCmd) Run() error {
	found, err := disk.List(c.Folder)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%s: no bundle found: create one with `touchline models convert`", c.Folder)
	}
	return writeList(os.Stdout, found)
}

func writeList(w io.Writer, found []disk.Listed) error {
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

// Run adds the places of tables and tensors to the manifest.
func (c *upgradeCmd) Run() error {
	added, err := convert.Upgrade(c.Bundle)
	if err != nil {
		return err
	}
	if added == 0 {
		fmt.Printf("%s: nothing to add\n", c.Bundle)
		return nil
	}
	fmt.Printf("%s: %d entries added, format %d\n", c.Bundle, added, models.FormatVersion)
	return nil
}

// Run verifies the checksums and runs the graphs.
func (c *verifyCmd) Run(ctx context.Context) error {
	if b, err := sight.Open(c.Bundle); !errors.Is(err, sight.ErrNoBundle) {
		if err == nil {
			err = b.Verify(ctx)
		}
		if err == nil {
			fmt.Printf("%d files: all checksums match\n", len(b.Manifest.Files))
		}
		return err
	}
	b, err := models.OpenBundle(c.Bundle)
	if err != nil {
		return err
	}
	progress := newBar()
	start := time.Now()
	err = disk.Verify(ctx, b, func(done, total int64) { progress.Step("hashed", done, total, rate(done, start), 0) })
	progress.End()
	if err != nil {
		return err
	}
	fmt.Printf("%d files, %s: all checksums match\n", len(b.Manifest.Files), size(b.Manifest.Bytes()))
	if c.NoRun {
		return nil
	}
	devices := c.Device
	if len(devices) == 0 {
		if devices, err = probe.Devices(c.Library); err != nil {
			return err
		}
	}
	ran, err := smoke.Run(b, c.Library, devices...)
	if err != nil {
		return err
	}
	if ran == 0 {
		return fmt.Errorf("the bundle has no graph for %v: convert with --device", devices)
	}
	fmt.Printf("%d graphs ran once on %v: every output is finite\n", ran, devices)
	return nil
}
