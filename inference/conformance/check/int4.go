package check

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"touchline/inference/internal/host"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// boundInt4 is for an int4 graph compared with float32 weights of the same values.
const boundInt4 = 1e-3

// awq converts the published int4 checkpoint and compares it with the official
// results for its dequantised weights.
func (c *checker) awq(ctx context.Context, m *host.Machine) error {
	src := c.checkpoint("checkpoint-awq")
	if src == nil {
		return nil
	}
	defer func() { _ = src.Close() }()
	prompts, err := c.prompts()
	if err != nil {
		return err
	}
	if name := "awq/dequant.safetensors"; c.files.has(name) {
		c.row(stageAWQ, name, 0, func(t *tally) error { return c.dequantised(t, src, name) })
	}
	// Head 16: the published vocabulary matrix is not in int4 and must not be rounded.
	b, err := c.bundle(ctx, src, "awq", convert.Options{
		Weights: []models.Weights{models.WeightsInt4}, Devices: []models.Device{c.Device}, Head: 16,
	})
	if err != nil {
		c.row(stageAWQ, "checkpoint-awq as int4", 0, func(*tally) error { return err })
		return nil
	}
	d, err := c.decoder(m, b, models.WeightsInt4, c.Device)
	if err != nil {
		return err
	}
	defer d.close()
	for _, name := range c.files.in("awq") {
		if path.Base(name) == "dequant.safetensors" || path.Ext(name) != ".safetensors" {
			continue
		}
		c.row(stageAWQ, name, c.bound(), func(t *tally) error {
			f, err := c.tensors(name)
			if err != nil {
				return err
			}
			embeds, ok := prompts[path.Base(name)]
			if !ok {
				return fmt.Errorf("expected its prompt in llm/%s", path.Base(name))
			}
			return d.compare(t, f, embeds, c.Device == models.DeviceCPU)
		})
	}
	return nil
}

// dequantised compares dequantised rows of the packed layers.
func (c *checker) dequantised(t *tally, src *checkpoint.Checkpoint, name string) error {
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	for _, key := range f.file.Names() {
		tensor, rows, ok := strings.Cut(key, ".rows")
		var from, to int
		if _, err := fmt.Sscanf(rows, "%d_%d", &from, &to); !ok || err != nil {
			return fmt.Errorf("expected a tensor NAME.rowsFROM_TO, got %s", key)
		}
		want := f.floats(key)
		got := make([]float32, len(want))
		if err := src.Rows(got, tensor, from, to); err != nil {
			return errors.Join(f.err, err)
		}
		t.exact(slices.Equal(got, want), "%s: the dequantised weights differ", key)
	}
	return f.err
}

// int4 compares the int4 graph with a float32 graph of the same weights.
func (c *checker) int4(ctx context.Context, m *host.Machine, src *checkpoint.Checkpoint) error {
	prompts, err := c.prompts()
	if err != nil {
		return err
	}
	bound := boundInt4
	if c.Device == models.DeviceCUDA {
		bound = boundFloat16
	}
	for _, head := range []int{8, 4} {
		stage := fmt.Sprintf("head int%d", head)
		var quantised, plain *decoder
		c.row(stageInt4, stage+": rounding", 0, func(t *tally) error {
			b, err := c.bundle(ctx, src, fmt.Sprintf("int4-%d", head), convert.Options{
				Weights: []models.Weights{models.WeightsInt4}, Devices: []models.Device{c.Device}, Head: head,
			})
			if err != nil {
				return err
			}
			g, _ := b.Find(models.KindDecoder, models.WeightsInt4, c.Device)
			values, err := dequantise(src, b, g)
			if err != nil {
				return err
			}
			t.row.Cases = len(values.layers)
			reference, err := c.bundle(ctx, describedSource{values, src}, fmt.Sprintf("int4-%d-fp32", head), convert.Options{
				Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
			})
			if err != nil {
				return err
			}
			if quantised, err = c.decoder(m, b, models.WeightsInt4, c.Device); err != nil {
				return err
			}
			plain, err = c.decoder(m, reference, models.WeightsFloat32, models.DeviceCPU)
			return err
		})
		if quantised == nil || plain == nil {
			continue
		}
		for name, embeds := range prompts {
			c.row(stageInt4, stage+": llm/"+name, bound, func(t *tally) error {
				return compareInt4(t, quantised, plain, embeds, c.Device == models.DeviceCPU)
			})
		}
		quantised.close()
		plain.close()
	}
	return nil
}

// describedSource is a source with the description of a checkpoint.
type describedSource struct {
	models.Source
	of *checkpoint.Checkpoint
}

// Describe returns the checkpoint's description.
func (s describedSource) Describe() (models.Manifest, error) { return s.of.Describe() }

func compareInt4(t *tally, quantised, plain *decoder, embeds []float32, exact bool) error {
	names := []string{"all_logits", "all_hidden"}
	got, err := quantised.prefill(embeds, names...)
	if err != nil {
		return err
	}
	want, err := plain.prefill(embeds, names...)
	if err != nil {
		return err
	}
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
	return nil
}
