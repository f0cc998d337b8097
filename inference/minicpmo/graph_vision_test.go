package minicpmo_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/vision"
	"touchline/models/graph"
)

// picture is one image of a fixture in the layout of the graph.
type picture struct {
	rows, cols int
	patches    []float32
}

// pictures cuts the strips of a fixture ([3, patch, patch*L] each, padded to
// the longest) into patches.
func pictures(f fixture, patch int) []picture {
	pixels, sizes := f.floats("pixel_values"), f.ints("tgt_sizes")
	strip := len(pixels) / (len(sizes) / 2)
	width := strip / 3 / patch
	var out []picture
	for i := 0; i < len(sizes); i += 2 {
		p := picture{rows: int(sizes[i]), cols: int(sizes[i+1])}
		from := pixels[i/2*strip:]
		for l := range p.rows * p.cols {
			for line := range 3 * patch {
				at := line*width + l*patch
				p.patches = append(p.patches, from[at:at+patch]...)
			}
		}
		out = append(out, p)
	}
	return out
}

// inputs returns the inputs for a batch of pictures of one size.
func (p picture) inputs(m model, batch ...picture) map[string]array {
	length, pixels := int64(p.rows*p.cols), int64(3*m.Vision.Patch*m.Vision.Patch)
	rows, cols := make([]int64, length), make([]int64, length)
	for i := range rows {
		rows[i], cols[i] = int64(i/p.cols), int64(i%p.cols)
	}
	config := vision.Config{PatchSize: m.Vision.Patch, PositionTable: m.Vision.Grid}
	ids := config.Positions(make([]int64, length), p.rows, p.cols)
	patches := p.patches
	for _, b := range batch {
		patches = append(slices.Clip(patches), b.patches...)
	}
	return map[string]array{
		"patches":      floatArray(patches, int64(1+len(batch)), length, pixels),
		"position_ids": intArray(ids, length),
		"rows":         intArray(rows, length),
		"cols":         intArray(cols, length),
	}
}

func TestVision(t *testing.T) {
	m := load(t, "tiny")
	on := startMachine(t)
	d, err := graph.Vision(m.Dims, graph.Options{Device: on.kind, Weights: on.float, Check: true})
	n := on.load(write(t, d, err, m.weights))
	// The production graph, without the outputs of the check.
	d, err = graph.Vision(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	plain := on.load(write(t, d, err, m.weights))
	for _, name := range []string{"single", "tall", "quirk", "unit", "mixed"} {
		f := openFixture(t, "vision_"+name)
		hidden := f.floats("last_hidden_state")
		all := pictures(f, m.Vision.Patch)
		for i, p := range all {
			what := name + " " + strconv.Itoa(i)
			out := n.run(p.inputs(m), nil, 0, 0)
			longest := len(hidden) / len(all)
			want := hidden[i*longest:][:len(out["vision_hidden"].floats)]
			on.near(what+" hidden", want, out["vision_hidden"].floats)
			size := m.Vision.Queries * m.Vision.Out
			if f.has("resampler") {
				want := f.floats("resampler")[i*size:][:size]
				on.near(what+" embeds", want, out["image_embeds"].floats)
				on.near(what+" embeds of the plain graph", want, plain.run(p.inputs(m), nil, 0, 0)["image_embeds"].floats)
			}
			if f.has("embeddings") {
				on.near(what+" embeddings", f.floats("embeddings"), out["vision_embeddings"].floats)
			}
			for l := 0; f.has("hidden_states." + strconv.Itoa(l)); l++ {
				layer := strconv.Itoa(l)
				on.near(what+" layer "+layer, f.floats("hidden_states."+layer), out["vision_layer."+layer].floats)
			}
		}
	}
}

func TestVisionBatch(t *testing.T) {
	m := load(t, "tiny")
	on := startMachine(t)
	d, err := graph.Vision(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	n := on.load(write(t, d, err, m.weights))
	first := pictures(openFixture(t, "vision_single"), m.Vision.Patch)[0]
	second := picture{first.rows, first.cols, slices.Clone(first.patches)}
	slices.Reverse(second.patches)

	one := n.run(first.inputs(m), nil, 0, 0)["image_embeds"]
	two := n.run(second.inputs(m), nil, 0, 0)["image_embeds"]
	require.Greater(t, apart(t, one.floats, two.floats), 0.01, "the pictures are alike")
	both := n.run(first.inputs(m, second, first), nil, 0, 0)["image_embeds"]
	require.Equal(t, []int64{3, int64(m.Vision.Queries), int64(m.Vision.Out)}, both.shape)
	on.near("batch", slices.Concat(one.floats, two.floats, one.floats), both.floats)
}
