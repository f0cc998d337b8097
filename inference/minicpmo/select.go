package minicpmo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/vision"
	"touchline/models"
)

const (
	// chunkTokens is the maximum number of prompt tokens in one run.
	chunkTokens = 512
	// manyRooms is the largest range captured for int4 besides fp16: above it fp16
	// decodes faster on every measured GPU.
	manyRooms = 8
	// textTokens is reserved for the text around the pictures if max_len is 0:
	// profile, instruction, the last comments.
	textTokens = 512
	// fewSlots are enough for the rooms of a small card: with less memory they are made shorter before there are fewer.
	fewSlots = 8
	// shortAnswer is reserved for an answer in a short slot, after the longest text.
	shortAnswer = 48
)

// choose returns the selections of a bundle's graphs that match the settings, in
// order of preference: first fewer slots, down to fewSlots, then shorter ones, then
// those without a store for the beginnings of prompts, and at last still fewer.
func choose(b *models.Bundle, c Config, lengths ...int) ([]selection, error) {
	var all []selection
	asked := c.Slots
	for c.Slots = cmp.Or(asked, DefaultSlots); c.Slots > 0; c.Slots /= 2 {
		for i, length := range lengths {
			shortest := i == len(lengths)-1
			if asked == 0 && len(lengths) > 1 && (shortest && c.Slots > fewSlots || !shortest && c.Slots < fewSlots) {
				continue
			}
			some, err := chooseFor(b, c, length)
			if err != nil {
				return nil, err
			}
			tight := shortest && (asked > 0 || c.Slots <= fewSlots)
			some[len(some)-1].tight, some[len(some)-1].oneSpeaks = tight, tight
			all = append(all, some...)
			if least := &all[len(all)-1]; asked == 0 && shortest && c.Slots == fewSlots && least.prefixes > 0 {
				least.oneSpeaks = false
				without := *least.withoutPrefixes()
				without.oneSpeaks, c.PrefixCache = true, 0
				all = append(all, without)
			}
		}
		if asked > 0 {
			break
		}
	}
	return all, nil
}

// chooseFor is choose for a given number of slots.
func chooseFor(b *models.Bundle, c Config, maxLen int) ([]selection, error) {
	m := &b.Manifest
	device, float := models.DeviceCUDA, models.WeightsFloat16
	if c.Device == string(models.DeviceCPU) {
		device, float = models.DeviceCPU, models.WeightsFloat32
	} else if _, ok := b.Find(models.KindEmbed, models.WeightsBFloat16, device); ok {
		float = models.WeightsBFloat16
	}
	base := selection{device: device, dims: m.Dims, prefixes: int64(c.PrefixCache)}
	var ok bool
	if base.embed, ok = b.Find(models.KindEmbed, float, device); !ok {
		return nil, networks.Lacks(m, models.KindEmbed, float, device)
	}
	if v, ok := b.Find(models.KindVision, float, device); ok && m.Dims.Vision != nil {
		base.vision = &v
	}
	d := m.Dims.Decoder
	base.layout = kvcache.Layout{
		Layers: d.Layers, Slots: c.Slots, KVHeads: d.KVHeads, HeadDim: d.HeadDim, ElemSize: int(base.elem()),
		MaxLen: min(maxLen, d.MaxPositions),
	}
	if err := base.layout.Validate(); err != nil {
		return nil, fmt.Errorf("plan the cache: %w", err)
	}
	base.chunk = min(chunkTokens, base.layout.MaxLen)
	one := func(w models.Weights) (selection, bool) {
		g, ok := b.Find(models.KindDecoder, w, device)
		s := base
		s.decoders, s.captured = []models.Graph{g}, []int{c.Slots}
		return s, ok
	}
	if c.Weights != "auto" {
		s, ok := one(models.Weights(c.Weights))
		if !ok {
			return nil, networks.Lacks(m, models.KindDecoder, models.Weights(c.Weights), device)
		}
		return []selection{s}, nil
	}
	small, hasSmall := one(models.WeightsInt4)
	large, hasLarge := one(float)
	var found []selection
	if hasLarge {
		if hasSmall && device == models.DeviceCUDA {
			large.decoders = []models.Graph{small.decoders[0], large.decoders[0]}
			large.captured, large.prefill = []int{min(manyRooms, c.Slots), c.Slots}, 1
		}
		found = append(found, large)
	}
	if hasSmall {
		found = append(found, small)
	}
	if len(found) == 0 {
		return nil, networks.Lacks(m, models.KindDecoder, float, device)
	}
	return found, nil
}

// lengths returns the maximum tokens of a prompt and its answer: the pictures of a
// look, each with its largest grid, the text around them and the answer. Without
// max_len there is a shorter length for small cards, with pictures that are not cut
// and a short answer.
func lengths(m *models.Manifest, c Settings, frames int) []int {
	most := m.Dims.Decoder.MaxPositions
	if n := c.MiniCPM.MaxLen; n > 0 {
		return []int{min(n, most)}
	}
	images := 1
	if c.MaxSlices > 1 {
		images += c.MaxSlices
	}
	length := func(images, answer int) int {
		n := frames*blockTokens(images, m.Image.Features) + textTokens + answer
		return min((n+63)/64*64, c.MaxInputTokens+answer, most)
	}
	return slices.Compact([]int{length(images, c.MaxTokens), length(1, min(c.MaxTokens, shortAnswer))})
}

// blockTokens returns the maximum tokens of a picture: for each image its features
// between two marks and, after a row of slices, a line break.
func blockTokens(images, features int) int { return images * (features + 2 + 1) }

// visionConfig returns the preprocessing constants of a bundle.
func visionConfig(m *models.Manifest) (vision.Config, error) {
	c := vision.Config{
		PatchSize: m.Image.Patch, Scale: m.Image.ScaleResolution, MaxSlices: m.Image.MaxSlices,
		Mean: m.Image.Mean, Std: m.Image.Std,
	}
	if v := m.Dims.Vision; v != nil {
		c.PositionTable = v.Grid
		if v.Patch != c.PatchSize || v.Queries != m.Image.Features || v.Out != m.Dims.Decoder.Hidden {
			return c, errors.New("manifest: image and dims.vision do not fit each other: convert the checkpoint again")
		}
	}
	return c, c.Validate()
}
