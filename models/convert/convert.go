// Package convert makes a bundle of a checkpoint: the graphs that were asked
// for, and their weights rounded or cast as the graphs say.
//
// The weights are streamed: rows are read, turned and written by a bounded
// number of goroutines, each with its own few buffers, so that memory does not
// grow with the checkpoint. All is written to a hidden folder beside the
// destination, which takes the destination's name when it is complete:
// whatever interrupts a conversion, a folder with that name is whole. What a
// killed conversion left behind is removed by the next one.
package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"touchline/models"
	"touchline/models/graph"
)

// Source is a checkpoint that can say what the engine has to know of it: a
// manifest without graphs and files.
type Source interface {
	models.Source
	Describe() (models.Manifest, error)
}

// hasher is a Source that can tell the SHA-256 of its files.
type hasher interface {
	Hash(ctx context.Context, progress func(done, total int64)) (models.Origin, error)
}

// Options choose what a bundle holds.
type Options struct {
	// Weights of the decoder, one graph each. Default int4 and fp16.
	Weights []models.Weights
	// Devices to write graphs for. Default: CUDA for int4 and fp16, the CPU
	// for fp32. int4 goes with both devices, fp16 only with CUDA and fp32
	// only with the CPU.
	Devices []models.Device
	// Head is the bits of an int4 decoder's vocabulary matrix: 4 or 8, or 16 for the
	// device's floats, which rounds nothing. Default 8.
	Head int
	// Check adds graphs for the conformance check, over the same weights.
	Check bool
	// Clamp bounds weights that float16 cannot hold, instead of refusing them.
	Clamp bool

	Name    string // of the model; default: what the checkpoint says
	Creator string // program and version
	Random  bool   // the weights are synthesised
	// Origin, if not nil, says where the checkpoint was before it came to its
	// folder: its Path and Revision take the folder's place in the manifest.
	Origin *models.Origin

	// Workers is how many goroutines work. Default: one per core, at most 64,
	// which bounds the memory.
	Workers int
	// Now is the clock for rates. Without it there are none.
	Now func() time.Time
	// Progress, if not nil, is called by one goroutine at a time, with
	// numbers that never fall.
	Progress func(Progress)
	// Note, if not nil, is told what the user should know: what is left out
	// or was changed.
	Note func(text string)
}

// Progress says how far a conversion is.
type Progress struct {
	// Done and Total count the bytes that are read: of the source, as often as
	// a weight is needed, and of the written files for their checksums.
	Done, Total int64
	// Source is the part of Done that was read of the source.
	Source int64
	// Rate is Source per second so far, and ETA how long the rest takes at
	// the pace so far. Zero without a clock.
	Rate float64
	ETA  time.Duration
}

// SpaceError is returned when the disk is too full for a bundle.
type SpaceError struct {
	Dir        string
	Need, Free int64
}

// Error says how much is needed.
func (e *SpaceError) Error() string {
	const mb = 1e6
	return fmt.Sprintf("expected %.0f MB of free space in %s, has %.0f MB: make room or choose another folder",
		float64(e.Need)/mb, e.Dir, float64(e.Free)/mb)
}

// Convert writes the bundle of src to the folder dst, which must not exist or
// be empty.
func Convert(ctx context.Context, src Source, dst string, o Options) error {
	return convert(ctx, src, dst, o, machine{free: models.FreeSpace, maxData: maxData})
}

// machine is what tests put others in place of.
type machine struct {
	free    func(dir string) (int64, error)
	maxData int64
}

func convert(ctx context.Context, src Source, dst string, o Options, m machine) (err error) {
	manifest, err := src.Describe()
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	o.setDefaults()
	graphs, err := plan(src, manifest.Dims, o)
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	l := newLayout(src, o.Workers, m.maxData)
	for i, d := range graphs {
		if err := l.add(d); err != nil {
			return fmt.Errorf("convert: %s: %w", graphName(graphs[i]), err)
		}
	}
	out, err := newFolder(dst)
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	defer func() { err = errors.Join(err, out.close()) }()
	c := &conversion{Options: o, src: src, layout: l, folder: out, manifest: &manifest}
	if err := c.small(graphs); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	if err := c.checkSpace(m.free); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	return nil
}

const maxWorkers = 64

func (o *Options) setDefaults() {
	if len(o.Weights) == 0 {
		o.Weights = []models.Weights{models.WeightsInt4, models.WeightsFloat16}
	}
	if o.Workers <= 0 {
		o.Workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	if o.Head == 0 {
		o.Head = 8
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
}

// conversion is one run of Convert, past its checks.
type conversion struct {
	Options

	src      Source
	layout   *layout
	folder   *folder
	manifest *models.Manifest
	files    []smallFile
}

// smallFile is one that is written from memory.
type smallFile struct {
	name    string
	content []byte
}

// small prepares what is not weights: the graphs, and the tokenizer's files.
func (c *conversion) small(graphs []*graph.Description) error {
	for _, d := range graphs {
		name := graphName(d) + ".onnx"
		var data []string
		content, err := d.Encode(func(w graph.Weight) (graph.Location, error) {
			at, err := c.layout.place(w)
			if err == nil && !slices.Contains(data, at.File) {
				data = append(data, at.File)
			}
			return at, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		slices.Sort(data)
		g := models.Graph{
			Kind: d.Kind, Weights: d.Options.Weights, Device: d.Options.Device, File: name, Data: data,
			Inputs: d.Inputs, Outputs: d.Outputs, WeightBytes: d.WeightBytes(), Check: d.Options.Check,
		}
		if g.Weights == models.WeightsInt4 {
			g.Head, g.Block, g.ZeroPoints = d.Options.Head, d.Options.Block, d.Options.ZeroPoints
		}
		c.manifest.Graphs = append(c.manifest.Graphs, g)
		c.files = append(c.files, smallFile{name, content})
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		content, err := c.src.File(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		c.files = append(c.files, smallFile{name, content})
	}
	for _, missing := range c.manifest.Missing {
		c.Note("the checkpoint lacks: " + missing)
	}
	for _, skipped := range c.manifest.Source.Skipped {
		c.Note("left out: " + skipped)
	}
	return nil
}

// manifestRoom is more than a manifest takes.
const manifestRoom = 4 << 20

func (c *conversion) checkSpace(free func(dir string) (int64, error)) error {
	need := c.layout.bytes() + manifestRoom
	for _, f := range c.files {
		need += int64(len(f.content))
	}
	dir := filepath.Dir(c.folder.path)
	has, err := free(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if has < need {
		return &SpaceError{Dir: dir, Need: need, Free: has}
	}
	return nil
}

// run writes everything, the manifest last.
func (c *conversion) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if h, ok := c.src.(hasher); ok {
		group.Go(func() error {
			origin, err := h.Hash(ctx, nil)
			c.manifest.Source = origin
			return err
		})
	}
	progress := newMeter(c.Options, c.layout.work(), c.layout.bytes())
	group.Go(func() error { return c.writeData(ctx, progress) })
	group.Go(func() error {
		for _, f := range c.files {
			if err := os.WriteFile(c.folder.file(f.name), f.content, 0o644); err != nil { //nolint:gosec // to be shared
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	for _, f := range c.files {
		sum := sha256.Sum256(f.content)
		c.manifest.Files = append(c.manifest.Files,
			models.File{Name: f.name, Size: int64(len(f.content)), SHA256: hex.EncodeToString(sum[:])})
	}
	for _, f := range c.layout.files {
		c.manifest.Files = append(c.manifest.Files, models.File{Name: f.name, Size: f.size, SHA256: f.sum})
	}
	for _, text := range c.layout.clamped() {
		c.Note(text)
	}
	if c.Name != "" {
		c.manifest.Name = c.Name
	}
	if c.Origin != nil {
		c.manifest.Source.Path, c.manifest.Source.Revision = c.Origin.Path, c.Origin.Revision
	}
	c.manifest.Creator, c.manifest.Random = c.Creator, c.Random
	if err := models.WriteManifest(c.folder.path, c.manifest); err != nil {
		return err
	}
	return c.folder.commit()
}
