package minicpmo

import (
	"fmt"
	"strings"

	"touchline/inference/internal/kvcache"
	"touchline/models"
)

// Plan is the memory a loaded model takes on its device, in bytes.
type Plan struct {
	Device string // in words
	Parts  []PlanPart
}

// PlanPart is one use of memory.
type PlanPart struct {
	Name  string
	Bytes int64
}

// Total of all parts.
func (p Plan) Total() int64 {
	var n int64
	for _, part := range p.Parts {
		n += part.Bytes
	}
	return n
}

// String is the plan as a line.
func (p Plan) String() string {
	parts := make([]string, len(p.Parts))
	for i, part := range p.Parts {
		parts[i] = part.Name + " " + size(part.Bytes)
	}
	return fmt.Sprintf("%s on %s: %s", size(p.Total()), p.Device, strings.Join(parts, ", "))
}

// size prints bytes for people.
func size(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d bytes", n)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// selection is which graphs an engine runs, and how.
type selection struct {
	device   models.Device
	decoders []models.Graph
	prefill  int // which of them feeds prompts
	vision   *models.Graph
	embed    models.Graph
	dims     models.Dims
	layout   kvcache.Layout
	chunk    int
	captured []int // by decoder: the largest range captured
}

// What a CUDA process takes beside what is asked for: the context with the
// kernels of the runtime and of cuBLAS, and per captured graph. Measured on an
// H200 with ONNX Runtime 1.30.
const (
	contextBytes = 620 << 20
	graphBytes   = 640 << 10
)

// plan adds up what the selection takes.
func (s *selection) plan(device string) Plan {
	p := Plan{Device: device}
	add := func(name string, n int64) {
		if n > 0 {
			p.Parts = append(p.Parts, PlanPart{name, n})
		}
	}
	for _, g := range s.decoders {
		add(string(g.Weights)+" weights", g.WeightBytes)
	}
	if s.vision != nil {
		add("vision", s.vision.WeightBytes)
	}
	// The table of token embeddings stays in the file, mapped: one copy, on the host.
	if s.device == models.DeviceCPU {
		add("embedding table", s.embed.WeightBytes)
	}
	add(fmt.Sprintf("%d slots of %d tokens", s.layout.Slots, s.layout.MaxLen), s.layout.Bytes())
	add("buffers", s.bufferBytes())
	add("workspace", s.workspaceBytes())
	if s.device == models.DeviceCUDA {
		var graphs int64
		for _, most := range s.captured {
			graphs += int64(len(s.layout.Ranges(most)))
		}
		add("graphs", graphs*graphBytes)
		add("context", contextBytes)
	}
	return p
}

func (s *selection) elem() int64 {
	if s.device == models.DeviceCUDA {
		return 2
	}
	return 4
}

// bufferBytes are the fixed inputs and outputs of the graphs.
func (s *selection) bufferBytes() int64 {
	d, slots := s.dims.Decoder, int64(s.layout.Slots)
	vocab, hidden := int64(d.Vocab), int64(d.Hidden)
	n := slots * vocab * 4 * 2 // logits and their bias
	n += slots * min(topK, vocab) * 12
	n += slots * hidden * s.elem() * 2
	n += int64(s.chunk) * hidden * s.elem()
	if v := s.dims.Vision; v != nil && s.vision != nil {
		images := int64(batchLimit * (batchLimit + 1) / 2) // one to four at once, of one grid
		n += images * (maxPatches*3*int64(v.Patch)*int64(v.Patch) + int64(v.Queries)*int64(v.Out)) * s.elem()
	}
	return n
}

// topK is how many of the largest logits the decoder returns at most.
const topK = 256

// maxPatches of an image, about: 448*448 pixels in patches of 14, and some more where the sides do not come out even.
const maxPatches = 1060

// workspaceBytes is what the runtime's arenas grow to: the activations of the
// widest run, and, for int4, the largest matrix unpacked to float16, which is
// how prompts are multiplied.
func (s *selection) workspaceBytes() int64 {
	d := s.dims.Decoder
	chunk := int64(s.chunk)
	widest := max(2*int64(d.FFN), int64(d.Heads+2*d.KVHeads)*int64(d.HeadDim))
	var n int64
	for _, g := range s.decoders {
		w := chunk * (3*int64(d.Hidden) + 2*widest) * s.elem()
		w += int64(s.layout.Slots) * int64(d.Vocab) * 4 * 2
		if g.Weights == models.WeightsInt4 {
			w += widest * int64(d.Hidden) * s.elem()
		}
		n += w
	}
	if v := s.dims.Vision; v != nil && s.vision != nil {
		n += batchLimit * maxPatches * (4*int64(v.Hidden) + 2*int64(max(v.FFN, v.Hidden*3)) + int64(v.Out)*3) * s.elem()
	}
	return n
}

// smaller proposes settings that fit into the memory.
func (s *selection) smaller(free int64) []string {
	var out []string
	try := func(c selection, words string) bool {
		if c.plan("").Total() <= free {
			out = append(out, words)
			return true
		}
		return false
	}
	sets := []selection{*s}
	names := []string{""}
	if len(s.decoders) > 1 {
		for i, g := range s.decoders {
			one := *s
			one.decoders, one.captured, one.prefill = s.decoders[i:i+1], []int{s.layout.Slots}, 0
			sets = append(sets, one)
			names = append(names, "weights: "+string(g.Weights)+" alone")
		}
	}
	for i, c := range sets {
		if names[i] != "" && try(c, names[i]) {
			continue
		}
		for c.layout.Slots > 1 {
			c.layout.Slots /= 2
			words := fmt.Sprintf("slots: %d", c.layout.Slots)
			if names[i] != "" {
				words = names[i] + " and " + words
			}
			if try(c, words) {
				break
			}
		}
	}
	return out
}
