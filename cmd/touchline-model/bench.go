package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/cmd/internal/bench"
	"touchline/cmd/internal/modelcmd"
	"touchline/inference/minicpmo"
	"touchline/models"
)

// benchCmd holds the commands under "bench".
type benchCmd struct {
	Model benchModelCmd `cmd:"" help:"Benchmark a model on this machine, with one room and with many."`
}

// benchModelCmd benchmarks a bundle.
type benchModelCmd struct {
	modelcmd.RuntimeFlags

	Bundle   string        `arg:"" type:"existingdir" help:"The bundle, with int4 and fp16 weights."`
	Head4    string        `type:"existingdir" help:"A bundle with an int4 vocabulary matrix, for an additional row."`
	Aligner  string        `type:"existingdir" help:"The aligner's bundle, for a row of a bundle of speech recognition."`
	Interim  string        `type:"existingdir" help:"A faster bundle of speech recognition: also measure interim texts by it."`
	Ears     string        `type:"existingdir" help:"A bundle of speech recognition: measure --rooms alone and beside 64 who speak."`
	Device   string        `enum:"cuda,cpu" default:"cuda" help:"The device to run on."`
	GPUs     []int         `name:"gpus" default:"0" help:"Numbers of the GPUs. Several measure the table of many rooms only, on all."`
	Runs     int           `default:"30" help:"Runs per row."`
	Prompt   int           `default:"414" help:"Tokens of a prompt."`
	Answer   int           `default:"40" help:"Tokens of an answer."`
	Rooms    []int         `default:"1,16,64,128,192" help:"Rows of the table of many rooms; 0 omits the table."`
	Duration time.Duration `default:"60s" help:"Duration of each row of that table."`
	Interval time.Duration `default:"5s" help:"Mean time between two cycles of a room."`
	Compare  string        `type:"existingfile" help:"Results of bench/hf_eager.py, for a column of comparison."`
	Memory   string        `help:"Measure one room within that much of the GPU's memory, such as 12GB, while another process holds the rest."`
	Stock    bool          `help:"Let ONNX Runtime run all decode steps, without own kernels."`
	Out      string        `type:"path" help:"File to write the tables to as well."`
	Part     string        `hidden:"" help:"Measure one part and write the results to --out as JSON."`
}

// result holds what one part measured.
type result struct {
	Figures       []bench.Figure
	Device        string
	Detail        string // of the engine
	Planned, Used int64  // bytes
	Switch        int    // number of rooms from which the second weight set decodes
	Many          string // the table of many rooms
	Error         string
}

func (r *result) add(more result) {
	r.Figures = append(r.Figures, more.Figures...)
	r.Device, r.Detail, r.Many = cmp.Or(more.Device, r.Device), cmp.Or(more.Detail, r.Detail), r.Many+more.Many
	r.Planned, r.Used, r.Switch = max(r.Planned, more.Planned), max(r.Used, more.Used), max(r.Switch, more.Switch)
}

// started is about the start of the process.
var started = time.Now()

// modelBench is one run of a part. Its methods end the part at an error.
type modelBench struct {
	*bench.Run
	*benchModelCmd

	found result
}

// part is one scenario: some figures of a bundle.
type part struct {
	name    string
	measure func(b *modelBench)
}

// parts are the parts of a bundle with commentary. Each runs in its own process, because memory that a process has
// used and freed slows its next model by 4 % (measured on an H200: decode step
// of the second engine against the first).
func (c *benchModelCmd) parts() []part {
	if len(c.GPUs) > 1 {
		return []part{{"rooms", (*modelBench).cards}}
	}
	parts := []part{{"stages", (*modelBench).stages}}
	if c.Head4 != "" {
		parts = append(parts, part{"head4", func(b *modelBench) { b.decode(b.open(b.Head4, b.config("int4")), b.Head4, "int4") }})
	}
	if c.Device == "cuda" {
		parts = append(parts, part{"fp16", func(b *modelBench) {
			w := b.half()
			b.decode(b.open(b.Bundle, b.config(w)), b.Bundle, w)
		}})
	}
	return append(parts, part{"ready", (*modelBench).ready}, part{"rooms", (*modelBench).rooms}, part{"speech", (*modelBench).speech})
}

// Run measures and prints the tables.
func (c *benchModelCmd) Run(ctx context.Context) error {
	if c.Part != "" {
		return c.writePart(ctx)
	}
	out := io.Writer(os.Stdout)
	if c.Out != "" {
		f, err := os.Create(c.Out)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		out = io.MultiWriter(out, f)
	}
	var compare map[string]any
	if c.Compare != "" {
		raw, err := os.ReadFile(c.Compare)
		if err == nil {
			err = json.Unmarshal(raw, &compare)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", c.Compare, err)
		}
	}
	bundle, err := models.OpenBundle(c.Bundle)
	if err != nil {
		return err
	}
	var found result
	switch {
	case bundle.Manifest.Task == models.TaskRecognition:
		fmt.Fprintln(os.Stderr, "bench: speech recognition:", bundle.Manifest.Name)
		found, err = c.measure(ctx, func(b *modelBench) { b.ears(bundle) })
	case c.Memory != "":
		found, err = c.measure(ctx, (*modelBench).budget)
	case c.Ears != "":
		found, err = c.measure(ctx, (*modelBench).beside)
	default:
		found, err = c.all(ctx)
	}
	if err == nil {
		c.write(out, found, compare)
	}
	return err
}

// measure measures a part in this process.
func (c *benchModelCmd) measure(ctx context.Context, work func(b *modelBench)) (result, error) {
	b := &modelBench{benchModelCmd: c}
	figures, err := bench.Measure(ctx, func(r *bench.Run) {
		b.Run = r
		work(b)
	})
	b.found.Figures = figures
	return b.found, err
}

// writePart measures one part and writes its results, or its error, as JSON.
func (c *benchModelCmd) writePart(ctx context.Context) error {
	parts := c.parts()
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == c.Part })
	if i < 0 {
		return fmt.Errorf("part %q is unknown", c.Part)
	}
	found, err := c.measure(ctx, parts[i].measure)
	if err != nil {
		found.Error = err.Error()
	}
	raw, werr := json.Marshal(found)
	switch {
	case werr != nil:
	case c.Out == "":
		_, werr = os.Stdout.Write(append(raw, '\n'))
	default:
		werr = os.WriteFile(c.Out, raw, 0o600)
	}
	return errors.Join(err, werr)
}

// all measures all parts.
func (c *benchModelCmd) all(ctx context.Context) (all result, err error) {
	for _, p := range c.parts() {
		found, err := c.child(ctx, p.name)
		if err != nil {
			return all, fmt.Errorf("part %s: %w", p.name, err)
		}
		all.add(found)
	}
	return all, nil
}

// list writes the numbers of a flag.
func list(n []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ","), "[]") }

// child measures a part in its own process.
func (c *benchModelCmd) child(ctx context.Context, part string) (found result, err error) {
	self, err := os.Executable()
	if err != nil {
		return found, err
	}
	f, err := os.CreateTemp("", "touchline-bench-")
	if err != nil {
		return found, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := f.Close(); err != nil {
		return found, err
	}
	args := []string{
		"bench", "model", c.Bundle, "--device", c.Device, "--runs", strconv.Itoa(c.Runs), "--prompt", strconv.Itoa(c.Prompt),
		"--answer", strconv.Itoa(c.Answer), "--duration", c.Duration.String(), "--interval", c.Interval.String(),
		"--rooms", list(c.Rooms), "--gpus", list(c.GPUs), "--part", part, "--out", f.Name(),
	}
	if c.Head4 != "" {
		args = append(args, "--head-4", c.Head4)
	}
	if c.Library != "" {
		args = append(args, "--ort", c.Library)
	}
	if c.Stock {
		args = append(args, "--stock")
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	failed := cmd.Run()
	raw, err := os.ReadFile(f.Name())
	if err == nil {
		err = json.Unmarshal(raw, &found)
	}
	exit, ended := errors.AsType[*exec.ExitError](failed)
	switch {
	case ended && exit.ExitCode() == minicpmo.ExitDeviceLost:
		return found, minicpmo.ErrDeviceLost
	case found.Error != "":
		return found, errors.New(found.Error)
	case failed != nil: // It ended without a message.
		return found, failed
	}
	return found, err
}

// add adds the median of some runs. Its goal, an upper bound if less is better, applies to a GPU.
func (b *modelBench) add(what, unit, key string, values []float64, goal float64, less bool) {
	if b.Device == "cpu" {
		goal = 0
	}
	if b.Median(what, unit, key, values, goal, less); len(values) > 0 {
		f := b.Figures[len(b.Figures)-1]
		fmt.Fprintln(os.Stderr, f.Name+":", f.Text, f.Spread, f.Goal)
	}
}

// write prints the tables.
func (c *benchModelCmd) write(out io.Writer, found result, compare map[string]any) {
	fmt.Fprintf(out, "%s, %s, medians of %d runs\n\n", found.Device, found.Detail, c.Runs)
	cells := [][]string{{"what", "median", "5 % to 95 %", "goal", "met"}}
	for _, f := range found.Figures {
		met := ""
		if f.Goal != "" {
			met = map[bool]string{true: "yes", false: "no"}[f.Met]
		}
		cells = append(cells, []string{f.Name, f.Text, f.Spread, f.Goal, met})
	}
	if compare != nil {
		cells[0] = append(cells[0], fmt.Sprint(compare["engine"]))
		for i, f := range found.Figures {
			cells[i+1] = append(cells[i+1], compared(compare[f.Key]))
		}
	}
	bench.WriteMarkdown(out, cells)
	fmt.Fprintf(out, "\nmemory: planned %s", size(found.Planned))
	if c.Device == "cuda" && found.Planned > 0 && found.Used > 0 { // on the CPU other processes change the free memory
		fmt.Fprintf(out, ", used %s (%+.1f %%)", size(found.Used), 100*(float64(found.Used)/float64(found.Planned)-1))
	}
	if found.Switch > 0 {
		fmt.Fprintf(out, "; second weight set from %d rooms", found.Switch)
	}
	fmt.Fprintln(out)
	fmt.Fprint(out, found.Many)
}

// compared formats a compared result: a number, or the median of an object.
func compared(v any) string {
	switch x := v.(type) {
	case float64:
		return bench.Digits(x)
	case map[string]any:
		return compared(x["median"])
	}
	return ""
}
