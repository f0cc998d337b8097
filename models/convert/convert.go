// Package convert turns a checkpoint into a bundle: the requested graphs, and
// their weights rounded or cast as the graphs require. It does not download.
//
// Weights are streamed by a bounded number of goroutines with fixed buffers, so
// memory does not grow with the checkpoint. Output goes to a hidden folder next
// to the destination and is renamed when complete, so a folder with the
// destination's name is always whole. The next conversion removes the leftovers
// of a killed one.
package convert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"touchline/models"
	"touchline/models/disk"
	"touchline/models/graph"
)

// Source is a checkpoint with a description: a manifest without graphs and files.
type Source interface {
	models.Source
	Describe() (models.Manifest, error)
}

// voiced is a Source with the files of models.Manifest.Voice, which a bundle contains unchanged.
type voiced interface {
	OpenFile(name string) (content io.ReadCloser, size int64, err error)
}

// hasher is a Source that can hash its files.
type hasher interface {
	Hash(ctx context.Context, progress func(done, total int64)) (models.Origin, error)
}

// Options select the contents of a bundle.
type Options struct {
	// Weights of the decoder, one graph each. Default: int4 and fp16; for speech recognition the
	// float format of each device, CUDA's if there are none. With bf16 instead of fp16 all floats for CUDA,
	// those of int4 too, are bfloat16.
	Weights []models.Weights
	// Devices to write graphs for. Default: CUDA for int4, fp16 and bf16, the CPU
	// for fp32. int4 runs on both devices, fp16 and bf16 only on CUDA, fp32 only on the CPU.
	Devices []models.Device
	// VoiceWeights are the floats of a voice's graphs for CUDA: fp16 (the default) or
	// fp32. On the CPU they are fp32.
	VoiceWeights models.Weights
	// Head is the bits of an int4 decoder's vocabulary matrix: 4, 8, or 16 for
	// unrounded floats. Default 8.
	Head int
	// Check adds graphs for the conformance check, over the same weights.
	Check bool
	// Clamp limits weights that float16 cannot hold instead of failing.
	Clamp bool

	Name    string // of the model; default: the checkpoint's
	Creator string // program and version
	Random  bool   // the weights are synthetic
	// Origin, if not nil, is where the checkpoint was downloaded from: its Path
	// and Revision replace the folder in the manifest.
	Origin *models.Origin

	// Workers is the number of goroutines. Default: one per core, at most 64 to
	// bound the memory.
	Workers int
	// Now is the clock for Rate and ETA; nil leaves both 0.
	Now func() time.Time
	// Progress, if not nil, is called by one goroutine at a time, with
	// non-decreasing counts.
	Progress func(Progress)
	// Note, if not nil, receives messages for the user about parts that are omitted or changed.
	Note func(text string)
}

// Progress is the progress of a conversion.
type Progress struct {
	// Done and Total count bytes read: of the source, once per use of a weight,
	// and of the written files, for their checksums.
	Done, Total int64
	// Source is the part of Done that was read from the source.
	Source int64
	// Rate is the average of Source per second, and ETA the remaining time at the
	// average pace. Zero without a clock.
	Rate float64
	ETA  time.Duration
}

// SpaceError is returned when the disk lacks the space for a bundle.
type SpaceError struct {
	Dir        string
	Need, Free int64
}

// Error names the needed and the free space.
func (e *SpaceError) Error() string {
	const mb = 1e6
	return fmt.Sprintf("%s: the bundle needs %.0f MB, %.0f MB are free: make room or choose another folder",
		e.Dir, float64(e.Need)/mb, float64(e.Free)/mb)
}

// Convert writes the bundle of src to the folder dst, which must be new or empty.
func Convert(ctx context.Context, src Source, dst string, o Options) error {
	return convert(ctx, src, dst, o, machine{free: disk.FreeSpace, maxData: maxData})
}

// machine holds the limits that tests replace.
type machine struct {
	free    func(dir string) (int64, error)
	maxData int64
}

func convert(ctx context.Context, src Source, dst string, o Options, m machine) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("convert: %w", err)
		}
	}()
	manifest, err := src.Describe()
	if err != nil {
		return err
	}
	o.setDefaults(manifest.Task)
	graphs, err := plan(src, manifest.Dims, o)
	if err != nil {
		return err
	}
	l := newLayout(src, o.Workers, m.maxData)
	for _, d := range graphs {
		if err := l.add(d); err != nil {
			return fmt.Errorf("%s: %w", graphName(d), err)
		}
	}
	out, err := newFolder(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	c := &conversion{Options: o, src: src, layout: l, folder: out, manifest: &manifest}
	if err := errors.Join(c.small(graphs), c.large()); err != nil {
		return err
	}
	if err := c.checkSpace(m.free); err != nil {
		return err
	}
	return c.run(ctx)
}

const maxWorkers = 64

func (o *Options) setDefaults(task models.Task) {
	if len(o.Weights) == 0 {
		o.Weights = defaultWeights(task, o.Devices)
	}
	o.VoiceWeights = cmp.Or(o.VoiceWeights, models.WeightsFloat16)
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

func defaultWeights(task models.Task, devices []models.Device) (w []models.Weights) {
	if task == models.TaskCommentary {
		return []models.Weights{models.WeightsInt4, models.WeightsFloat16}
	}
	// float16 is faster than int4 when many voices run in one batch.
	if len(devices) == 0 || slices.Contains(devices, models.DeviceCUDA) {
		w = append(w, models.WeightsFloat16)
	}
	if slices.Contains(devices, models.DeviceCPU) {
		w = append(w, models.WeightsFloat32)
	}
	return w
}

// conversion is one run of Convert after its checks.
type conversion struct {
	Options

	src      Source
	layout   *layout
	folder   *folder
	manifest *models.Manifest
	files    []smallFile
	voice    []models.File // copied
}

// smallFile is a file that is written from memory.
type smallFile struct {
	name    string
	content []byte
}

// small prepares the files without weights: the graphs and the tokenizer's files.
func (c *conversion) small(graphs []*graph.Description) error {
	c.manifest.Format = models.FormatVersion
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
		if err := addPlaces(&g, c.manifest.Dims, content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
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
		c.Note("missing in the checkpoint: " + missing)
	}
	for _, skipped := range c.manifest.Source.Skipped {
		c.Note("left out: " + skipped)
	}
	return nil
}

// manifestRoom is an upper bound of the manifest's size.
const manifestRoom = 4 << 20

func (c *conversion) checkSpace(free func(dir string) (int64, error)) error {
	need := c.layout.bytes() + c.voiceBytes() + manifestRoom
	for _, f := range c.files {
		need += int64(len(f.content))
	}
	dir := filepath.Dir(c.folder.path)
	has, err := free(dir)
	if err != nil {
		return fmt.Errorf("read the free space of %s: %w", dir, err)
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
	progress := newMeter(c.Options, c.layout.work(), c.layout.bytes()+c.voiceBytes())
	group.Go(func() error { return c.writeData(ctx, progress) })
	group.Go(func() error { return c.copyVoice(ctx, progress) })
	group.Go(func() error {
		for _, f := range c.files {
			if err := os.WriteFile(c.folder.file(f.name), f.content, 0o644); err != nil {
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
	c.manifest.Files = append(c.manifest.Files, c.voice...)
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
