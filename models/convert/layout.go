package convert

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"

	"touchline/models"
	"touchline/models/graph"
	"touchline/models/quant"
)

const (
	// align is the alignment of weights in data files, for memory mapping.
	align = 4096
	// maxData is the size at which a graph's data continues in another file, so
	// that several files can be written and read in parallel.
	maxData = 2 << 30
)

// layout assigns each weight a place in a data file. A weight shared by several
// graphs is stored once.
type layout struct {
	src     models.Source
	workers int
	maxData int64

	files  []*dataFile
	places map[string]region // by graph.Weight.Key
	jobs   []*job
	views  map[string]*job // roundings, by their source
}

// dataFile is a file of weights.
type dataFile struct {
	name string
	size int64
	sum  string // SHA-256, set when complete
	f    *os.File
	left atomic.Int64 // pending tasks that write to it
}

// region is the place of a weight's bytes.
type region struct {
	file           *dataFile
	offset, length int64
}

// job produces one weight of a set of tensors, or several views of one rounding.
type job struct {
	rule    graph.Rule
	stack   *stack                    // nil for values, queries and formulas
	queries *queries                  // of graph.RuleQueries
	formula func() ([]float32, error) // of graph.RuleFormula
	weight  graph.Weight
	format  quant.Format // of a rounding
	outputs []output
	step    int // rows per task
	clamped atomic.Int64
}

// output is one weight that a job produces.
type output struct {
	region

	rule graph.Rule
	typ  models.Type
}

// task is a part of a job: output rows [from, to).
type task struct {
	*job

	from, to int
}

func newLayout(src models.Source, workers int, maxData int64) *layout {
	return &layout{src: src, workers: workers, maxData: maxData, places: map[string]region{}, views: map[string]*job{}}
}

// add assigns a place to every weight of a graph.
func (l *layout) add(d *graph.Description) error {
	name := graphName(d)
	var file *dataFile
	parts := 0
	for _, w := range d.Weights {
		key := w.Key()
		if _, ok := l.places[key]; ok {
			continue
		}
		if file == nil || file.size > 0 && file.size+w.Bytes() > l.maxData {
			parts++
			file = &dataFile{name: name + ".data"}
			if parts > 1 {
				file.name = fmt.Sprintf("%s-%d.data", name, parts)
			}
			l.files = append(l.files, file)
		}
		offset := (file.size + align - 1) / align * align
		at := region{file, offset, w.Bytes()}
		if err := l.make(w, at); err != nil {
			return fmt.Errorf("weight %s: %w", w.Name, err)
		}
		file.size = offset + at.length
		l.places[key] = at
	}
	return nil
}

// place returns the location of an added weight.
func (l *layout) place(w graph.Weight) (graph.Location, error) {
	at, ok := l.places[w.Key()]
	if !ok {
		return graph.Location{}, fmt.Errorf("weight %s is not part of the graph", w.Name)
	}
	return graph.Location{File: at.file.name, Offset: at.offset, Length: at.length}, nil
}

// make adds the job for a weight.
func (l *layout) make(w graph.Weight, at region) error {
	j := &job{rule: w.Rule, weight: w, outputs: []output{{at, w.Rule, w.Type}}}
	if w.Rule != graph.RuleQuants && w.Rule != graph.RuleZeros &&
		w.Type != models.Float16 && w.Type != models.BFloat16 && w.Type != models.Float32 {
		return fmt.Errorf("type must be float16, bfloat16 or float32, is %s", w.Type)
	}
	var values int
	var err error
	switch w.Rule {
	case graph.RuleValue:
		values = len(w.Floats)
	case graph.RuleQueries:
		if j.queries, err = newQueries(l.src, w); err != nil {
			return err
		}
		values = j.queries.count * j.queries.heads * j.queries.out
	case graph.RuleFormula:
		if err := w.Formula.Check(l.src); err != nil {
			return err
		}
		j.formula = func() ([]float32, error) { return w.Formula.Compute(l.src) }
		values = 1
		for _, d := range w.Formula.Shape() {
			values *= d
		}
	default:
		if j.stack, err = newStack(l.src, w); err != nil {
			return err
		}
		if w.Rule != graph.RuleCopy && w.Rule != graph.RuleTranspose {
			return l.rounding(j)
		}
		values = j.stack.rows * j.stack.cols
		j.step = rowStep(j.stack.cols)
		if w.Rule == graph.RuleTranspose {
			j.step = l.tileRows(j.stack, w.Type.Size())
		}
	}
	l.jobs = append(l.jobs, j)
	return expectBytes(w, values*w.Type.Size())
}

// rounding merges the views of one rounding into one job.
func (l *layout) rounding(j *job) error {
	w, s := j.weight, j.stack
	j.format = quant.Format{Bits: w.Bits, Block: w.Block, Scale: models.Float16}
	if w.Wide {
		j.format.Scale = models.BFloat16
	}
	if err := j.format.Validate(); err != nil {
		return err
	}
	blocks := j.format.Blocks(s.cols)
	var want int
	switch w.Rule {
	case graph.RuleQuants:
		want = s.rows * j.format.RowBytes(s.cols)
	case graph.RuleScales:
		want = s.rows * blocks * w.Type.Size()
	default: // zero points
		if !w.Packed {
			return errors.New("only packed layers have zero points")
		}
		want = s.rows * ((blocks*w.Bits + 7) / 8)
	}
	if err := expectBytes(w, want); err != nil {
		return err
	}
	if w.Packed {
		if err := l.checkPacked(j); err != nil {
			return err
		}
	}
	view := w
	view.Name, view.Type, view.Shape, view.Rule = "", 0, nil, graph.RuleQuants
	key := view.Key()
	if first, ok := l.views[key]; ok {
		first.outputs = append(first.outputs, j.outputs...)
		return nil
	}
	l.views[key] = j
	j.rule = graph.RuleQuants
	j.step = rowStep(s.cols)
	l.jobs = append(l.jobs, j)
	return nil
}

// checkPacked compares the graph's packed weight with the checkpoint's.
func (l *layout) checkPacked(j *job) error {
	s, w := j.stack, j.weight
	if w.To != 0 || w.Bits != 4 {
		return errors.New("a packed layer must be 4 bits and whole")
	}
	for _, p := range s.parts {
		packed, ok := l.src.Packed(p.name)
		if !ok {
			return fmt.Errorf("tensor %s: not int4 in the checkpoint", p.name)
		}
		if n, k, block := packed.Dims(); n != p.rows || k != s.cols || block != w.Block || k%block != 0 {
			return fmt.Errorf("tensor %s: expected [%d,%d] in blocks of %d, got [%d,%d] in blocks of %d",
				p.name, p.rows, s.cols, w.Block, n, k, block)
		}
	}
	return nil
}

func expectBytes(w graph.Weight, has int) error {
	if int64(has) != w.Bytes() {
		return fmt.Errorf("expected %d bytes for %s %d, the checkpoint has %d: its tensors contradict its config.json",
			w.Bytes(), w.Type, w.Shape, has)
	}
	return nil
}

// chunk is the approximate number of float32 values of a task.
const chunk = 1 << 20

func rowStep(cols int) int { return max(1, chunk/cols) }

const (
	// tileBytes and allTiles are the maximum sizes of one tile of a transposed
	// matrix and of the tiles of all workers.
	tileBytes = 32 << 20
	allTiles  = 512 << 20
	// tileUnit is the number of rows of the smallest tile and of one read.
	tileUnit = 64
)

// tileRows returns the number of rows that are transposed and written at once.
func (l *layout) tileRows(s *stack, size int) int {
	budget := min(tileBytes, allTiles/l.workers)
	rows := max(budget/(s.cols*size), tileUnit)
	// A power of two, so that writes end at page boundaries.
	return min(1<<(bits.Len(uint(rows))-1), s.rows)
}

// bytes returns the size of all data files.
func (l *layout) bytes() int64 {
	var n int64
	for _, f := range l.files {
		n += f.size
	}
	return n
}

// work returns the bytes that the jobs read from the source.
func (l *layout) work() int64 {
	var n int64
	for _, j := range l.jobs {
		n += j.sourceBytes(0, j.rows())
	}
	return n
}

// rows returns the number of units of a job, in reading order.
func (j *job) rows() int {
	if j.queries != nil {
		return j.queries.heads // a head at a time
	}
	if j.stack == nil {
		return 1
	}
	return j.stack.rows
}

// sourceBytes estimates the source bytes of rows [from, to).
func (j *job) sourceBytes(from, to int) int64 {
	if j.stack == nil {
		return 0
	}
	part := func(rows int) int64 { return j.stack.sourceBytes * int64(rows) / int64(j.stack.rows) }
	return part(to) - part(from)
}

// tasks splits the jobs into tasks, in file order.
func (l *layout) tasks() []task {
	var tasks []task
	for _, j := range l.jobs {
		n, step := j.rows(), max(j.step, 1)
		for from := 0; from < n; from += step {
			tasks = append(tasks, task{j, from, min(from+step, n)})
			for _, o := range j.outputs {
				o.file.left.Add(1)
			}
		}
	}
	return tasks
}

// clamped lists the tensors that were changed to fit float16.
func (l *layout) clamped() []string {
	var texts []string
	for _, j := range l.jobs {
		if n := j.clamped.Load(); n > 0 {
			texts = append(texts, fmt.Sprintf("%d values of %s exceed float16 and were limited to %d", n, j.weight.Sources, quant.MaxFloat16))
		}
	}
	return texts
}
