package minicpmo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

// published is the part of the real bundle that choosing and planning use.
func published() *models.Bundle {
	const layers, table, towers = 6_945_767_424, 621_559_808, 490_000_000
	graph := func(k models.Kind, w models.Weights, bytes int64) models.Graph {
		return models.Graph{Kind: k, Weights: w, Device: models.DeviceCUDA, WeightBytes: bytes, File: string(k) + ".onnx"}
	}
	return &models.Bundle{Manifest: models.Manifest{
		Name: "MiniCPM-o 4.5",
		Dims: models.Dims{
			Decoder: models.Decoder{
				Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 12288, Vocab: 151748, MaxPositions: 8192,
			},
			Vision: &models.Vision{Layers: 26, Hidden: 1152, Heads: 16, FFN: 4304, Patch: 14, Grid: 70, Queries: 64, Out: 4096},
		},
		Image: models.Image{Features: 64, Patch: 14},
		Graphs: []models.Graph{
			graph(models.KindDecoder, models.WeightsInt4, layers*9/16+table*17/16),
			graph(models.KindDecoder, models.WeightsFloat16, 2*(layers+table)),
			graph(models.KindVision, models.WeightsFloat16, 2*towers),
			graph(models.KindEmbed, models.WeightsFloat16, 2*table),
		},
	}}
}

func TestPlanOfThePublishedModel(t *testing.T) {
	b := published()
	c := DefaultSettings()
	c.MiniCPM.Slots = 64
	both, err := choose(b, c.MiniCPM, 1024)
	require.NoError(t, err)
	require.Len(t, both, 2, "both sets, or int4 alone")
	require.Equal(t, 1, both[0].prefill, "prompts go through fp16")
	large, small := both[0].plan("card"), both[1].plan("card")
	t.Log(large)
	t.Log(small)
	require.Less(t, small.Total(), int64(24e9), "int4 alone fits a card of 24 GB")
	require.Less(t, large.Total(), int64(48e9))
	require.Greater(t, large.Total(), int64(30e9))
	require.Contains(t, both[0].smaller(24e9), "weights: int4 alone")
	require.Equal(t, []string{"slots: 32"}, both[1].smaller(small.Total()-3e9))
	require.Empty(t, both[1].smaller(3e9))

	c.MiniCPM.Weights = "fp16"
	one, err := choose(b, c.MiniCPM, 1024)
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, []int{64}, one[0].captured)
	c.MiniCPM.Device, c.MiniCPM.Weights = "cpu", "auto"
	_, err = choose(b, c.MiniCPM, 1024)
	require.ErrorContains(t, err, `expected a bundle with the embed in fp32 for cpu, has ["fp16 for cuda"]`)
}

// The default settings select int4 on a GPU of 24 GB, with as many slots as fit.
// On the CPU the vision tower has buffers for one picture of the patches that its model has.
func TestPlanOfVisionOnTheCPU(t *testing.T) {
	small := func(d models.Device, patch int) *selection {
		dims := models.Dims{
			Decoder: models.Decoder{Layers: 4, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 768, Vocab: 1536},
			Vision:  &models.Vision{Layers: 5, Hidden: 192, Heads: 3, FFN: 768, Patch: patch, Queries: 16, Out: 256},
		}
		return &selection{device: d, dims: dims, vision: &models.Graph{}, chunk: 512}
	}
	require.Equal(t, 1, small(models.DeviceCPU, 28).images())
	require.Equal(t, batchLimit, small(models.DeviceCUDA, 28).images())
	require.Less(t, small(models.DeviceCPU, 28).bufferBytes(), int64(4e6))
	require.InEpsilon(t, small(models.DeviceCPU, 14).bufferBytes(), small(models.DeviceCPU, 28).bufferBytes(), 0.01, "as many pixels")
	require.Less(t, small(models.DeviceCPU, 28).workspaceBytes(), small(models.DeviceCPU, 14).workspaceBytes())
}

func TestSlotsThatFit(t *testing.T) {
	b, c := published(), DefaultSettings()
	length := maxLen(&b.Manifest, c, 4)
	for _, tt := range []struct {
		free    int64
		weights []models.Weights
		slots   int
	}{
		{141e9, []models.Weights{models.WeightsInt4, models.WeightsFloat16}, 64},
		{47e9, []models.Weights{models.WeightsInt4, models.WeightsFloat16}, 64},
		{23.5e9, []models.Weights{models.WeightsInt4}, 32},
		{15.5e9, []models.Weights{models.WeightsInt4}, 16},
	} {
		options, err := choose(b, c.MiniCPM, length)
		require.NoError(t, err)
		for _, s := range options {
			if s.plan("card").Total() > tt.free {
				continue
			}
			var weights []models.Weights
			for _, g := range s.decoders {
				weights = append(weights, g.Weights)
			}
			require.Equal(t, tt.weights, weights, "%d bytes", tt.free)
			require.Equal(t, tt.slots, s.layout.Slots, "%d bytes", tt.free)
			break
		}
	}
}

func TestMaxLen(t *testing.T) {
	m := &published().Manifest
	c := DefaultSettings()
	c.MaxSlices, c.MaxTokens = 1, 64
	require.Equal(t, 896, maxLen(m, c, 4), "4 x 67 + 512 + 64, rounded up")
	c.MaxSlices = 2
	require.Equal(t, 1408, maxLen(m, c, 4))
	c.MiniCPM.MaxLen = 700
	require.Equal(t, 700, maxLen(m, c, 4))
	c.MiniCPM.MaxLen = 100_000
	require.Equal(t, 8192, maxLen(m, c, 4), "no longer than the rotary tables")
}
