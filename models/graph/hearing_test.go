package graph_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/graph"
)

// recognizer returns the sizes of Qwen3-ASR-0.6B.
func recognizer() models.Dims {
	return models.Dims{
		Decoder: models.Decoder{
			Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072, Vocab: 151936,
			Epsilon: 1e-6, RopeTheta: 1e6, MaxPositions: 4096, TiedHead: true,
		},
		Hearing: &models.Hearing{
			Layers: 18, Hidden: 896, Heads: 14, FFN: 3584, Channels: 480, Out: 1024, Mel: 128, Chunk: 100, Window: 8, Epsilon: 1e-5,
		},
	}
}

// aligner returns those of Qwen3-ForcedAligner-0.6B.
func aligner() models.Dims {
	d := recognizer()
	d.Decoder.Vocab, d.Decoder.TiedHead = 152064, false
	d.Hearing = &models.Hearing{
		Layers: 24, Hidden: 1024, Heads: 16, FFN: 4096, Channels: 480, Out: 1024, Mel: 128, Chunk: 100, Window: 8, Epsilon: 1e-5,
		Classes: 5000, StepMS: 80,
	}
	return d
}

// The numbers of parameters are those of the published models.
func TestHearingSizes(t *testing.T) {
	const rotary, places = 4096 * 128, 13
	for _, tt := range []struct {
		name     string
		describe func(models.Dims, graph.Options) (*graph.Description, error)
		dims     models.Dims
		want     int
	}{
		{"encoder", graph.Hearing, recognizer(), 186376192 + places*896},
		{"decoder", graph.Decoder, recognizer(), 155582464 + 440467456 + rotary},
		{"encoder of the aligner", graph.Hearing, aligner(), 316427904 + places*1024},
		{"aligner", graph.Aligner, aligner(), 440467456 + 5120000 + rotary},
		{"embedding of the aligner", graph.Embed, aligner(), 155713536},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, o := range []graph.Options{cpu, cudaHalf} {
				d, err := tt.describe(tt.dims, o)
				require.NoError(t, err)
				n := 0
				for _, w := range d.Weights {
					n += int(w.Elements())
				}
				want := tt.want
				if name := d.Kind; o == cudaHalf && (name == models.KindDecoder || name == models.KindAligner) {
					want++ // the scale of the residual
				}
				require.Equal(t, want, n)
				b, err := d.Encode(place(t))
				require.NoError(t, err)
				require.Less(t, len(b), 1<<20)
			}
		})
	}
}

func TestHearingPorts(t *testing.T) {
	d, err := graph.Hearing(recognizer(), cudaHalf)
	require.NoError(t, err)
	require.Equal(t, []models.Port{
		{Name: "mel", Type: models.Float32, Shape: []string{"W", "128", "T"}}, {Name: "rows", Type: models.Int32, Shape: []string{"W"}},
	}, d.Inputs)
	require.Equal(t, []models.Port{{Name: "audio", Type: models.Float16, Shape: []string{"W", "R", "1024"}}}, d.Outputs)
	d, err = graph.Aligner(aligner(), cudaHalf)
	require.NoError(t, err)
	require.Equal(t, models.Port{Name: "positions", Type: models.Int64, Shape: []string{"K"}}, d.Inputs[3])
	require.Equal(t, []models.Port{{Name: "classes", Type: models.Int64, Shape: []string{"K"}}}, d.Outputs)
}

// On CUDA the residual is smaller, so that float16 holds it, and all that is added to it is so too.
func TestSmallResidual(t *testing.T) {
	const scale = 1.0 / 16
	for _, tt := range []struct {
		dims    models.Dims
		options graph.Options
		small   int // matrices
	}{{recognizer(), cudaHalf, 2 * 28}, {recognizer(), cudaInt4, 2 * 2 * 28}, {recognizer(), cpu, 0}, {dims(), cudaHalf, 0}} {
		d, err := graph.Decoder(tt.dims, tt.options)
		require.NoError(t, err)
		small := 0
		for _, w := range d.Weights {
			if w.Scale != 0 {
				require.InDelta(t, scale, w.Scale, 0)
				require.True(t, strings.Contains(w.Name, ".o.") || strings.Contains(w.Name, ".down."), w.Name)
				small++
			}
		}
		require.Equal(t, tt.small, small)
		m, err := d.Model(place(t))
		require.NoError(t, err)
		for _, n := range m.Graph.Nodes {
			require.NotEqual(t, "GatherND", n.Op, "it copies from the host: replays of a captured graph would read freed memory")
			if n.Op != "SkipSimplifiedLayerNormalization" && n.Op != "SimplifiedLayerNormalization" || strings.Contains(n.Name, "_norm.") ||
				strings.HasSuffix(n.Inputs[0], ".heads") {
				continue
			}
			epsilon := tt.dims.Decoder.Epsilon
			if tt.small > 0 {
				epsilon *= scale * scale
			}
			require.InDelta(t, epsilon, n.Attributes[0].Value, epsilon*1e-6, n.Name)
		}
	}
}

func TestHearingRefuses(t *testing.T) {
	for _, tt := range []struct {
		describe func(models.Dims, graph.Options) (*graph.Description, error)
		dims     models.Dims
		options  graph.Options
		want     string
	}{
		{graph.Hearing, dims(), cpu, "no encoder of sound"},
		{graph.Aligner, recognizer(), cpu, "no classes"},
		{graph.Hearing, recognizer(), cudaInt4, "weights: must be fp16 for CUDA"},
		{graph.Aligner, aligner(), cudaInt4, "weights: must be fp16 for CUDA"},
	} {
		_, err := tt.describe(tt.dims, tt.options)
		require.ErrorContains(t, err, tt.want)
	}
}
