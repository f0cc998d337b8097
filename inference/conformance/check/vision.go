package check

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"touchline/inference/internal/host"
	"touchline/inference/internal/vision"
	"touchline/models"
	"touchline/models/graph"
)

// Bounds of float32 on a CPU, and of float16 and bfloat16 (8 bits) on CUDA, relative to the largest
// value of a tensor.
const (
	boundFloat32  = 1e-4
	boundFloat16  = 2e-2
	boundBFloat16 = 6e-2
)

func (c *checker) bound() float64 {
	switch {
	case c.wide:
		return boundBFloat16
	case c.Device == models.DeviceCUDA:
		return boundFloat16
	}
	return boundFloat32
}

// vision runs the tower and the resampler on the fixtures.
func (c *checker) vision(n *host.Network, dims models.Dims, cfg vision.Config) {
	for _, name := range c.files.in("vision") {
		switch path.Base(name) {
		case "position_buckets.json":
			c.row(stageVision, name, 0, func(t *tally) { c.buckets(t, name, cfg) })
		case "resampler_pos.safetensors":
			c.row(stageVision, name, boundFloat32, func(t *tally) { c.places(t, name, dims) })
		default:
			if path.Ext(name) == ".safetensors" {
				c.row(stageVision, name, c.bound(), func(t *tally) { c.tower(t, n, name, cfg) })
			}
		}
	}
}

// odd reports whether the recorded buckets of a patch count depend on the processor
// that computed them: float32 rounding of a vectorised sum.
func odd(n int) bool { return slices.Contains([]int{25, 49, 50, 55, 58}, n) }

func (c *checker) buckets(t *tally, name string, cfg vision.Config) {
	var buckets map[string][]int64
	c.files.json(name, &buckets)
	for key, want := range buckets {
		n, err := strconv.Atoi(key)
		if err != nil || n < 1 || n != len(want) {
			must(fmt.Errorf("expected a patch count and as many buckets, got %q with %d", key, len(want)))
		}
		// Buckets beyond the table are recorded too.
		if odd(n) || n > cfg.PositionTable {
			continue
		}
		got := cfg.Positions(make([]int64, n), 1, n)
		t.exact(slices.Equal(got, want), "%d patches: expected %v, got %v", n, want, got)
	}
}

// places compares the graph's table of sinusoidal positions.
func (c *checker) places(t *tally, name string, dims models.Dims) {
	f := c.tensors(name)
	d := need(graph.Vision(dims, graph.Options{Device: models.DeviceCPU, Weights: models.WeightsFloat32}))
	i := slices.IndexFunc(d.Weights, func(w graph.Weight) bool { return w.Name == "places" })
	if i < 0 {
		must(errors.New("the graph has no table of places"))
	}
	table, half := d.Weights[i].Floats, dims.Vision.Out/2
	for _, tensor := range f.file.Names() {
		row, col, rows, cols := 0, 0, 1, 1
		if shape := f.get(tensor).Shape; len(shape) == 3 {
			rows, cols = shape[0], shape[1]
		} else if _, err := fmt.Sscanf(tensor, "pos_embed_%d_%d", &row, &col); err != nil {
			must(fmt.Errorf("expected a tensor pos_embed_ROW_COLUMN, got %s", tensor))
		}
		var got []float32
		for r := row; r < row+rows; r++ {
			for c := col; c < col+cols; c++ {
				if max(r, c) >= dims.Vision.MaxSide {
					must(fmt.Errorf("%s: the table has %d places", tensor, dims.Vision.MaxSide))
				}
				got = append(got, table[c*half:][:half]...)
				got = append(got, table[r*half:][:half]...)
			}
		}
		t.near(got, f.floats(tensor), tensor)
	}
}

// tower runs each image of a fixture separately. The official batches have masked
// padding, which is omitted here.
func (c *checker) tower(t *tally, n *host.Network, name string, cfg vision.Config) {
	f := c.tensors(name)
	all, grids, mask := f.floats("pixel_values"), f.ints("tgt_sizes"), f.get("patch_attention_mask").Data
	side, shape := cfg.PatchSize, f.get("pixel_values").Shape
	if len(shape) != 4 || shape[1] != 3 || shape[2] != side || shape[3]%side != 0 || len(grids) != 2*shape[0] {
		must(fmt.Errorf("expected pixel_values [B,3,%d,%d*L] and tgt_sizes [B,2], got %v and %d numbers", side, side, shape, len(grids)))
	}
	longest := shape[3] / side
	for b := range shape[0] {
		rows, cols := int(grids[2*b]), int(grids[2*b+1])
		count := rows * cols
		if rows < 1 || cols < 1 || count > longest {
			must(fmt.Errorf("image %d: expected at most %d patches, got %dx%d", b, longest, rows, cols))
		}
		masked := len(mask) == shape[0]*longest
		for p := 0; masked && p < longest; p++ {
			masked = (mask[b*longest+p] != 0) == (p < count)
		}
		t.exact(masked, "image %d: the mask does not cover its %d patches", b, count)
		in := patchInputs(cfg, patchesOf(all[b*3*side*side*longest:], side, longest, count), rows, cols)
		c.compareTower(t, n, f, in, b, shape[0])
	}
}

// patchInputs returns the tower's inputs for one image of rows x cols patches.
func patchInputs(cfg vision.Config, patches []float32, rows, cols int) map[string]host.Value {
	count := rows * cols
	places := [2][]int64{}
	for p := range count {
		places[0], places[1] = append(places[0], int64(p/cols)), append(places[1], int64(p%cols))
	}
	return map[string]host.Value{
		"patches":      {Shape: []int{1, count, 3 * cfg.PatchSize * cfg.PatchSize}, Floats: patches},
		"position_ids": {Shape: []int{count}, Ints: cfg.Positions(make([]int64, count), rows, cols)},
		"rows":         {Shape: []int{count}, Ints: places[0]}, "cols": {Shape: []int{count}, Ints: places[1]},
	}
}

// compareTower runs image b of a fixture and compares the fixture's outputs.
func (c *checker) compareTower(t *tally, n *host.Network, f *tensors, in map[string]host.Value, b, images int) {
	names := map[string]string{"last_hidden_state": "vision_hidden", "resampler": "image_embeds", "embeddings": "vision_embeddings"}
	for i := 0; f.has("hidden_states." + strconv.Itoa(i)); i++ {
		names["hidden_states."+strconv.Itoa(i)] = "vision_layer." + strconv.Itoa(i)
	}
	var want []string
	for fixture, output := range names {
		if f.has(fixture) {
			want = append(want, output)
		}
	}
	out := need(n.Run(in, want...))
	for fixture, output := range names {
		if !f.has(fixture) {
			continue
		}
		expected := f.floats(fixture)
		per := len(expected) / images
		got := out[output].Floats
		if per < len(got) || fixture == "resampler" && per != len(got) {
			must(fmt.Errorf("%s: expected at least %d numbers per image, got %d", fixture, len(got), per))
		}
		t.near(got, expected[b*per:][:len(got)], fmt.Sprintf("image %d: %s", b, fixture))
	}
}

// patchesOf returns the first count patches of a strip [3,side,side*longest], one
// per row, in the order channel, y, x.
func patchesOf(strip []float32, side, longest, count int) []float32 {
	out := make([]float32, 0, count*3*side*side)
	for p := range count {
		for line := range 3 * side {
			out = append(out, strip[line*side*longest+p*side:][:side]...)
		}
	}
	return out
}
