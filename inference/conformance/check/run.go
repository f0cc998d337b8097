package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"touchline/inference/internal/host"
	"touchline/inference/internal/vision"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// run runs all stages.
func (c *checker) run(ctx context.Context) (err error) {
	if c.Work == "" {
		if c.Work, err = os.MkdirTemp("", "touchline-check-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(c.Work) }()
	}
	m, err := host.Open(c.Library, c.DeviceIndex)
	if err != nil {
		return err
	}
	defer m.Close()

	src := c.checkpoint("checkpoint")
	if src != nil {
		defer func() { _ = src.Close() }()
	}
	ts := c.tokenizers()
	c.progress("tokenizer")
	c.tokenizer(ts)
	c.progress("sampler")
	c.sampler()
	if src == nil {
		return nil // its row has the error
	}
	manifest, err := src.Describe()
	if err != nil {
		return err
	}
	if manifest.Dims.Hearing != nil {
		return errors.Join(c.hears(ctx, m, src, ts), ctx.Err())
	}
	cfg := visionConfig(manifest)
	c.progress("prompts")
	c.prompt(ts, cfg, manifest.Image.Features)
	c.progress("pictures")
	c.images(cfg)
	if err := c.networks(ctx, m, src, cfg); err != nil {
		return err
	}
	if err := c.voice(ctx, m); err != nil {
		return err
	}
	return ctx.Err()
}

// visionConfig returns the preprocessing constants of a checkpoint.
func visionConfig(m models.Manifest) vision.Config {
	cfg := vision.Config{
		PatchSize: m.Image.Patch, Scale: m.Image.ScaleResolution, MaxSlices: m.Image.MaxSlices, Mean: m.Image.Mean, Std: m.Image.Std,
	}
	if m.Dims.Vision != nil {
		cfg.PositionTable = m.Dims.Vision.Grid
	}
	return cfg
}

// checkpoint opens a checkpoint of the fixtures, and adds a row. It returns nil on an
// error.
func (c *checker) checkpoint(dir string) *checkpoint.Checkpoint {
	var src *checkpoint.Checkpoint
	stage := stageCheckpoint
	if dir == "checkpoint-awq" {
		stage = stageAWQ
	}
	if len(c.files.in(dir)) == 0 {
		return nil
	}
	c.row(stage, dir, 0, func(t *tally) (err error) {
		if src, err = checkpoint.Open(filepath.Join(c.Golden, dir)); err != nil {
			return err
		}
		if _, err := src.Describe(); err != nil {
			return err
		}
		for _, name := range src.Names() {
			info, ok := src.Info(name)
			row := make([]float32, info.Cols())
			err := src.Rows(row, name, 0, min(1, info.Rows()))
			t.exact(ok && err == nil, "%s: %v", name, err)
		}
		for _, name := range c.files.in(dir) {
			if c.used(dir, path.Base(name)) {
				c.files.mark(name)
			}
		}
		return nil
	})
	return src
}

// used reports whether opening a checkpoint reads a file. The other published files
// repeat its content.
func (c *checker) used(dir, base string) bool {
	switch base {
	case "config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "generation_config.json":
		return true
	case "merges.txt", "vocab.json":
		return true // the tokenizer, or another form of tokenizer.json
	case "special_tokens_map.json":
		// Other forms of the tokenizer; tokenizer.json takes precedence.
		_, err := os.Stat(filepath.Join(c.Golden, dir, "tokenizer.json"))
		return !errors.Is(err, fs.ErrNotExist)
	case "chat_template.json": // the prompts have its text
		_, err := os.Stat(filepath.Join(c.Golden, dir, "vocab.json"))
		return err == nil
	}
	return strings.Contains(base, ".safetensors")
}

// bundle converts a checkpoint.
func (c *checker) bundle(ctx context.Context, src convert.Source, name string, o convert.Options) (*models.Bundle, error) {
	c.progress("convert " + name)
	dir := filepath.Join(c.Work, name)
	o.Check = true
	if err := convert.Convert(ctx, src, dir, o); err != nil {
		return nil, err
	}
	return models.OpenBundle(dir)
}

// network opens a graph of a bundle.
func (c *checker) network(m *host.Machine, b *models.Bundle, kind models.Kind, w models.Weights, d models.Device) (*host.Network, error) {
	g, ok := b.FindCheck(kind, w, d)
	if !ok {
		if g, ok = b.Find(kind, w, d); !ok {
			return nil, fmt.Errorf("expected a graph %s %s for %s in %s", kind, w, d, b.Dir)
		}
	}
	return m.Open(b, g)
}

// decoder opens the language model of a bundle.
func (c *checker) decoder(m *host.Machine, b *models.Bundle, w models.Weights, d models.Device) (*decoder, error) {
	llm, err := c.network(m, b, models.KindDecoder, w, d)
	if err != nil {
		return nil, err
	}
	embed, err := c.network(m, b, models.KindEmbed, floatWeights(d), d)
	if err != nil {
		llm.Close()
		return nil, err
	}
	return &decoder{dims: b.Manifest.Dims.Decoder, llm: llm, embed: embed}, nil
}

func (d *decoder) close() {
	d.llm.Close()
	d.embed.Close()
}

// floatWeights returns the float format of a device's graphs.
func floatWeights(d models.Device) models.Weights {
	if d == models.DeviceCUDA {
		return models.WeightsFloat16
	}
	return models.WeightsFloat32
}

// networks converts the checkpoint and checks its graphs.
func (c *checker) networks(ctx context.Context, m *host.Machine, src *checkpoint.Checkpoint, cfg vision.Config) error {
	float := floatWeights(c.Device)
	var b *models.Bundle
	c.row(stageCheckpoint, "checkpoint as "+string(float)+" for "+string(c.Device), 0, func(t *tally) (err error) {
		b, err = c.bundle(ctx, src, string(float), convert.Options{Weights: []models.Weights{float}, Devices: []models.Device{c.Device}})
		if err != nil {
			return err
		}
		if err := b.Verify(ctx, nil); err != nil {
			return err
		}
		t.row.Cases = len(b.Manifest.Files)
		return nil
	})
	if b == nil {
		return nil
	}
	if b.Manifest.Dims.Vision != nil {
		c.progress("vision")
		n, err := c.network(m, b, models.KindVision, float, c.Device)
		if err != nil {
			return err
		}
		c.vision(n, b.Manifest.Dims, cfg)
		n.Close()
	}
	c.progress("language model")
	d, err := c.decoder(m, b, float, c.Device)
	if err != nil {
		return err
	}
	c.llm(d)
	d.close()
	c.chat(ctx, b)
	if err := c.awq(ctx, m); err != nil {
		return err
	}
	if err := c.int4(ctx, m, src); err != nil {
		return err
	}
	return c.looks(ctx)
}

// llm compares the language model with its fixtures.
func (c *checker) llm(d *decoder) {
	for _, name := range c.files.in("llm") {
		if path.Ext(name) != ".safetensors" {
			continue
		}
		c.row(stageLLM, name, c.bound(), func(t *tally) error {
			f, err := c.tensors(name)
			if err != nil {
				return err
			}
			if err := d.lookup(t, f); err != nil {
				return err
			}
			return d.compare(t, f, f.floats("inputs_embeds"), c.Device == models.DeviceCPU)
		})
	}
}

// prompts returns the inputs of the language model's fixtures.
func (c *checker) prompts() (map[string][]float32, error) {
	out := map[string][]float32{}
	for _, name := range c.files.in("llm") {
		if path.Ext(name) != ".safetensors" {
			continue
		}
		f, err := c.tensors(name)
		if err != nil {
			return nil, err
		}
		if out[path.Base(name)] = f.floats("inputs_embeds"); f.err != nil {
			return nil, f.err
		}
	}
	return out, nil
}
