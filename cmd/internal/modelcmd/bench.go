package modelcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"touchline/internal/quantile"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// Bench are the commands under "bench".
type Bench struct {
	Model BenchModelCmd `cmd:"" help:"Time a model on this machine, alone and with many rooms."`
}

// BenchModelCmd times a bundle.
type BenchModelCmd struct {
	runtimeFlags

	Bundle   string        `arg:"" type:"existingdir" help:"The bundle, with int4 and fp16 weights."`
	Head4    string        `type:"existingdir" help:"A bundle with an int4 vocabulary matrix, for the row about it."`
	Device   string        `enum:"cuda,cpu" default:"cuda" help:"Where to run."`
	Runs     int           `default:"30" help:"Runs per row."`
	Prompt   int           `default:"414" help:"Tokens of a prompt."`
	Answer   int           `default:"40" help:"Tokens of an answer."`
	Rooms    []int         `default:"1,16,64,128,192" help:"Rows of the table of many rooms; 0 leaves it out."`
	Duration time.Duration `default:"60s" help:"How long cycles arrive in a row of that table."`
	Interval time.Duration `default:"5s" help:"Between two cycles of a room, on average."`
	Compare  string        `type:"existingfile" help:"Figures of bench/hf_eager.py, for a column beside ours."`
	Out      string        `type:"path" help:"Also write the tables there."`
	Part     string        `hidden:"" help:"Measure one part and write what came out, as JSON, to --out."`
}

// benchRow is a line of the first table.
type benchRow struct {
	What, Unit       string
	Median, P05, P95 float64
	Bound            string
	HasGoal, Met     bool
	Key              string // of the comparison
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

// benchResult is what one part found.
type benchResult struct {
	Rows          []benchRow
	Device        string
	Detail        string // of the engine
	Planned, Used int64  // bytes
	Switch        int    // rooms from which the second weight set decodes
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
	*BenchModelCmd

	out     io.Writer
	found   benchResult
	compare map[string]any
}

// The parts, each in a process of its own: what a process has loaded and freed
// before makes its next model 4 % slower (measured on an H200, decode step of
// the second engine against the first).
const (
	partStages = "stages"
	partHead4  = "head4"
	partFloat  = "fp16"
	partRooms  = "rooms"
)

// Run prints the tables.
func (c *BenchModelCmd) Run(ctx context.Context) error {
	b := &bench{BenchModelCmd: c, out: os.Stdout}
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
	return b.run(ctx)
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
	for _, part := range append(parts, partRooms) {
		found, err := b.child(ctx, part)
		if err != nil {
			return fmt.Errorf("part %s: %w", part, err)
		}
		b.found.add(found)
	}
	b.write()
	return nil
}

// child measures a part in a process of its own.
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
	case failed != nil: // It had no time to say why.
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
	}
	return fmt.Errorf("expected a part of the bench, is %q", part)
}

// rooms measures one room's cycles, and many rooms.
func (b *bench) rooms(ctx context.Context) error {
	e, err := b.open(ctx, b.Bundle, "auto")
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	b.found.Detail, b.found.Switch = e.Status().Detail, e.Stats().Switch
	if err := b.greedy(ctx, e); err != nil {
		return err
	}
	if err := b.decodeOn(ctx, e, b.Bundle, "auto"); err != nil {
		return err
	}
	if err := b.cycle(ctx, e); err != nil {
		return err
	}
	if err := b.host(ctx, e); err != nil {
		return err
	}
	return b.many(ctx, e)
}

func (b *bench) config(weights string) minicpmo.Settings {
	c := minicpmo.DefaultSettings()
	c.MaxSlices, c.MaxTokens = 1, b.Answer
	c.MiniCPM.Device, c.MiniCPM.Weights, c.MiniCPM.Runtime = b.Device, weights, b.Library
	c.MiniCPM.SuppressTokens = nil
	c.MiniCPM.Queue = 4096 // An open load counts what waits; it drops nothing.
	return c
}

func (b *bench) open(ctx context.Context, bundle, weights string) (*minicpmo.Engine, error) {
	m, err := models.OpenBundle(bundle)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	e, err := minicpmo.Open(ctx, m, minicpmo.Options{
		Config: b.config(weights), Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel), Workers: max(1, runtime.GOMAXPROCS(0)-2),
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%s: loaded and warm in %v\n", e.Status().Detail, time.Since(begin).Round(100*time.Millisecond))
	return e, nil
}

// add keeps a row whose value must not exceed (low) or fall below its goal.
func (b *bench) add(what, unit, key string, values []float64, goal float64, low bool) {
	slices.Sort(values)
	if len(values) == 0 {
		return
	}
	if b.Device == "cpu" {
		goal = 0 // the goals are those of a GPU
	}
	at := func(q float64) float64 { return values[min(len(values)-1, int(q*float64(len(values))))] }
	r := benchRow{What: what, Unit: unit, Key: key, Median: at(.5), P05: at(.05), P95: at(.95), HasGoal: goal > 0}
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

func milliseconds(runs []time.Duration) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = float64(r) / float64(time.Millisecond)
	}
	return out
}

// stages times the runs of the device.
func (b *bench) stages(ctx context.Context) error {
	m, err := models.OpenBundle(b.Bundle)
	if err != nil {
		return err
	}
	s, err := minicpmo.TimeStages(ctx, m, minicpmo.Options{Config: b.config("auto")}, minicpmo.StageOptions{
		Runs: b.Runs, Prompt: b.Prompt, Images: []int{1, 2, 4}, Rooms: []int{1, 2, 4, 8, 16, 32, 64},
	})
	if err != nil {
		return err
	}
	for _, n := range []int{1, 2, 4} {
		b.add(fmt.Sprintf("vision of %d, 16:9", n), "ms", fmt.Sprintf("vision_%d_ms", n), milliseconds(s.Vision[n]),
			map[int]float64{1: 4.7, 4: 10}[n], true)
	}
	for _, w := range []models.Weights{models.WeightsInt4, models.WeightsFloat16, models.WeightsFloat32} {
		b.add(fmt.Sprintf("prefill of %d tokens, %s", b.Prompt, w), "ms", map[models.Weights]string{models.WeightsFloat16: "prefill_ms"}[w],
			milliseconds(s.Prefill[w]), map[models.Weights]float64{models.WeightsInt4: 18, models.WeightsFloat16: 13.5}[w], true)
		for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
			b.add(fmt.Sprintf("decode step of %d, %s", n, w), "ms", "", milliseconds(s.Decode[w][n]), 0, true)
		}
	}
	b.found.Device, b.found.Planned, b.found.Used = s.Device, s.Planned, s.Used
	return nil
}

// text is a prompt of the wanted number of tokens around some pictures.
func (b *bench) text(e *minicpmo.Engine, frames []inference.Frame) (tokenizer.Prompt, error) {
	var parts []tokenizer.Part
	for _, f := range frames {
		g, err := e.Grid(f.Width, f.Height, 1)
		if err != nil {
			return tokenizer.Prompt{}, err
		}
		parts = append(parts, tokenizer.Part{Image: &g})
	}
	words := strings.Repeat("Say in one sentence what is going on. ", b.Prompt/4)
	low, high := 0, len(words)
	var p tokenizer.Prompt
	for low < high { // The longest text that fits.
		n := (low + high + 1) / 2
		var err error
		p, err = e.Builder().Chat([]tokenizer.Message{{
			Role: tokenizer.User, Parts: append(slices.Clone(parts), tokenizer.Part{Text: words[:n]}),
		}}, tokenizer.Options{})
		if err != nil {
			return p, err
		}
		if len(p.IDs) <= b.Prompt {
			low = n
		} else {
			high = n - 1
		}
	}
	return e.Builder().Chat([]tokenizer.Message{{
		Role: tokenizer.User, Parts: append(parts, tokenizer.Part{Text: words[:low]}),
	}}, tokenizer.Options{})
}

// ask runs a request to its end; first is called with the first token.
func ask(ctx context.Context, e *minicpmo.Engine, r minicpmo.Request, first func()) (ids []int32, err error) {
	for t, err := range e.Answer(ctx, r) {
		if err != nil {
			return ids, err
		}
		if t.ID >= 0 {
			if len(ids) == 0 && first != nil {
				first()
			}
			ids = append(ids, t.ID)
		}
	}
	return ids, nil
}

// request is an answer of the full length: nothing ends it.
func request(e *minicpmo.Engine, p tokenizer.Prompt, tokens int, seed uint64) minicpmo.Request {
	r := minicpmo.Request{Prompt: p, Slices: 1, Rules: e.ChatRules(), MaxTokens: tokens, Seed: seed}
	r.Rules.Stop = nil
	return r
}

// errConstant is returned when random weights say the same thing all the time.
var errConstant = errors.New("expected greedy text that changes, got one token again and again: the weights give no sensible load")

func (b *bench) greedy(ctx context.Context, e *minicpmo.Engine) error {
	p, err := b.text(e, nil)
	if err != nil {
		return err
	}
	r := request(e, p, b.Answer, 1)
	r.Rules.Greedy, r.Rules.RepetitionPenalty = true, 1
	ids, err := ask(ctx, e, r, nil)
	if err != nil {
		return fmt.Errorf("greedy answer: %w", err)
	}
	distinct := len(slices.Compact(slices.Sorted(slices.Values(ids))))
	fmt.Fprintf(os.Stderr, "greedy answer: %d tokens, %d different: %.60q\n", len(ids), distinct, e.Tokenizer().Decode(ids))
	if len(ids) != b.Answer || distinct < 3 {
		return errConstant
	}
	return nil
}

func (b *bench) decode(ctx context.Context, bundle, weights string) error {
	e, err := b.open(ctx, bundle, weights)
	if err != nil {
		return err
	}
	err = b.decodeOn(ctx, e, bundle, weights)
	return errors.Join(err, e.Close())
}

// alone says by which weights a single room is decoded, and the goal for them.
func (b *bench) alone(bundle, weights string) (what string, goal float64, err error) {
	m, err := models.OpenBundle(bundle)
	if err != nil {
		return "", 0, err
	}
	// What auto takes for few rooms.
	order := []models.Weights{models.WeightsInt4, models.WeightsFloat16}
	if b.Device == "cpu" {
		order = []models.Weights{models.WeightsFloat32, models.WeightsInt4}
	}
	for _, w := range order {
		g, ok := m.Find(models.KindDecoder, w, models.Device(b.Device))
		if !ok || weights != "auto" && weights != string(w) {
			continue
		}
		what = fmt.Sprintf("decode of one room, %s", w)
		if w == models.WeightsInt4 {
			return fmt.Sprintf("%s, head int%d", what, g.Head), map[int]float64{8: 245, 4: 260}[g.Head], nil
		}
		return what, map[models.Weights]float64{models.WeightsFloat16: 180}[w], nil
	}
	return "decode of one room", 0, nil
}

// decodeOn times the tokens of one room after the first.
func (b *bench) decodeOn(ctx context.Context, e *minicpmo.Engine, bundle, weights string) error {
	what, goal, err := b.alone(bundle, weights)
	if err != nil {
		return err
	}
	p, err := b.text(e, nil)
	if err != nil {
		return err
	}
	var rates []float64
	for i := range b.Runs + 2 {
		var first time.Time
		ids, err := ask(ctx, e, request(e, p, b.Answer, uint64(i)), func() { first = time.Now() }) //nolint:gosec // not negative
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if i >= 2 {
			rates = append(rates, float64(len(ids)-1)/time.Since(first).Seconds())
		}
	}
	b.add(what, "tok/s", map[bool]string{true: "decode_tok_s"}[strings.Contains(what, "fp16")], rates, goal, false)
	return nil
}

// cycle times whole cycles of one room, whose newest frame has just arrived.
func (b *bench) cycle(ctx context.Context, e *minicpmo.Engine) error {
	const frames = 4
	f := newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng))
	var firsts, wholes []float64
	var p tokenizer.Prompt
	for i := range b.Runs + 2 {
		seen := f.look(frames, 1)
		if i == 0 {
			var err error
			if p, err = b.text(e, seen); err != nil {
				return err
			}
		}
		r := request(e, p, b.Answer, uint64(i)) //nolint:gosec // not negative
		r.Frames, r.Source = seen, 1<<40
		begin := time.Now()
		var first time.Duration
		if _, err := ask(ctx, e, r, func() { first = time.Since(begin) }); err != nil {
			return fmt.Errorf("cycle: %w", err)
		}
		whole := time.Since(begin)
		if i >= 2 {
			firsts = append(firsts, milliseconds([]time.Duration{first})...)
			wholes = append(wholes, milliseconds([]time.Duration{whole})...)
		}
	}
	what := fmt.Sprintf("%d frames (1 new), %d in", frames, len(p.IDs))
	b.add("time to first token, "+what, "ms", "first_token_ms", firsts, 27, true)
	b.add(fmt.Sprintf("whole cycle, %s, %d out", what, b.Answer), "ms", "cycle_ms", wholes, 185, true)
	return nil
}

// host measures what lies between the end of one decode step and the next.
func (b *bench) host(ctx context.Context, e *minicpmo.Engine) error {
	p, err := b.text(e, nil)
	if err != nil {
		return err
	}
	p.IDs = p.IDs[:min(16, len(p.IDs))]
	for _, rooms := range []int{1, e.Stats().SlotsAll} {
		before := e.Stats().Host
		tokens := max(200, 4*b.Answer)
		var wg sync.WaitGroup
		errs := make([]error, rooms)
		for i := range rooms {
			wg.Go(func() { _, errs[i] = ask(ctx, e, request(e, p, tokens, uint64(i)), nil) }) //nolint:gosec // not negative
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("host time of %d rooms: %w", rooms, err)
		}
		d := between(before, e.Stats().Host)
		goal := 0.15
		if rooms > 1 {
			goal = 1
		}
		b.add(fmt.Sprintf("host time between two steps, %d %s", rooms, map[bool]string{true: "rooms", false: "room"}[rooms > 1]), "ms", "",
			[]float64{1e3 * d.Quantile(.05), 1e3 * d.Quantile(.5), 1e3 * d.Quantile(.95)}, goal, true)
	}
	return nil
}

// between is what a distribution got since an earlier look at it.
func between(before, after minicpmo.Distribution) minicpmo.Distribution {
	d := minicpmo.Distribution{Bounds: after.Bounds, Sum: after.Sum - before.Sum, Count: after.Count - before.Count}
	for i, n := range after.Counts {
		d.Counts = append(d.Counts, n-before.Counts[i])
	}
	return d
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
	fmt.Fprintf(b.out, "\nmemory: planned %s", size(f.Planned))
	if b.Device == "cuda" && f.Planned > 0 { // on the CPU others take and give memory at the same time
		fmt.Fprintf(b.out, ", used %s (%+.1f %%)", size(f.Used), 100*(float64(f.Used)/float64(f.Planned)-1))
	}
	if f.Switch > 0 {
		fmt.Fprintf(b.out, "; second weight set from %d rooms on", f.Switch)
	}
	fmt.Fprintln(b.out)
	fmt.Fprint(b.out, f.Many)
}

// compared writes a figure of another program: a number, or its median.
func compared(v any) string {
	switch x := v.(type) {
	case float64:
		return figure(x)
	case map[string]any:
		return compared(x["median"])
	}
	return ""
}

// many runs the open loads.
func (b *bench) many(ctx context.Context, e *minicpmo.Engine) error {
	if len(b.Rooms) == 0 || b.Rooms[0] == 0 {
		return nil
	}
	out := &strings.Builder{}
	defer func() { b.found.Many += out.String() }()
	fmt.Fprintf(out, "\nOpen load: a cycle per room every %v (Poisson), 4 frames (2 new), %d tokens in, %d out, %v a row\n\n",
		b.Interval, b.Prompt, b.Answer, b.Duration)
	fmt.Fprintln(out, "| rooms | cycles | dropped | failed | first token p50 / p95 | cycle p50 / p95 | under way after each third |"+
		" between two words p50 / p99 | GPU busy | tokens/s | memory |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
	seen := newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng)).look(4, 4)
	p, err := b.text(e, seen)
	if err != nil {
		return err
	}
	for n, rooms := range b.Rooms {
		before := e.Stats()
		load := openLoad{Rooms: rooms, Interval: b.Interval, Duration: b.Duration, Frames: 4, New: 2, Seed: 1}
		row, err := load.run(ctx, func(ctx context.Context, room int, frames []inference.Frame, first func()) error {
			r := request(e, p, b.Answer, uint64(room)) //nolint:gosec // not negative
			r.Frames, r.Source = frames, uint64(n+1)<<32|uint64(room)
			_, err := ask(ctx, e, r, first)
			return err
		})
		if err != nil {
			return err
		}
		after := e.Stats()
		ms := func(d time.Duration) string { return fmt.Sprint(d.Round(time.Millisecond)) }
		gaps := between(before.Gap, after.Gap)
		fmt.Fprintf(out, "| %d | %d | %d | %d | %s / %s | %s / %s | %v | %.1f / %.1f ms | %.0f %% | %.0f | %s |\n",
			rooms, row.Arrived, row.Dropped, row.Failed,
			ms(quantile.Of(row.First, .5)), ms(quantile.Of(row.First, .95)), ms(quantile.Of(row.Whole, .5)), ms(quantile.Of(row.Whole, .95)), row.Backlog,
			1e3*gaps.Quantile(.5), 1e3*gaps.Quantile(.99), 100*(after.Busy-before.Busy).Seconds()/row.Elapsed.Seconds(),
			float64(after.Tokens-before.Tokens)/row.Elapsed.Seconds(), size(after.MemoryUsed))
		fmt.Fprintf(os.Stderr, "%d rooms: cycle p50 %v, p95 %v\n", rooms, quantile.Of(row.Whole, .5), quantile.Of(row.Whole, .95))
		if row.Error != nil {
			fmt.Fprintf(out, "\nfirst failure: %v\n\n", row.Error)
		}
	}
	return nil
}
