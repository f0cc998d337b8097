package minicpmo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"touchline/inference/internal/cuda"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/step"
	"touchline/models"
	"touchline/models/onnx"
)

// noOwn returns why a decoder has no own kernels; nil if it may have them.
func noOwn(g models.Graph, o Options) error {
	switch {
	case o.Stock:
		return fmt.Errorf("%w: they are switched off", cuda.ErrOff)
	case g.Device != models.DeviceCUDA:
		return fmt.Errorf("%w: they are for CUDA", cuda.ErrCard)
	case g.Weights != models.WeightsInt4:
		return fmt.Errorf("%w: weights are %s", cuda.ErrBundle, g.Weights)
	case g.Head != 4 && g.Head != 8:
		return fmt.Errorf("%w: the vocabulary matrix has %d bits", cuda.ErrBundle, g.Head)
	case g.Float() == models.BFloat16:
		return fmt.Errorf("%w: they compute in float16, the bundle in bfloat16", cuda.ErrBundle)
	case g.Block != 32 && !g.ZeroPoints, g.Block != 128 && g.ZeroPoints:
		return fmt.Errorf("%w: weights have blocks of %d", cuda.ErrBundle, g.Block)
	case len(g.Tensors) == 0:
		return fmt.Errorf("%w: the bundle lacks the places of its weights: run `touchline models upgrade`", cuda.ErrBundle)
	}
	return nil
}

// ownDecoder returns the decoder of a selection that may have own kernels, or why there is none.
func (s *selection) ownDecoder(o Options) (_ models.Graph, why error) {
	for _, g := range s.decoders {
		no := noOwn(g, o)
		if no == nil {
			return g, nil
		}
		if why == nil || g.Weights == models.WeightsInt4 {
			why = no
		}
	}
	return models.Graph{}, why
}

// kindOf returns the kind of the reason for no own kernels, "" for nil.
func kindOf(why error) string {
	if none, ok := errors.AsType[cuda.NoneError](why); ok {
		return string(none)
	}
	if why != nil {
		return "error"
	}
	return ""
}

// CheckOwn describes what own kernels would use on a GPU of the settings, or returns why there are none, as far as that can be told without
// loading the bundle.
func CheckOwn(b *models.Bundle, o Options, gpu int) (uses string, err error) {
	c := o.Config.MiniCPM
	options, err := choose(b, c, lengths(&b.Manifest, o.Config, cmp.Or(o.Frames, 4))...)
	if err != nil {
		return "", err
	}
	g, err := options[0].ownDecoder(o)
	if err != nil {
		return "", err
	}
	_, dev, release, err := step.OpenDevice(c.Runtime, c.Device, gpu, step.Commentary)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	for i := range options { // slots of another length have other kernels
		if uses, err = networks.CheckOwn(dev, options[i].ownShape(g)); err != nil {
			return "", err
		}
	}
	return uses, nil
}

// ownShape returns the sizes of a decoder for own kernels.
func (s *selection) ownShape(g models.Graph) cuda.Shape {
	d := s.dims.Decoder
	return cuda.Shape{
		Layers: d.Layers, Hidden: d.Hidden, FFN: d.FFN, Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim, Vocab: d.Vocab,
		Head: g.Head, Zeros: g.ZeroPoints, Top: min(topK, d.Vocab), Epsilon: d.Epsilon, MaxLen: s.layout.MaxLen,
	}
}

// openDecoder loads a weight set of the decoder. On a GPU its weights are loaded here and shared with ONNX Runtime, which would read them
// to the host first, then copy them in pieces of any size: 4 s for fp16, in which answers paused 12 to 50 ms again and again, once 300 ms
// (H200).
func (d *device) openDecoder(ctx context.Context, set int, o Options) (s *ort.Session, err error) {
	g := d.sel.decoders[set]
	options := d.sessionOptions(o, d.sel.workspaceBytes(g)) // a limit of its arena, which has no weights on a GPU, counts there only
	options.Flash = true
	if g.Device != models.DeviceCUDA {
		if s, err = d.runtime.NewSession(d.bundle.Path(g.File), d.dev, options); err != nil {
			err = fmt.Errorf("load the %s decoder: %w", g.Weights, err)
		}
		return s, err
	}
	if d.behind == nil {
		if d.behind, err = d.runtime.NewDeviceBehind(d.dev.Kind(), d.dev.Index()); err != nil {
			return nil, err
		}
	}
	arena := networks.NewArena(d.runtime, d.behind)
	var places map[string]ort.Pointer
	if places, options.Placed, err = d.loadWeights(ctx, g, arena); err == nil {
		s, err = d.runtime.NewSession(d.bundle.Path(g.File), d.dev, options)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load the %s decoder: %w", g.Weights, err), arena.Close())
	}
	d.placed = append(d.placed, arena)
	if noOwn(g, o) == nil {
		d.ownSet, d.weights = set, places
	}
	return s, nil
}

// loadWeights copies the initializers of a graph to an arena on a stream of its own: answers may run meanwhile.
func (d *device) loadWeights(
	ctx context.Context, g models.Graph, arena *networks.Arena,
) (map[string]ort.Pointer, map[string]*ort.Tensor, error) {
	weights := g.Tensors
	if len(weights) == 0 {
		content, err := os.ReadFile(d.bundle.Path(g.File))
		if err == nil {
			weights, err = onnx.Places(content)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	parts := make([]networks.Part, len(weights))
	for i, t := range weights {
		parts[i] = networks.Part{File: d.bundle.Path(t.File), Offset: t.Offset, Bytes: t.Bytes()}
	}
	starts, err := arena.Load(ctx, string(g.Weights)+" weights", parts, 0)
	if err != nil {
		return nil, nil, err
	}
	places, tensors := map[string]ort.Pointer{}, map[string]*ort.Tensor{}
	for i, t := range weights {
		places[t.Name] = starts[i]
		if tensors[t.Name], err = arena.TensorAt(starts[i], t.Type, t.Shape...); err != nil {
			return nil, nil, err
		}
	}
	return places, tensors, nil
}

// openOwn makes the own kernels, if the weights are there. Without them ONNX Runtime runs all steps.
func (d *device) openOwn(test testOptions) error {
	if d.weights == nil {
		return nil
	}
	if test.weights != nil {
		test.weights(d)
	}
	g := d.sel.decoders[d.ownSet]
	err := d.decoder.OpenOwn(d.weights, g.Tensors, d.sel.ownShape(g))
	if errors.Is(err, ort.ErrDeviceLost) {
		return err
	}
	d.why = err
	return nil
}

// own reports whether own kernels run a step of a weight set.
func (d *device) own(set int, r kvcache.Range, tokens []int32) bool {
	if set != d.ownSet {
		return false
	}
	n := 0
	for _, token := range tokens[r.Start : r.Start+r.Size] {
		if token >= 0 {
			n++
		}
	}
	return n > 0 && n <= d.decoder.Own.Rows()
}

// Limits of the difference between own kernels and ONNX Runtime, as parts of a row's largest logit.
const (
	ownMost = 6e-3
	ownRMS  = 2e-3
)

// checkOwn compares a step of own kernels with ONNX Runtime's for each number of rows, in slots that are no neighbours and with different
// lengths. After a difference, ONNX Runtime runs all steps. All slots have other contents afterwards.
func (d *device) checkOwn() error {
	own := d.decoder.Own
	if own == nil {
		return nil
	}
	l, vocab := d.sel.layout, d.sel.dims.Decoder.Vocab
	rng := rand.New(rand.NewPCG(1, 2))
	rows := min(own.Rows(), l.Slots)
	lengths := make([]int32, l.Slots)
	slots, prompts := make([]int, rows), make([]*prompt, l.Slots)
	for i := range slots {
		slot := i * (l.Slots / rows)
		slots[i], lengths[slot] = slot, int32(min(1+i*i*17, l.MaxLen-2))
		p := &prompt{ids: make([]int32, lengths[slot])}
		prompts[slot] = p
		for j := range p.ids {
			p.ids[j] = rng.Int32N(int32(vocab))
		}
		for from := 0; from < len(p.ids); from += d.sel.chunk {
			if err := d.prefill(d.prefillSet(), slot, p, from, min(from+d.sel.chunk, len(p.ids)), 0); err != nil {
				return err
			}
		}
	}
	var err error
	own.Begin()
	for n := 1; n <= rows && err == nil; n *= 2 {
		err = d.checkRows(spread(slots, n), prompts, lengths, rng)
	}
	if err = own.End(err); err == nil || errors.Is(err, ort.ErrDeviceLost) {
		return err
	}
	d.decoder.Own, d.why = nil, err
	return nil
}

// spread returns n of some slots, with others between them if it can, and the last one.
func spread(slots []int, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = slots[(i+1)*len(slots)/n-1]
	}
	return out
}

func (d *device) checkRows(slots []int, prompts []*prompt, lengths []int32, rng *rand.Rand) error {
	l, vocab := d.sel.layout, d.sel.dims.Decoder.Vocab
	tokens, further := slices.Repeat([]int32{-1}, l.Slots), slices.Clone(lengths)
	for _, slot := range slots {
		tokens[slot] = rng.Int32N(int32(vocab))
		further[slot]++
	}
	// ONNX Runtime's results are those of a prompt that ends with the row: for many positions it adds products in float32, but in its steps
	// in float16, which was up to 6e-3 off. A further step reads the keys and values that the prompt wrote, then those of own kernels.
	want, err := d.rows(slots, func(slot int) error {
		p := &prompt{ids: append(slices.Clone(prompts[slot].ids), tokens[slot])}
		n := len(p.ids)
		return d.prefill(d.ownSet, slot, p, max(0, n-min(networks.PadTo-networks.PadLess, d.sel.chunk)), n, 0)
	})
	alone := func(lengths []int32) ([]float32, error) {
		return d.rows(slots, func(slot int) error {
			return d.decoder.Tokens(d.ownSet, kvcache.Range{Start: slot, Size: 1}, tokens, lengths)
		})
	}
	wantNext, failed := alone(further)
	err = errors.Join(err, failed, d.decoder.OwnTokens(l.Cover(slots[0], slots[len(slots)-1]), tokens, lengths))
	got, failed := d.rows(slots, func(int) error { return nil })
	gotNext, again := alone(further)
	if err := errors.Join(err, failed, again); err != nil {
		return err
	}
	for i, slot := range slots {
		from, to := i*vocab, (i+1)*vocab
		why := cmp.Or(differ(got[from:to], want[from:to]), differ(gotNext[from:to], wantNext[from:to]))
		if why != "" {
			return fmt.Errorf("%w: the check of %d rows failed at %d positions: %s", cuda.ErrCheck, len(slots), lengths[slot], why)
		}
	}
	return nil
}

// rows returns the logits of slots, one row after the other, each after a call of run.
func (d *device) rows(slots []int, run func(slot int) error) (rows []float32, err error) {
	for _, slot := range slots {
		if err := run(slot); err != nil {
			return nil, err
		}
		row, err := d.decoder.Logits(slot)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row...)
	}
	return rows, nil
}

// differ says how a row of logits differs from ONNX Runtime's, or returns an empty text for a difference within the limits. The best id
// must be the same unless the two best are nearer to each other than twice the difference.
func differ(got, want []float32) string {
	var most, square, largest float64
	best, own := 0, 0
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		most, square, largest = max(most, d), square+d*d, max(largest, math.Abs(float64(w)))
		if math.IsNaN(d) {
			return fmt.Sprintf("logit %d is %g", i, got[i])
		}
		if w > want[best] {
			best = i
		}
		if got[i] > got[own] {
			own = i
		}
	}
	rms := math.Sqrt(square / float64(len(want)))
	switch {
	case most > ownMost*largest:
		return fmt.Sprintf("a logit differs by %.2g of the largest", most/largest)
	case rms > ownRMS*largest:
		return fmt.Sprintf("logits differ by %.2g of the largest (rms)", rms/largest)
	case own != best && float64(want[best]-want[own]) > 2*most:
		return fmt.Sprintf("the best id is %d instead of %d", own, best)
	}
	return ""
}
