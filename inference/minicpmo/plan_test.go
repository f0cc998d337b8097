package minicpmo

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice"
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
	require.Contains(t, small.Parts, networks.PlanPart{Name: "shared prompts", Bytes: 500e6})
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

func TestPlanOfOwnKernels(t *testing.T) {
	b, c := published(), DefaultSettings()
	c.MiniCPM.Slots, c.MiniCPM.Weights = 8, "int4"
	own := func(maxLen int) (bytes int64) {
		all, err := choose(b, c.MiniCPM, maxLen)
		require.NoError(t, err)
		for _, part := range all[0].plan("card").Parts {
			if part.Name == "own kernels" {
				bytes = part.Bytes
			}
		}
		return bytes
	}
	require.Zero(t, own(1088), "the bundle lacks the places of its weights")
	g := &b.Manifest.Graphs[0]
	g.Head, g.Block, g.Tensors = 4, 32, []models.Tensor{{}}
	t.Log(own(1088), own(8192))
	require.InDelta(t, 4.5e6, own(1088), 1.5e6)
	require.InDelta(t, 17e6, own(8192), 3e6)
	g.Head = 16
	require.Zero(t, own(1088), "sizes that the kernels do not support")
}

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
	require.Less(t, small(models.DeviceCPU, 28).visionBytes(), small(models.DeviceCPU, 14).visionBytes())
}

// The default settings select int4 on a GPU of 24 GB, with as many slots as fit.
func TestSlotsThatFit(t *testing.T) {
	b, c := published(), DefaultSettings()
	both := lengths(&b.Manifest, c, 4)
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
		options, err := choose(b, c.MiniCPM, both...)
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
	require.Equal(t, []int{896, 832}, lengths(m, c, 4), "4 x 67 + 512 + 64, rounded up")
	c.MaxSlices = 2
	require.Equal(t, []int{1408, 832}, lengths(m, c, 4), "short slots have pictures that are not cut")
	c.MaxSlices, c.MaxTokens = 1, 40
	require.Equal(t, []int{832}, lengths(m, c, 4))
	c.MiniCPM.MaxLen = 700
	require.Equal(t, []int{700}, lengths(m, c, 4))
	c.MiniCPM.MaxLen = 100_000
	require.Equal(t, []int{8192}, lengths(m, c, 4), "no longer than the rotary tables")
}

// speaking is the published bundle with its voice.
func speaking() *models.Bundle {
	b := published()
	b.Manifest.Dims.Speech = &models.Speech{
		TTS: models.TTS{Layers: 20, Hidden: 768, Heads: 12, FFN: 3072, Codes: 6562, MaxPositions: 4096},
		Flow: models.Flow{
			Hidden: 512, Blocks: 6, UpBlocks: 4, Mel: 80, Speaker: 192,
			DiT: models.DiT{Layers: 16, Hidden: 512, Heads: 8, HeadDim: 64, Steps: 10},
		},
		Vocoder: models.Vocoder{Channels: 512},
	}
	for _, k := range []models.Kind{
		models.KindTTSCondition, models.KindTTS, models.KindFlowEncoder, models.KindFlowDiT, models.KindFlowDiTOnce, models.KindVocoder,
	} {
		b.Manifest.Graphs = append(b.Manifest.Graphs, models.Graph{
			Kind: k, Weights: models.WeightsFloat16, Device: models.DeviceCUDA, WeightBytes: 300e6, File: string(k) + ".onnx",
		})
	}
	return b
}

// whole is the published bundle with a vocabulary matrix of 4 or 8 bits, and a voice that takes what was measured of the real one.
func whole(head int) *models.Bundle {
	b := speaking()
	g := &b.Manifest.Graphs[0]
	g.Head, g.Block, g.Tensors = head, 32, []models.Tensor{{}}
	if head == 4 {
		g.WeightBytes -= 621_559_808 / 2
	}
	for i := range b.Manifest.Graphs {
		if g := &b.Manifest.Graphs[i]; g.Kind.Speaks() {
			g.WeightBytes = 975_000_000 / 6
		}
	}
	return b
}

// openCPU opens the CPU until the end of the test.
func openCPU(t *testing.T) *ort.Device {
	t.Helper()
	rt, err := ort.Open("../../bin/runtime")
	if err != nil {
		t.Skip("make runtime")
	}
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	dev, err := rt.NewDevice(ort.CPU, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// TestPlanOfBudgets: a budget has the plan of a card with that much free memory, and smaller ones have fewer, then shorter slots and
// references before they have no voice.
func TestPlanOfBudgets(t *testing.T) {
	dev := openCPU(t)
	fit := func(b *models.Bundle, memory string, free int64) (string, *Engine, error) {
		c := DefaultSettings()
		c.MiniCPM.Memory = memory
		require.NoError(t, c.MiniCPM.Validate())
		options, err := choose(b, c.MiniCPM, lengths(&b.Manifest, c, 4)...)
		require.NoError(t, err)
		e := &Engine{ownVoice: true}
		e.budget, _ = c.MiniCPM.Budget()
		for i := range options {
			options[i].opened = openedBytes
			e.chooseVoice(b, &options[i], c.Voice)
		}
		s, err := e.fit(options, dev, testOptions{free: free})
		if err != nil {
			return "", e, err
		}
		t.Log(memory, e.plan)
		text := fmt.Sprintf("%s, %d slots of %d tokens", strings.Join(s.names(), " and "), s.layout.Slots, s.layout.MaxLen)
		if s.voice != nil {
			text += fmt.Sprintf(", speaks %d with %d s", s.voice.Layout.Slots, s.voice.Prompt/50)
		}
		if s.prefixes == 0 {
			text += ", no store"
		}
		return text, e, nil
	}
	for _, tt := range []struct {
		memory string
		head   int
		want   string
	}{
		{"8GB", 4, "int4, 2 slots of 832 tokens, no store"},
		{"10GB", 4, "int4, 8 slots of 832 tokens"},
		{"10.5GB", 4, "int4, 2 slots of 832 tokens, speaks 1 with 3 s, no store"},
		{"11GB", 4, "int4, 4 slots of 832 tokens, speaks 1 with 3 s, no store"},
		{"12GB", 4, "int4, 8 slots of 832 tokens, speaks 2 with 6 s, no store"},
		{"12GB", 8, "int4, 8 slots of 832 tokens, speaks 2 with 3 s, no store"},
		{"16GB", 4, "int4, 16 slots of 1856 tokens, speaks 2 with 6 s"},
		{"24GB", 4, "int4, 32 slots of 1856 tokens, speaks 8 with 6 s"},
		{"24GB", 8, "int4, 32 slots of 1856 tokens, speaks 8 with 6 s"},
		{"48GB", 8, "int4 and fp16, 64 slots of 1856 tokens, speaks 8 with 6 s"},
		{"141GB", 8, "int4 and fp16, 64 slots of 1856 tokens, speaks 16 with 6 s"},
	} {
		got, e, err := fit(whole(tt.head), tt.memory, 150e9)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got, "%s, head of %d bits", tt.memory, tt.head)
		assert.LessOrEqual(t, e.plan.Total(), e.budget)
		free, _, err := fit(whole(tt.head), "auto", e.budget)
		require.NoError(t, err)
		assert.Equal(t, got, free, "a card with as much free memory")
	}
	_, _, err := fit(whole(8), "7.7GB", 150e9)
	require.EqualError(t, err, "the model needs 7.98 GB of memory on CPU and 7.70 GB are allowed by inference.minicpmo.memory: "+
		"it would fit with a bundle made with --head 4")
	_, _, err = fit(whole(8), "24GB", 7e9)
	require.EqualError(t, err, "the model needs 7.98 GB of memory on CPU and 7.00 GB are free: no setting would make it fit")
}

// speakingBytes returns the memory of a voice's slots, which is the last part of its plan.
func speakingBytes(v *voice.Selection) int64 {
	var p networks.Plan
	v.Plan(&p)
	return p.Parts[len(p.Parts)-1].Bytes
}

// TestPlanOfTheVoice: a speaking slot takes what the official shapes need, and with less memory there are fewer of them before there are
// fewer rooms.
func TestPlanOfTheVoice(t *testing.T) {
	b, c := speaking(), DefaultSettings()
	c.MiniCPM.Slots, c.MiniCPM.Weights = 32, "int4"
	options := func(v inference.VoiceConfig) *selection {
		all, err := choose(b, c.MiniCPM, 1024)
		require.NoError(t, err)
		s := &all[0]
		s.voice, err = voice.Choose(b, s.device, s.layout.Slots, v)
		require.NoError(t, err)
		return s
	}
	s := options(c.Voice)
	require.Equal(t, 16, s.voice.Layout.Slots)
	for prompt, want := range map[int]float64{300: 0.66e6*(300+156) + 40e6 + 61e3*1152, 150: 0.66e6*(150+156) + 40e6 + 61e3*1152} {
		v := s.withVoice(1, prompt).voice
		require.InEpsilon(t, want, speakingBytes(v), 0.03, "a slot of %d frames", prompt)
	}
	half := s.voice
	for i := range b.Manifest.Graphs {
		if g := &b.Manifest.Graphs[i]; g.Kind.Speaks() {
			g.Weights = models.WeightsFloat32
		}
	}
	exact := options(c.Voice).voice
	require.Equal(t, 2*half.Layout.Bytes(), exact.Layout.Bytes())
	require.Equal(t, 2*speakingBytes(half), speakingBytes(exact))
	b = speaking()

	v := c.Voice
	v.Slots, v.Prompt = 4, inference.ShortPrompt
	require.Equal(t, []int{4, 150}, []int{options(v).voice.Layout.Slots, options(v).voice.Prompt})

	alone := *s
	alone.voice = nil
	model := alone.plan("").Total()
	for extra, want := range map[int64]int{20e9: 16, 9e9: 8, 5.7e9: 4, 4e9: 2, 3.5e9: 1, 2e9: 0} {
		fits, ok := s.speaking(model + extra)
		require.Equal(t, want > 0, ok, "%d bytes beside the model", extra)
		if ok {
			require.Equal(t, want, fits.voice.Layout.Slots, "%d bytes beside the model", extra)
			require.Equal(t, 32, fits.layout.Slots)
		}
	}
	require.EqualError(t, s.speechless(model+2e9), "no memory for the model's own voice: it needs 3.49 GB, and 2.00 GB are free "+
		"beside the model; it fits with inference.minicpmo.slots: 16")
	least := s.withVoice(1, 150).plan("").Total()
	s.decoders[0].Head = 8
	require.ErrorContains(t, s.speechless(least-3e8), "it fits with inference.minicpmo.prefix_cache: 0, or with a bundle made with --head 4, "+
		"or with inference.minicpmo.slots: 16")
}

// TestVoiceWithoutMemory: the model is loaded without its voice, and the status says so if the settings ask for one.
func TestVoiceWithoutMemory(t *testing.T) {
	dev := openCPU(t)
	for _, asked := range []bool{true, false} {
		b, c := speaking(), DefaultSettings()
		options, err := choose(b, c.MiniCPM, 1024)
		require.NoError(t, err)
		e := &Engine{ownVoice: asked}
		for i := range options {
			e.chooseVoice(b, &options[i], c.Voice)
		}
		last := options[len(options)-1]
		last.voice = nil
		s, err := e.fit(options, dev, testOptions{free: last.plan("").Total() + 1e8})
		require.NoError(t, err)
		require.Nil(t, s.voice)
		require.Equal(t, 1, s.layout.Slots)
		require.Equal(t, asked, e.voiceProblem != "", e.voiceProblem)

		options, err = choose(b, c.MiniCPM, 1024)
		require.NoError(t, err)
		e.chooseVoice(b, &options[0], c.Voice)
		with := options[0].withVoice(4, 300).plan("").Total()
		s, err = (&Engine{}).fit(options[:1], dev, testOptions{free: with})
		require.NoError(t, err)
		require.Equal(t, "4 of "+strconv.Itoa(64), strconv.Itoa(s.voice.Layout.Slots)+" of "+strconv.Itoa(s.layout.Slots))
	}
}
