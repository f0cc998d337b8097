package minicpmo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/vision"
	"touchline/models"
)

// Each batch size and grid has its own buffers. The first visionGraphs of them are
// captured as graphs and stay; the others replace each other. None is captured
// while something loads on the GPU, which could end the capture.
const (
	visionShapes = 24
	visionGraphs = 8
)

// visionRunner runs the vision tower.
type visionRunner struct {
	d        *device
	cfg      vision.Config
	session  *ort.Session
	dims     models.Vision
	shapes   map[visionShape]*visionBuffers
	captured int
	turn     uint64
	out      *ort.Memory // on the host
	// alone keeps loads waiting until done is called, unless something loads; nil while this model loads.
	alone func() (done func(), ok bool)
}

type visionShape struct{ batch, rows, cols int }

type visionBuffers struct {
	*networks.Arena
	run             *networks.Run
	patches, result *ort.Memory
	captured        bool
	used            uint64
}

func (d *device) openVision(g models.Graph, o ort.SessionOptions, cfg vision.Config) (*visionRunner, error) {
	s, err := d.runtime.NewSession(d.bundle.Path(g.File), d.dev, o)
	if err != nil {
		return nil, err
	}
	v := &visionRunner{d: d, cfg: cfg, session: s, dims: *d.sel.dims.Vision, shapes: map[visionShape]*visionBuffers{}}
	if v.out, err = d.dev.HostAlloc(int64(batchLimit * v.imageBytes())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return v, nil
}

// imageBytes returns the size of the embeddings of one image.
func (v *visionRunner) imageBytes() int { return v.dims.Queries * v.dims.Out * v.d.float.Size() }

func (v *visionRunner) run(images []*image) error {
	if len(images) == 0 || len(images) > batchLimit {
		return fmt.Errorf("embed images: expected 1 to %d, has %d", batchLimit, len(images))
	}
	shape := visionShape{len(images), images[0].rows, images[0].cols}
	mayCapture := v.d.sel.device == models.DeviceCUDA && v.captured < visionGraphs && (v.shapes[shape] == nil || !v.shapes[shape].captured)
	if mayCapture && v.alone != nil {
		var done func()
		if done, mayCapture = v.alone(); mayCapture {
			defer done()
		}
	}
	b, err := v.buffers(shape, mayCapture)
	if err != nil {
		return fmt.Errorf("prepare for %d images of %dx%d patches: %w", shape.batch, shape.cols, shape.rows, err)
	}
	size := b.patches.Size() / int64(shape.batch)
	for i, m := range images {
		if int64(len(m.patches)) != size {
			return fmt.Errorf("embed images: expected %d bytes of patches, has %d", size, len(m.patches))
		}
		if err := v.d.dev.CopyIn(b.patches.At(int64(i)*size), m.patches); err != nil {
			return err
		}
	}
	if err := b.run.Do(); err != nil {
		if mayCapture { // it is not captured, and would be at a time when it must not
			delete(v.shapes, shape)
			err = errors.Join(err, b.Close())
		}
		return err
	}
	n := v.imageBytes()
	out := v.out.Bytes()[:n*len(images)]
	if err := v.d.dev.CopyOut(out, b.result.At(0)); err != nil {
		return err
	}
	if err := v.d.dev.Synchronize(); err != nil {
		return err
	}
	for i, m := range images {
		if len(m.embeds) != n {
			m.embeds = make([]byte, n)
		}
		copy(m.embeds, out[i*n:])
	}
	return nil
}

// buffers returns the buffers of a shape, which are to be captured if capture is set.
func (v *visionRunner) buffers(s visionShape, capture bool) (*visionBuffers, error) {
	v.turn++
	if b, ok := v.shapes[s]; ok && !capture {
		b.used = v.turn
		return b, nil
	} else if ok {
		delete(v.shapes, s)
		if err := b.Close(); err != nil {
			return nil, err
		}
	}
	if len(v.shapes) >= visionShapes {
		var oldest visionShape
		var victim *visionBuffers
		for shape, b := range v.shapes {
			if !b.captured && (victim == nil || b.used < victim.used) {
				oldest, victim = shape, b
			}
		}
		if victim != nil {
			delete(v.shapes, oldest)
			if err := victim.Close(); err != nil {
				return nil, err
			}
		}
	}
	b := &visionBuffers{Arena: networks.NewArena(v.d.runtime, v.d.dev), used: v.turn}
	if err := v.make(b, s, capture); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	v.shapes[s] = b
	return b, nil
}

func (v *visionRunner) make(b *visionBuffers, s visionShape, capture bool) error {
	d, l, batch := v.d, int64(s.rows*s.cols), int64(s.batch)
	pixels := 3 * v.dims.Patch * v.dims.Patch
	var patches, result *ort.Tensor
	var err error
	if b.patches, patches, err = b.Tensor("patches", d.float, batch, l, int64(pixels)); err != nil {
		return err
	}
	if b.result, result, err = b.Tensor("embeddings", d.float, batch, int64(v.dims.Queries), int64(v.dims.Out)); err != nil {
		return err
	}
	graph := ort.NoGraph
	if capture {
		v.captured++
		graph, b.captured = v.captured, true
	}
	if b.run, err = b.NewRun(v.session, graph); err != nil {
		return err
	}
	rows, cols := make([]int64, l), make([]int64, l)
	for i := range rows {
		rows[i], cols[i] = int64(i/s.cols), int64(i%s.cols)
	}
	inputs := map[string][]int64{"position_ids": v.cfg.Positions(make([]int64, l), s.rows, s.cols), "rows": rows, "cols": cols}
	for _, name := range []string{"position_ids", "rows", "cols"} {
		m, x, err := b.Tensor(name, models.Int64, l)
		if err != nil {
			return err
		}
		if err := errors.Join(d.dev.CopyIn(m.At(0), ort.Bytes(inputs[name])), b.run.BindInput(name, x)); err != nil {
			return err
		}
	}
	return errors.Join(b.run.BindInput("patches", patches), b.run.BindOutput("image_embeds", result))
}

// grey returns n grey images of the usual shape.
func (v *visionRunner) grey(n int) ([]*image, error) {
	layout, err := v.cfg.Layout(1280, 720, 1)
	if err != nil {
		return nil, err
	}
	rows, cols := layout.Overview.H/v.cfg.PatchSize, layout.Overview.W/v.cfg.PatchSize
	patches := make([]byte, rows*cols*3*v.dims.Patch*v.dims.Patch*v.d.float.Size())
	return slices.Repeat([]*image{{rows: rows, cols: cols, patches: patches}}, n), nil
}

// warm embeds grey images, one to four per run.
func (v *visionRunner) warm() (cost, error) {
	most, runs := v.d.sel.images(), 3
	if v.d.sel.device == models.DeviceCPU {
		runs = 1
	}
	images, err := v.grey(most)
	if err != nil {
		return cost{}, err
	}
	took := make([]time.Duration, most)
	for i := range most {
		for range runs { // The first captures.
			begin := v.d.now()
			if err := v.run(images[:i+1]); err != nil {
				return cost{}, err
			}
			took[i] = v.d.now().Sub(begin)
		}
	}
	if most == 1 {
		return cost{each: took[0]}, nil
	}
	return lineThrough(1, took[0], most, took[most-1]), nil
}

func (v *visionRunner) close() error {
	var errs []error
	for _, b := range v.shapes {
		errs = append(errs, b.Close())
	}
	return errors.Join(append(errs, v.out.Close(), v.session.Close())...)
}
