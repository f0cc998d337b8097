// Package check compares the engines with the official code. It recomputes fixtures
// that the official code computed on a small checkpoint, stage by stage, from the
// tokenizer to whole answers through the engine's step loop, and compares every
// difference with a bound.
//
// The folder has checkpoint/ (as published), checkpoint-awq/, and one folder per
// stage with the inputs and outputs of the official code. Any checkpoint of an
// architecture works: all sizes come from it. looks/ has answers of a trained
// network about pictures of generated worlds, which are drawn for the check. If the
// checkpoint is for speech recognition, the stages are others, and aligner/ has the
// checkpoint of its aligner.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"touchline/internal/rescue"
	"touchline/models"
)

// Options are the parameters of Run.
type Options struct {
	// Golden is the folder of fixtures.
	Golden string
	// Device runs the graphs. It selects the bounds: float32 on the CPU, float16, bfloat16 and int4 on CUDA.
	// The model's own voice runs on CUDA in float16 and in float32.
	Device models.Device
	// DeviceIndex is the GPU's number.
	DeviceIndex int
	// Library is the ONNX Runtime to load; "" searches the default folders.
	Library string
	// Work is the folder of the converted bundles; "" means a temporary one.
	Work string
	// Progress, if not nil, receives the name of each step.
	Progress func(what string)
}

// Row is the result of one stage on one fixture.
type Row struct {
	Stage, Fixture string
	Cases          int
	// Worst is the largest difference, relative to the tensor's largest value, and Bound its limit.
	// Both are 0 for comparisons of equality.
	Worst, Bound float64
	Note         string
	Err          error // nil if the row passes
}

// Report is the result of Run.
type Report struct {
	Rows []Row
}

// ErrFailed is returned by Err if a row fails.
var ErrFailed = errors.New("the check failed")

// Err returns nil only if no row failed, and the checkpoint and the language model (alone or by its answers) were checked.
func (r Report) Err() error {
	var errs []error
	ran := map[string]bool{}
	for _, row := range r.Rows {
		if row.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", row.Stage, row.Fixture, row.Err))
		}
		if row.Cases > 0 {
			ran[row.Stage] = true
		}
	}
	if !ran[stageCheckpoint] {
		errs = append(errs, fmt.Errorf("expected fixtures of the stage %s, found none", stageCheckpoint))
	}
	if !ran[stageLLM] && !ran[stageLooks] {
		errs = append(errs, fmt.Errorf("expected fixtures of the stage %s or %s, found none", stageLLM, stageLooks))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFailed, errors.Join(errs...))
}

// Write prints one line per row.
func (r Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stage\tfixture\tcases\tworst\tbound\tpass\t")
	for _, row := range r.Rows {
		worst, bound := "-", "exact"
		if row.Bound > 0 {
			worst, bound = fmt.Sprintf("%.1e", row.Worst), fmt.Sprintf("%.1e", row.Bound)
		}
		pass := "yes"
		if row.Err != nil {
			pass = "NO: " + row.Err.Error()
		}
		if row.Note != "" {
			pass += " (" + row.Note + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t\n", row.Stage, row.Fixture, row.Cases, worst, bound, pass)
	}
	return t.Flush()
}

// tally counts the cases of a row and keeps the first error.
type tally struct {
	row   Row
	where string // the case, for errors that end the row
}

// stopped is the error in a panic that ends a row or the run, like require in a test. Only the goroutine of Run may panic with it.
type stopped struct{ err error }

// ended returns the error that ended work, or nil.
func ended(work func()) error {
	err := rescue.Call(func() error {
		work()
		return nil
	})
	if p, ok := rescue.Of(err); ok {
		if end, ok := p.Value.(stopped); ok {
			return end.err
		}
	}
	return err
}

// must ends the row, or outside of rows the run, if err is not nil.
func must(err error) {
	if err != nil {
		panic(stopped{err})
	}
}

// need returns v, or ends the row with err.
func need[T any](v T, err error) T {
	must(err)
	return v
}

// exact counts a case that must be equal.
func (t *tally) exact(equal bool, format string, args ...any) {
	t.row.Cases++
	if !equal {
		t.fail(fmt.Errorf(format, args...))
	}
}

// near compares numbers: their largest difference, relative to the largest value of want, must not
// exceed the row's bound.
func (t *tally) near(got, want []float32, what string) {
	t.row.Cases++
	if len(got) != len(want) {
		t.fail(fmt.Errorf("%s: expected %d numbers, got %d", what, len(want), len(got)))
		return
	}
	var largest, worst float64
	for i, w := range want {
		largest = max(largest, math.Abs(float64(w)))
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			t.fail(fmt.Errorf("%s: number %d: expected %g, got %g", what, i, w, got[i]))
			return
		}
		worst = max(worst, d)
	}
	if largest > 0 {
		worst /= largest
	}
	t.row.Worst = max(t.row.Worst, worst)
	if worst > t.row.Bound {
		t.fail(fmt.Errorf("%s: differs by %.2e of its largest value, the bound is %.0e", what, worst, t.row.Bound))
	}
}

func (t *tally) fail(err error) {
	if t.row.Err == nil {
		t.row.Err = err
	}
}

// checker is one run over one folder.
type checker struct {
	Options
	files  *folder
	report Report
	wide   bool // the graphs for CUDA are in bfloat16
}

// row runs one row. A panic fails it, because fixtures may be incomplete.
func (c *checker) row(stage, fixture string, bound float64, work func(t *tally)) {
	if c.wide {
		fixture += " in bf16"
	}
	t := &tally{row: Row{Stage: stage, Fixture: fixture, Bound: bound}}
	err := ended(func() { work(t) })
	if err != nil && t.where != "" {
		err = fmt.Errorf("%s: %w", t.where, err)
	}
	if err != nil {
		t.fail(err)
	}
	if t.row.Cases == 0 && t.row.Note == "" {
		t.fail(errors.New("expected at least one case, found none"))
	}
	c.report.Rows = append(c.report.Rows, t.row)
}

func (c *checker) progress(what string) {
	if c.Progress != nil {
		c.Progress(what)
	}
}

// The stages, in the order they run.
const (
	stageCheckpoint = "checkpoint"
	stageTokenizer  = "tokenizer"
	stagePrompt     = "prompt"
	stageImage      = "image"
	stageVision     = "vision"
	stageLLM        = "llm"
	stageAWQ        = "awq"
	stageInt4       = "int4"
	stageSampler    = "sampler"
	stageChat       = "chat"
	stageLooks      = "looks"
	stageTTS        = "tts"
	stageToken2wav  = "token2wav"
	stageFeatures   = "mel"
	stageEncoder    = "encoder"
	stageAlign      = "align"
	stageTranscribe = "transcribe"
	stageText       = "text"
	stageVAD        = "vad"
	stageFiles      = "files"
)

// Run checks all fixtures of the folder. An error means that the check could not
// run; differences are in the report.
func Run(ctx context.Context, o Options) (Report, error) {
	o.Device = cmp.Or(o.Device, models.DeviceCPU)
	files, err := openFolder(o.Golden)
	if err != nil {
		return Report{}, err
	}
	c := &checker{Options: o, files: files}
	err = ended(func() {
		c.run(ctx)
		must(ctx.Err())
	})
	if err != nil {
		return c.report, err
	}
	c.leftovers()
	return c.report, nil
}

// leftovers adds a failed row for each file that no stage has read.
func (c *checker) leftovers() {
	for _, name := range c.files.unread() {
		c.row(stageFiles, name, 0, func(*tally) { must(errors.New("no stage has read the file")) })
	}
}
