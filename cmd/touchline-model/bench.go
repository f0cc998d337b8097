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
	"strconv"
	"strings"
	"time"

	"touchline/cmd/internal/modelcmd"
	"touchline/inference/minicpmo"
	"touchline/internal/quantile"
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
	Ears     string        `type:"existingdir" help:"A bundle of speech recognition: measure --rooms alone and beside 64 who speak."`
	Device   string        `enum:"cuda,cpu" default:"cuda" help:"The device to run on."`
	Runs     int           `default:"30" help:"Runs per row."`
	Prompt   int           `default:"414" help:"Tokens of a prompt."`
	Answer   int           `default:"40" help:"Tokens of an answer."`
	Rooms    []int         `default:"1,16,64,128,192" help:"Rows of the table of many rooms; 0 omits the table."`
	Duration time.Duration `default:"60s" help:"Duration of each row of that table."`
	Interval time.Duration `default:"5s" help:"Mean time between two cycles of a room."`
	Compare  string        `type:"existingfile" help:"Results of bench/hf_eager.py, for a column of comparison."`
	Out      string        `type:"path" help:"File to write the tables to as well."`
	Part     string        `hidden:"" help:"Measure one part and write the results to --out as JSON."`
}

// benchRow is a row of the first table.
type benchRow struct {
	What, Unit       string
	Median, P05, P95 float64
	Bound            string
	HasGoal, Met     bool
	Key              string // in the compared results
}

func (b benchRow) text() string {
	met := ""
	if b.HasGoal {
		met = map[bool]string{true: "yes", false: "no"}[b.Met]
	}
	spread := ""
	if b.P95 > 0 {
		spread = fmt.Sprintf("%s to %s", figure(b.P05), figure(b.P95))
	}
	return fmt.Sprintf("| %s | %s %s | %s | %s | %s |", b.What, figure(b.Median), b.Unit, spread, b.Bound, met)
}

func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// benchResult holds the results of one part.
type benchResult struct {
	Rows          []benchRow
	Device        string
	Detail        string // of the engine
	Planned, Used int64  // bytes
	Switch        int    // number of rooms from which the second weight set decodes
	Many          string // the table of many rooms
	Error         string
}

func (r *benchResult) add(more benchResult) {
	r.Rows = append(r.Rows, more.Rows...)
	r.Device, r.Detail, r.Many = cmp.Or(more.Device, r.Device), cmp.Or(more.Detail, r.Detail), r.Many+more.Many
	r.Planned, r.Used, r.Switch = max(r.Planned, more.Planned), max(r.Used, more.Used), max(r.Switch, more.Switch)
}

// bench is one run of the command.
type bench struct {
	*benchModelCmd

	out     io.Writer
	found   benchResult
	compare map[string]any
}

// The parts. Each runs in its own process, because memory that a process has
// used and freed slows its next model by 4 % (measured on an H200: decode step
// of the second engine against the first).
const (
	partStages = "stages"
	partHead4  = "head4"
	partFloat  = "fp16"
	partRooms  = "rooms"
	partSpeech = "speech"
)

// Run measures and prints the tables.
func (c *benchModelCmd) Run(ctx context.Context) error {
	b := &bench{benchModelCmd: c, out: os.Stdout}
	if c.Part != "" {
		err := b.part(ctx, c.Part)
		if err != nil {
			b.found.Error = err.Error()
		}
		raw, werr := json.Marshal(b.found)
		if werr == nil {
			werr = os.WriteFile(c.Out, raw, 0o600)
		}
		return errors.Join(err, werr)
	}
	if c.Out != "" {
		f, err := os.Create(c.Out)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		b.out = io.MultiWriter(os.Stdout, f)
	}
	if c.Compare != "" {
		raw, err := os.ReadFile(c.Compare)
		if err == nil {
			err = json.Unmarshal(raw, &b.compare)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", c.Compare, err)
		}
	}
	ears, err := c.recognizes()
	switch {
	case err != nil:
		return err
	case ears != nil:
		err = b.ears(ctx, ears)
	case b.Ears != "":
		err = b.beside(ctx)
	default:
		return b.run(ctx)
	}
	if err != nil {
		return err
	}
	b.write()
	return nil
}

// run measures all parts and writes the tables.
func (b *bench) run(ctx context.Context) error {
	parts := []string{partStages}
	if b.Head4 != "" {
		parts = append(parts, partHead4)
	}
	if b.Device == "cuda" {
		parts = append(parts, partFloat)
	}
	for _, part := range append(parts, partRooms, partSpeech) {
		found, err := b.child(ctx, part)
		if err != nil {
			return fmt.Errorf("part %s: %w", part, err)
		}
		b.found.add(found)
	}
	b.write()
	return nil
}

// child measures a part in its own process.
func (b *bench) child(ctx context.Context, part string) (found benchResult, err error) {
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
	rooms := make([]string, len(b.Rooms))
	for i, n := range b.Rooms {
		rooms[i] = strconv.Itoa(n)
	}
	args := []string{
		"bench", "model", b.Bundle, "--device", b.Device, "--runs", strconv.Itoa(b.Runs), "--prompt", strconv.Itoa(b.Prompt),
		"--answer", strconv.Itoa(b.Answer), "--rooms", strings.Join(rooms, ","), "--duration", b.Duration.String(),
		"--interval", b.Interval.String(), "--part", part, "--out", f.Name(),
	}
	if b.Head4 != "" {
		args = append(args, "--head-4", b.Head4)
	}
	if b.Library != "" {
		args = append(args, "--ort", b.Library)
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

// part measures one part.
func (b *bench) part(ctx context.Context, part string) error {
	switch part {
	case partStages:
		return b.stages(ctx)
	case partHead4:
		return b.decode(ctx, b.Head4, "int4")
	case partFloat:
		return b.decode(ctx, b.Bundle, "fp16")
	case partRooms:
		return b.rooms(ctx)
	case partSpeech:
		return b.speech(ctx)
	}
	return fmt.Errorf("part %q is unknown", part)
}

// add adds a row with a goal, which is an upper bound if low is set, else a lower
// bound.
func (b *bench) add(what, unit, key string, values []float64, goal float64, low bool) {
	if len(values) == 0 {
		return
	}
	if b.Device == "cpu" {
		goal = 0 // the goals apply to a GPU
	}
	r := benchRow{
		What: what, Unit: unit, Key: key, HasGoal: goal > 0,
		Median: quantile.Of(values, .5), P05: quantile.Of(values, .05), P95: quantile.Of(values, .95),
	}
	if goal > 0 {
		sign := "at least"
		if low {
			sign = "at most"
		}
		r.Bound = fmt.Sprintf("%s %s", sign, figure(goal))
		r.Met = low && r.Median <= goal || !low && r.Median >= goal
	}
	b.found.Rows = append(b.found.Rows, r)
	fmt.Fprintln(os.Stderr, r.text())
}

func (b *bench) write() {
	f := b.found
	fmt.Fprintf(b.out, "%s, %s, medians of %d runs\n\n", f.Device, f.Detail, b.Runs)
	header, line := "| what | median | 5 % to 95 % | goal | met |", "|---|---|---|---|---|"
	if b.compare != nil {
		header, line = header+fmt.Sprintf(" %v |", b.compare["engine"]), line+"---|"
	}
	fmt.Fprintf(b.out, "%s\n%s\n", header, line)
	for _, r := range f.Rows {
		text := r.text()
		if b.compare != nil {
			text += fmt.Sprintf(" %s |", compared(b.compare[r.Key]))
		}
		fmt.Fprintln(b.out, text)
	}
	fmt.Fprintf(b.out, "\nmemory: planned %s", modelcmd.Size(f.Planned))
	if b.Device == "cuda" && f.Planned > 0 && f.Used > 0 { // on the CPU other processes change the free memory
		fmt.Fprintf(b.out, ", used %s (%+.1f %%)", modelcmd.Size(f.Used), 100*(float64(f.Used)/float64(f.Planned)-1))
	}
	if f.Switch > 0 {
		fmt.Fprintf(b.out, "; second weight set from %d rooms", f.Switch)
	}
	fmt.Fprintln(b.out)
	fmt.Fprint(b.out, f.Many)
}

// compared formats a compared result: a number, or the median of an object.
func compared(v any) string {
	switch x := v.(type) {
	case float64:
		return figure(x)
	case map[string]any:
		return compared(x["median"])
	}
	return ""
}
