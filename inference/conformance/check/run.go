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

func (c *checker) run(ctx context.Context) {
	if c.Work == "" {
		c.Work = need(os.MkdirTemp("", "touchline-check-"))
		defer func() { _ = os.RemoveAll(c.Work) }()
	}
	m := need(host.Open(c.Library, c.DeviceIndex))
	defer m.Close()

	src := c.checkpoint("checkpoint")
	if src != nil {
		defer func() { _ = src.Close() }()
	}
	ts := texts{c}.tokenizers()
	c.progress("tokenizer")
	texts{c}.tokenizer(ts)
	c.progress("sampler")
	c.sampler()
	if src == nil {
		return // its row has the error
	}
	manifest := need(src.Describe())
	if manifest.Dims.Hearing != nil {
		ears{c}.hears(ctx, m, src, ts)
		return
	}
	cfg := visionConfig(manifest)
	c.progress("prompts")
	texts{c}.prompt(ts, cfg, manifest.Image.Features)
	c.progress("pictures")
	pictures{c}.images(cfg)
	c.networks(ctx, m, src, cfg)
	c.voice(ctx, m)
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
	c.row(stage, dir, 0, func(t *tally) {
		src = need(checkpoint.Open(filepath.Join(c.Golden, dir)))
		need(src.Describe())
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

// bundle converts a checkpoint, for the check's device if o names none.
func (c *checker) bundle(ctx context.Context, src convert.Source, name string, o convert.Options) *models.Bundle {
	c.progress("convert " + name)
	dir := filepath.Join(c.Work, name)
	if o.Check = true; o.Devices == nil {
		o.Devices = []models.Device{c.Device}
	}
	must(convert.Convert(ctx, src, dir, o))
	return need(models.OpenBundle(dir))
}

// network opens a graph of a bundle.
func (c *checker) network(m *host.Machine, b *models.Bundle, kind models.Kind, w models.Weights, d models.Device) *host.Network {
	g, ok := b.FindCheck(kind, w, d)
	if !ok {
		if g, ok = b.Find(kind, w, d); !ok {
			must(fmt.Errorf("no graph %s %s for %s in %s", kind, w, d, b.Dir))
		}
	}
	return need(m.Open(b, g))
}

// decoder opens the language model of a bundle.
func (c *checker) decoder(m *host.Machine, b *models.Bundle, w models.Weights, d models.Device) *decoder {
	llm, embed := c.network(m, b, models.KindDecoder, w, d), c.network(m, b, models.KindEmbed, c.floats(d), d)
	return &decoder{dims: b.Manifest.Dims.Decoder, llm: llm, embed: embed}
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

// floats returns the float format of a device's graphs in these rows.
func (c *checker) floats(d models.Device) models.Weights {
	if c.wide && d == c.Device {
		return models.WeightsBFloat16
	}
	return floatWeights(d)
}

// networks converts the checkpoint and checks its graphs.
func (c *checker) networks(ctx context.Context, m *host.Machine, src *checkpoint.Checkpoint, cfg vision.Config) {
	b := c.words(ctx, m, src, cfg)
	if b == nil {
		return
	}
	c.chat(ctx, b)
	c.awq(ctx, m, src)
	c.int4(ctx, m, src, "int4")
	if c.wide = c.Device == models.DeviceCUDA; c.wide {
		if c.words(ctx, m, src, cfg) != nil {
			c.int4(ctx, m, src, "int4")
		}
		c.wide = false
	}
	c.looks(ctx)
}

// words converts the checkpoint to floats, and checks its vision tower and language model.
func (c *checker) words(ctx context.Context, m *host.Machine, src *checkpoint.Checkpoint, cfg vision.Config) *models.Bundle {
	b := c.floatBundle(ctx, src, "checkpoint")
	if b == nil {
		return nil
	}
	if b.Manifest.Dims.Vision != nil {
		c.progress("vision")
		n := c.network(m, b, models.KindVision, c.floats(c.Device), c.Device)
		c.vision(n, b.Manifest.Dims, cfg)
		n.Close()
	}
	c.progress("language model")
	c.llm(m, b)
	return b
}

// llm compares the language model with its fixtures.
func (c *checker) llm(m *host.Machine, b *models.Bundle) {
	d := c.decoder(m, b, c.floats(c.Device), c.Device)
	defer d.close()
	for _, name := range c.files.tensors("llm") {
		c.row(stageLLM, name, c.bound(), func(t *tally) {
			f := c.tensors(name)
			d.lookup(t, f)
			d.compare(t, f, f.floats("inputs_embeds"), c.Device == models.DeviceCPU)
		})
	}
}
