package voice

import (
	"cmp"
	"fmt"
	"slices"

	"touchline/inference"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/models"
)

// TurnPositions is the longest turn, text and codes: two full pieces, of 11 positions and 499 codes that are fed, and 4.8 s of a third.
// About 43 s of usual speech.
const TurnPositions = 1152

// maxSlots bounds the number of answers spoken at once where the settings have none.
const maxSlots = 16

// Selection are the graphs and sizes of a voice.
type Selection struct {
	// Layout is the layout of the language model, Prompt the number of frames of a reference.
	Layout kvcache.Layout
	Prompt int

	bundle     *models.Bundle
	device     models.Device
	lm         [2]models.Graph // the condition and the language model
	files      map[models.Kind]string
	float      models.Type
	weights    int64 // bytes, of all graphs
	dims       models.Dims
	known      int // references of the bundle, before they are loaded
	references map[string]Reference
}

// Choose returns the graphs of a bundle's voice for an engine with a number of slots, or an error that says why it has none. It has the
// slots of the settings.
func Choose(b *models.Bundle, device models.Device, slots int, c inference.VoiceConfig) (*Selection, error) {
	if !c.Enabled || b.Manifest.Dims.Speech == nil {
		return nil, inference.ErrNoVoice
	}
	weights, float := models.WeightsFloat16, models.Float16
	if _, exact := b.Find(models.KindTTS, models.WeightsFloat32, device); exact || device == models.DeviceCPU {
		weights, float = models.WeightsFloat32, models.Float32
	}
	s := &Selection{
		Prompt: 2 * Long, bundle: b, device: device, files: map[models.Kind]string{}, float: float, dims: b.Manifest.Dims, known: 1,
	}
	if c.Prompt == inference.ShortPrompt {
		s.Prompt = 2 * Short
	}
	for _, k := range []models.Kind{
		models.KindTTSCondition, models.KindTTS, models.KindFlowEncoder, models.KindFlowDiT, models.KindFlowDiTOnce, models.KindVocoder,
	} {
		g, ok := b.Find(k, weights, device)
		if !ok {
			return nil, fmt.Errorf("%w: %w", inference.ErrNoVoice, networks.Lacks(&b.Manifest, k, weights, device))
		}
		s.files[k] = b.Path(g.File)
		s.weights += g.WeightBytes
		switch k { //nolint:exhaustive // those that are opened by their graph
		case models.KindTTSCondition:
			s.lm[0] = g
		case models.KindTTS:
			s.lm[1] = g
		}
	}
	if g, ok := b.Find(models.KindVocoderTail, weights, device); ok { // older bundles have none
		s.files[g.Kind] = b.Path(g.File)
		s.weights += g.WeightBytes
	}
	if t := s.dims.Speech.TTS; device == models.DeviceCUDA { // the table of the text's embeddings stays on the host
		s.weights -= int64(t.TextRows) * int64(t.Hidden) * int64(float.Size())
	}
	if names, err := Names(b); err == nil {
		s.known = min(len(slices.DeleteFunc(names, func(n string) bool { return n == inference.DefaultVoice }))+1, maxReferences)
	}
	t := b.Manifest.Dims.Speech.TTS
	s.Layout = kvcache.Layout{
		Layers: t.Layers, Slots: cmp.Or(c.Slots, min(slots, maxSlots)), KVHeads: t.Heads,
		MaxLen: min(TurnPositions, t.MaxPositions), HeadDim: t.HeadDim(), ElemSize: float.Size(),
	}
	if err := s.Layout.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Plan adds the memory of a voice.
func (s *Selection) Plan(p *networks.Plan) {
	p.Add("voice", s.weights+s.workspaceBytes())
	state, turn := s.turnBytes()
	p.Add(networks.Plural(s.known, "reference voice", "reference voices"), int64(s.known)*state)
	p.Add(fmt.Sprintf("%s of %d s", networks.Plural(s.Layout.Slots, "speaking slot", "speaking slots"), s.Prompt/50),
		int64(s.Layout.Slots)*turn+s.Layout.Bytes())
}

// WithSlots returns the selection with n slots and references of as many frames.
func (s *Selection) WithSlots(n, prompt int) *Selection {
	out := *s
	out.Layout.Slots, out.Prompt = n, prompt
	return &out
}

// workspaceBytes returns the size of the runtime's arenas, of cuDNN's kernels and of captured graphs: 1.16, 1.34 and 1.68 GB were measured
// for 2, 8 and 32 turns of the published model in float16. In float32 it is not measured, and planned twice as large.
func (s *Selection) workspaceBytes() int64 {
	const fixed, turn, channels = 1120e6, 20e6, 512
	size := int64(s.dims.Speech.Vocoder.Channels)
	if s.device == models.DeviceCPU { // one turn at a time
		return turn * size / channels
	}
	return (fixed + turn*int64(s.Layout.Slots)) * size / channels * int64(s.float.Size()/models.Float16.Size())
}

// turnBytes returns the sizes of a turn's initial state and of all its state outside the language model's slot.
func (s *Selection) turnBytes() (state, all int64) {
	f := s.dims.Speech.Flow
	d := f.DiT
	w := Wave{dims: *s.dims.Speech, flowRing: flowRing{s.Prompt}}
	frame := 2 * (w.rows()*d.Heads*d.HeadDim + convRows*d.Hidden) // keys and values; two convolutions
	rings := d.Steps * d.Layers * 2 * frame                       // with and without the condition
	cached := 0
	for _, rate := range rates() {
		rows, _ := w.cached(rate)
		cached += w.blocks(rate) * 2 * rows * f.Hidden
	}
	state = int64(rings+cached) * int64(s.Layout.ElemSize)
	return state, state + int64(cached)*int64(s.Layout.ElemSize) // the encoder's are written elsewhere
}
