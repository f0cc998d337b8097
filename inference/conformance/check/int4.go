package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"touchline/inference/internal/cuda"
	"touchline/inference/internal/host"
	"touchline/inference/minicpmo"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// boundInt4 is for an int4 graph compared with float32 weights of the same values.
const boundInt4 = 1e-3

// awq converts the published int4 checkpoint and compares it with the official
// results for its dequantised weights.
func (c *checker) awq(ctx context.Context, m *host.Machine, words *checkpoint.Checkpoint) {
	src := c.checkpoint("checkpoint-awq")
	if src == nil {
		return
	}
	defer func() { _ = src.Close() }()
	if name := "awq/dequant.safetensors"; c.files.has(name) {
		c.row(stageAWQ, name, 0, func(t *tally) { c.dequantised(t, src, name) })
	}
	// Head 16: the published vocabulary matrix is not in int4 and must not be rounded.
	var b *models.Bundle
	err := ended(func() {
		b = c.bundle(ctx, src, "awq", convert.Options{Weights: []models.Weights{models.WeightsInt4}, Head: 16})
	})
	if err != nil {
		c.row(stageAWQ, "checkpoint-awq as int4", 0, func(*tally) { must(err) })
		return
	}
	d := c.decoder(m, b, models.WeightsInt4, c.Device)
	defer d.close()
	for _, name := range c.files.tensors("awq") {
		if path.Base(name) == "dequant.safetensors" {
			continue
		}
		c.row(stageAWQ, name, c.bound(), func(t *tally) {
			embeds := c.tensors("llm/" + path.Base(name)).floats("inputs_embeds")
			d.compare(t, c.tensors(name), embeds, c.Device == models.DeviceCPU)
		})
	}
	c.int4(ctx, m, withTokenizer{src, words}, "awq")
}

// dequantised compares dequantised rows of the packed layers.
func (c *checker) dequantised(t *tally, src *checkpoint.Checkpoint, name string) {
	f := c.tensors(name)
	for _, key := range f.file.Names() {
		tensor, rows, ok := strings.Cut(key, ".rows")
		var from, to int
		if _, err := fmt.Sscanf(rows, "%d_%d", &from, &to); !ok || err != nil {
			must(fmt.Errorf("expected a tensor NAME.rowsFROM_TO, got %s", key))
		}
		want := f.floats(key)
		got := make([]float32, len(want))
		must(src.Rows(got, tensor, from, to))
		t.exact(slices.Equal(got, want), "%s: the dequantised weights differ", key)
	}
}

// int4 compares the int4 graph with a float32 graph of the same weights.
func (c *checker) int4(ctx context.Context, m *host.Machine, src convert.Source, folder string) {
	bound, weights := boundInt4, []models.Weights{models.WeightsInt4}
	if c.Device == models.DeviceCUDA {
		bound = c.bound()
	}
	stage := stageInt4
	switch {
	case c.wide:
		weights, folder = append(weights, models.WeightsBFloat16), folder+"-bf16"
	case folder == "awq":
		stage = stageAWQ
	}
	for _, head := range []int{8, 4} {
		name := fmt.Sprintf("head int%d", head)
		var b *models.Bundle
		var quantised, plain *decoder
		c.row(stage, name+": rounding", 0, func(t *tally) {
			b = c.bundle(ctx, src, fmt.Sprintf("%s-%d", folder, head), convert.Options{Weights: weights, Head: head})
			g, _ := b.Find(models.KindDecoder, models.WeightsInt4, c.Device)
			values := dequantise(src, b, g)
			t.row.Cases = len(values.layers)
			reference := c.bundle(ctx, describedSource{values, src}, fmt.Sprintf("%s-%d-fp32", folder, head), convert.Options{
				Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
			})
			quantised = c.decoder(m, b, models.WeightsInt4, c.Device)
			plain = c.decoder(m, reference, models.WeightsFloat32, models.DeviceCPU)
		})
		if quantised == nil || plain == nil {
			continue
		}
		for _, file := range c.files.tensors("llm") {
			c.row(stage, name+": "+file, bound, func(t *tally) {
				compareInt4(t, quantised, plain, c.tensors(file).floats("inputs_embeds"), c.Device == models.DeviceCPU)
			})
		}
		if b.Manifest.Task == models.TaskCommentary && !c.wide {
			c.row(stage, name+": steps of an engine", bound, func(t *tally) { c.steps(ctx, t, b, plain) })
		}
		quantised.close()
		plain.close()
	}
}

// forcedSteps are the last tokens of a prompt that are fed in steps.
const forcedSteps = 8

// steps compares steps of an engine after prompts with those of a float32 graph of the same weights. On a GPU, own kernels must run them.
func (c *checker) steps(ctx context.Context, t *tally, b *models.Bundle, plain *decoder) {
	var prompts [][]int32
	for _, name := range c.files.tensors("llm") {
		if ids := c.tensors(name).ids("input_ids"); len(ids) > forcedSteps {
			prompts = append(prompts, ids)
		}
	}
	rooms, got := []int{1, 4}, [][]float32{}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // captured graphs belong to it
		done <- c.device(ctx, t, b, func(d *minicpmo.Device) (err error) {
			for _, ids := range prompts {
				for _, n := range rooms {
					rows, failed := d.Force(n, ids, forcedSteps)
					got, err = append(got, rows...), errors.Join(err, failed)
				}
			}
			return err
		})
	}()
	must(<-done)
	if t.row.Note != "" {
		return
	}
	for _, ids := range prompts {
		logits := tail(plain.prefill(plain.embeddings(ids), "all_logits")["all_logits"].Floats, plain.dims.Vocab, forcedSteps)
		for range rooms {
			for i := range forcedSteps {
				t.near(got[0], logits[i*plain.dims.Vocab:][:plain.dims.Vocab], fmt.Sprintf("step %d after %d tokens", i, len(ids)-forcedSteps))
				got = got[1:]
			}
		}
	}
}

// device opens and checks the device of an engine for work, unless its own kernels do not support the bundle, which the row then notes.
func (c *checker) device(ctx context.Context, t *tally, b *models.Bundle, work func(*minicpmo.Device) error) (err error) {
	d, err := minicpmo.OpenDevice(ctx, b, minicpmo.Options{Config: c.settings(b, models.WeightsInt4), Now: time.Now})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	rows, why := d.OwnRows()
	switch {
	case rows > 0 || c.Device == models.DeviceCPU:
		return work(d)
	case errors.Is(why, cuda.ErrBundle):
		t.row.Note = why.Error()
		return nil
	}
	return why
}

// withTokenizer is a checkpoint with the tokenizer of another one, if it has none.
type withTokenizer struct {
	*checkpoint.Checkpoint
	of *checkpoint.Checkpoint
}

// File returns a small file.
func (s withTokenizer) File(name string) ([]byte, error) {
	content, err := s.Checkpoint.File(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s.of.File(name)
	}
	return content, err
}

// describedSource is a source with the description of a checkpoint.
type describedSource struct {
	models.Source
	of convert.Source
}

// Describe returns the checkpoint's description.
func (s describedSource) Describe() (models.Manifest, error) { return s.of.Describe() }

func compareInt4(t *tally, quantised, plain *decoder, embeds []float32, exact bool) {
	names := []string{"all_logits", "all_hidden"}
	got := quantised.prefill(embeds, names...)
	want := plain.prefill(embeds, names...)
	for _, name := range names {
		t.near(got[name].Floats, want[name].Floats, name)
	}
	vocab := plain.dims.Vocab
	for i := range len(embeds) / plain.dims.Hidden {
		a, b := got["all_logits"].Floats[i*vocab:][:vocab], want["all_logits"].Floats[i*vocab:][:vocab]
		if gap(b) > 2*largestDifference(a, b) {
			t.exact(argmax(a) == argmax(b), "position %d: another token is the likeliest", i)
		} else if exact {
			t.row.Note = "ties not compared"
		}
	}
}
