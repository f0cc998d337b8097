package minicpmo

import (
	"errors"
	"fmt"
	"strings"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice"
	"touchline/models"
)

// selection is the set of graphs of an engine with their parameters.
type selection struct {
	device   models.Device
	decoders []models.Graph
	prefill  int // index of the decoder for prompts
	vision   *models.Graph
	embed    models.Graph
	dims     models.Dims
	layout   kvcache.Layout
	chunk    int
	prefixes int64 // bytes of the store for the beginnings of prompts
	captured []int // by decoder: the largest range captured
	oneFirst bool  // also on the CPU, for tests
	voice    *voice.Selection
	opened   int64 // bytes of the context that the device has before anything is loaded
	tight    bool  // short references come before a selection after this one
	// oneSpeaks makes one speaking slot come before a selection after this one.
	oneSpeaks bool
}

// Memory of a CUDA process besides its allocations: the context with the kernels
// of the runtime and of cuBLAS, and each captured graph. Measured on an H200 with
// ONNX Runtime 1.30. openedBytes, which is assumed, is what a device takes at most as soon
// as it is open. spareBytes is what is used beyond the other parts: 0.5 GB with 8 to 32 slots, for
// arenas in pieces, buffers of cuBLAS, and pictures of further sizes.
const (
	openedBytes  = 600e6
	contextBytes = 620 << 20
	graphBytes   = 640 << 10
	spareBytes   = 550e6
)

// several reports whether a given text, which only a voice reads, can have its states from one run.
func (s *selection) several() bool { return s.voice != nil && s.decoders[s.prefill].Several() }

// first returns the number of weight sets without which no answer begins. On a GPU the second set only makes prompts and many rooms
// faster.
func (s *selection) first() int {
	if s.device == models.DeviceCUDA || s.oneFirst {
		return 1
	}
	return len(s.decoders)
}

// names returns the names of the weight sets.
func (s *selection) names() []string {
	names := make([]string, len(s.decoders))
	for i, g := range s.decoders {
		names[i] = string(g.Weights)
	}
	return names
}

// plan returns the memory of the selection.
func (s *selection) plan(device string) networks.Plan {
	p := networks.Plan{Device: device}
	add := p.Add
	for _, g := range s.decoders {
		add(string(g.Weights)+" weights", g.WeightBytes)
	}
	if s.vision != nil {
		add("vision", s.vision.WeightBytes)
	}
	// The table of token embeddings stays in its mapped file on the host.
	if s.device == models.DeviceCPU {
		add("embedding table", s.embed.WeightBytes)
	}
	add(fmt.Sprintf("%d slots of %d tokens", s.layout.Slots, s.layout.MaxLen), s.layout.Bytes())
	add("shared prompts", s.prefixes)
	for _, g := range s.decoders { // also where they are then switched off or NVRTC is missing
		if noOwn(g, Options{}) == nil {
			add("own kernels", s.ownShape(g).Bytes())
		}
	}
	add("buffers", s.bufferBytes())
	workspace := s.visionBytes()
	for _, g := range s.decoders {
		workspace += s.workspaceBytes(g)
	}
	add("workspace", workspace)
	if s.device == models.DeviceCUDA {
		var graphs int64
		for _, most := range s.captured {
			graphs += int64(len(s.layout.Ranges(most)))
		}
		add("graphs", graphs*graphBytes)
		add("context", s.opened+contextBytes)
		add("spare", spareBytes)
	}
	if s.voice != nil {
		s.voice.Plan(&p)
	}
	return p
}

func (s *selection) elem() int64 {
	if s.device == models.DeviceCUDA {
		return 2
	}
	return 4
}

// bufferBytes returns the size of the fixed inputs and outputs of the graphs.
func (s *selection) bufferBytes() int64 {
	d, slots := s.dims.Decoder, int64(s.layout.Slots)
	vocab, hidden := int64(d.Vocab), int64(d.Hidden)
	n := slots * vocab * 4 * 2 // logits and their bias
	n += slots * min(topK, vocab) * 12
	n += slots * hidden * s.elem() * 2
	n += int64(s.chunk) * hidden * s.elem()
	if s.several() {
		n += int64(s.chunk) * hidden * s.elem()
	}
	if v := s.dims.Vision; v != nil && s.vision != nil {
		most := int64(s.images())
		images := most * (most + 1) / 2 // one to most per run, of one grid
		n += images * (maxPatches(v)*3*int64(v.Patch)*int64(v.Patch) + int64(v.Queries)*int64(v.Out)) * s.elem()
	}
	return n
}

// images returns the most images in one run of the vision tower. On the CPU several gain nothing, and each number
// of images has buffers of its own.
func (s *selection) images() int {
	if s.device == models.DeviceCPU {
		return 1
	}
	return batchLimit
}

// topK is the maximum number of best logits that the decoder returns.
const topK = 256

// maxPatches returns about the maximum for an image: 448*448 pixels, plus rounding of the sides.
func maxPatches(v *models.Vision) int64 { return 1060 * 14 * 14 / int64(v.Patch*v.Patch) }

// workspaceBytes returns the size of the runtime's arena of a decoder, without its weights:
// the activations of the largest run and, for int4, the largest matrix unpacked to float16
// to multiply prompts.
func (s *selection) workspaceBytes(g models.Graph) int64 {
	d := s.dims.Decoder
	chunk := int64(s.chunk)
	widest := max(2*int64(d.FFN), int64(d.Heads+2*d.KVHeads)*int64(d.HeadDim))
	n := chunk * (3*int64(d.Hidden) + 2*widest) * s.elem()
	n += int64(s.layout.Slots) * int64(d.Vocab) * 4 * 2
	if g.Weights == models.WeightsInt4 {
		n += widest * int64(d.Hidden) * s.elem()
	}
	return n
}

// visionBytes is workspaceBytes of the vision tower.
func (s *selection) visionBytes() int64 {
	v := s.dims.Vision
	if v == nil || s.vision == nil {
		return 0
	}
	return int64(s.images()) * maxPatches(v) * (4*int64(v.Hidden) + 2*int64(max(v.FFN, v.Hidden*3)) + int64(v.Out)*3) * s.elem()
}

// smaller returns settings that fit the memory.
func (s *selection) smaller(free int64) []string {
	type candidate struct {
		selection

		words string
	}
	sets := []candidate{{*s, ""}}
	if len(s.decoders) > 1 {
		for i, g := range s.decoders {
			one := *s
			one.decoders, one.captured, one.prefill = s.decoders[i:i+1], []int{s.layout.Slots}, 0
			sets = append(sets, candidate{one, "weights: " + string(g.Weights) + " alone"})
		}
	}
	var out []string
	if none := s.withoutPrefixes(); s.prefixes > 0 && none.plan("").Total() <= free {
		out = append(out, "prefix_cache: 0")
	}
	if s.plan("").Total()-s.headBytes() <= free {
		out = append(out, headOf4)
	}
	for i, c := range sets {
		fits := i > 0 && c.plan("").Total() <= free // the selection itself does not fit
		words := c.words
		for !fits && c.layout.Slots > 1 {
			c.layout.Slots /= 2
			if words = fmt.Sprintf("slots: %d", c.layout.Slots); c.words != "" {
				words = c.words + " and " + words
			}
			fits = c.plan("").Total() <= free
		}
		if fits {
			out = append(out, words)
		}
	}
	return out
}

// headOf4 is a suggestion; headBytes returns what it saves.
const headOf4 = "a bundle made with --head 4"

func (s *selection) headBytes() (saved int64) {
	for _, g := range s.decoders {
		saved += int64(s.dims.Decoder.Vocab) * int64(s.dims.Decoder.Hidden) * int64(max(g.Head-4, 0)) / 8
	}
	return saved
}

// withoutPrefixes returns the selection without a store for the beginnings of prompts.
func (s *selection) withoutPrefixes() *selection {
	out := *s
	out.prefixes = 0
	return &out
}

// withVoice returns the selection with a voice of n slots that follows as many frames.
func (s *selection) withVoice(n, prompt int) *selection {
	out := *s
	out.voice = s.voice.WithSlots(n, prompt)
	return &out
}

// speaking returns the selection with as many speaking slots as fit the memory, but two or more if the settings allow them, unless it is
// tight. ok is false if none fits.
func (s *selection) speaking(free int64) (_ *selection, ok bool) {
	want := s.voice.Layout.Slots
	for _, try := range []struct{ least, prompt int }{{2, s.voice.Prompt}, {2, 2 * voice.Short}, {1, 2 * voice.Short}} {
		for n := want; n >= min(try.least, want); n /= 2 {
			if fewer := s.withVoice(n, try.prompt); fewer.plan("").Total() <= free {
				return fewer, true
			}
		}
		if !s.tight || try.prompt < s.voice.Prompt && !s.oneSpeaks {
			break
		}
	}
	return nil, false
}

// speechless returns why a selection has no memory for its voice, and which settings would leave some.
func (s *selection) speechless(free int64) error {
	least := s.withVoice(1, 2*voice.Short)
	var would []string
	if s.prefixes > 0 && least.withoutPrefixes().plan("").Total() <= free {
		would = append(would, "inference.minicpmo.prefix_cache: 0")
	}
	if least.plan("").Total()-s.headBytes() <= free {
		would = append(would, headOf4)
	}
	for fewer := *least; fewer.layout.Slots > 1; {
		if fewer.layout.Slots /= 2; fewer.plan("").Total() <= free {
			would = append(would, fmt.Sprintf("inference.minicpmo.slots: %d", fewer.layout.Slots))
			break
		}
	}
	alone := *s
	alone.voice = nil
	model := alone.plan("").Total()
	text := fmt.Sprintf("no memory for the model's own voice: it needs %s, and %s are free beside the model",
		networks.Bytes(least.plan("").Total()-model), networks.Bytes(max(free-model, 0)))
	if len(would) > 0 {
		text += "; it fits with " + strings.Join(would, ", or with ")
	}
	return errors.New(text)
}
