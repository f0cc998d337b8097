package voice

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/models"
)

const (
	// pieceTokens is the longest piece of text that the voice reads at once, with
	// the marks after it.
	pieceTokens = 64
)

// LM is the voice's language model on ONNX Runtime (TTSCondition and TTS of
// package graph).
type LM struct {
	dims   models.TTS
	hidden int // width of the decoder's states
	layout kvcache.Layout
	float  models.Type // of the graphs
	dev    *ort.Device

	sessions  []*ort.Session // of the condition, of the model
	decoder   *networks.Decoder
	condition *networks.Run

	inputs                     []*networks.Rows // codes, history, and the prompt's inputs_embeds
	whole, short               []*networks.Rows
	ids, states, said          *ort.Memory
	hostIDs, hostStates, hostS *ort.Memory
	keys                       *ort.Memory // of a slot in one layer, on the host
	all                        bool        // the last run returned whole rows
	past                       []int
}

var _ tts.LM = (*LM)(nil)

// OpenLM loads the graphs of the condition and of the language model of a bundle.
func OpenLM(
	rt *ort.Runtime, dev *ort.Device, b *models.Bundle, graphs [2]models.Graph, l kvcache.Layout, threads int,
) (_ *LM, err error) {
	d := b.Manifest.Dims
	t := d.Speech.TTS
	m := &LM{dims: t, hidden: d.Decoder.Hidden, layout: l, float: models.Float32, dev: dev, past: make([]int, l.Slots)}
	if l.ElemSize == models.Float16.Size() {
		m.float = models.Float16
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	for i, g := range graphs {
		so := ort.SessionOptions{CUDAGraph: true, Threads: threads, NoMemoryPattern: true, NoXQA: true}
		if i == 0 && m.onGPU() {
			if so.Hosted, err = textTable(b, g); err != nil {
				return nil, err
			}
		}
		s, err := rt.NewSession(b.Path(g.File), dev, so)
		if err != nil {
			return nil, err
		}
		m.sessions = append(m.sessions, s)
	}
	best, past := int64(min(tts.BestCodes, t.Codes)), int64(tts.Official().Past)
	m.decoder, err = networks.NewDecoder(rt, dev, networks.DecoderOptions{
		Sessions: m.sessions[1:], Captured: []int{l.Slots}, Layout: l, Float: m.float, Chunk: pieceTokens,
		Fed: []networks.Port{
			{Name: "codes", Type: models.Int64, Host: true},
			{Name: "inputs_embeds", Type: m.float, Shape: []int64{int64(t.Hidden)}},
		},
		Inputs: []networks.Port{{Name: "history", Type: models.Int64, Shape: []int64{1, past}, Host: true}},
		Fixed:  map[string][]float32{"temperature": {float32(tts.Official().Temperature)}},
		Outputs: []networks.Port{
			{Name: "logits", Type: models.Float32, Shape: []int64{1, int64(t.Codes)}, Host: true},
			{Name: "top_values", Type: models.Float32, Shape: []int64{1, best}, Host: true},
			{Name: "top_ids", Type: models.Int64, Shape: []int64{1, best}, Host: true},
			{Name: "top_shares", Type: models.Float32, Shape: []int64{1, best}, Host: true},
			{Name: "history_values", Type: models.Float32, Shape: []int64{1, past}, Host: true},
		},
	})
	if err != nil {
		return nil, err
	}
	m.inputs = []*networks.Rows{m.decoder.Input("codes"), m.decoder.Input("history"), m.decoder.Prompt("inputs_embeds")}
	out := m.decoder.Output
	m.whole = []*networks.Rows{out("logits")}
	m.short = []*networks.Rows{out("top_values"), out("top_ids"), out("top_shares"), out("history_values")}
	return m, m.prepare()
}

// onGPU reports whether the device is a GPU, which captures runs.
func (m *LM) onGPU() bool { return m.dev.Kind() == ort.CUDA }

// textTable returns the condition's table of embeddings. A GPU reads its few rows of a piece of text from the host's memory.
func textTable(b *models.Bundle, g models.Graph) (map[string]ort.Hosted, error) {
	speech := b.Manifest.Dims.Speech
	t, err := b.Table(g, speech.TTS.TextRows, speech.TTS.Hidden)
	if err != nil {
		return nil, fmt.Errorf("read the table of the text: %w", err)
	}
	f, err := os.Open(b.Path(t.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows := make([]byte, t.Bytes())
	if _, err := f.ReadAt(rows, t.Offset); err != nil {
		return nil, fmt.Errorf("read the table of %s: %w", g.File, err)
	}
	return map[string]ort.Hosted{t.Name: {Type: t.Type, Shape: t.Shape, Bytes: rows}}, nil
}

// prepare allocates the inputs of the condition.
func (m *LM) prepare() (err error) {
	a, width := m.decoder.Arena, int64(m.hidden*m.float.Size())
	m.ids, m.hostIDs = a.Memory("a text", pieceTokens*8), a.Host("a text", pieceTokens*8)
	m.states, m.hostStates = a.Memory("a text", pieceTokens*width), a.Host("a text", pieceTokens*width)
	m.said, m.hostS = a.Memory("a text", pieceTokens*4), a.Host("a text", pieceTokens*4)
	m.keys = a.Host("a slot's keys", m.layout.SlotBytes())
	if err := a.Err(); err != nil {
		return err
	}
	for i, codes := 0, ort.Slice[int64](m.decoder.Prompt("codes").Host(0, pieceTokens)); i < len(codes); i++ {
		codes[i] = int64(m.dims.Codes - 1) // has no embedding of its own
	}
	m.condition, err = a.NewRun(m.sessions[0], ort.NoGraph)
	return err
}

// Close frees everything.
func (m *LM) Close() error {
	var err error
	if m.decoder != nil {
		err = m.decoder.Close()
	}
	for _, s := range m.sessions {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Clear implements tts.LM.
func (m *LM) Clear(slot int) error { return m.decoder.Clear(slot) }

// Feed implements tts.LM: the text, the mark of its end, and
// the mark before codes.
func (m *LM) Feed(slot, length int, p tts.Piece) (int, error) {
	n := len(p.IDs)
	if n > pieceTokens-2 || len(p.Hidden) != n*m.hidden {
		return 0, fmt.Errorf("read a piece of text: expected at most %d tokens with a state of %d each, has %d and %d values",
			pieceTokens-2, m.hidden, n, len(p.Hidden))
	}
	ids := ort.Slice[int64](m.hostIDs.Bytes())
	said := ort.Slice[float32](m.hostS.Bytes())
	clear(said)
	clear(m.hostStates.Bytes()) // the marks have none: what is no number would be one for them too
	for i, id := range p.IDs {
		ids[i], said[i] = int64(id), 1
	}
	copy(m.hostStates.Bytes(), floatBytes(m.float, p.Hidden))
	if p.Last && !p.Cut {
		ids[n] = int64(m.dims.TextEOS)
		n++
	}
	ids[n] = int64(m.dims.AudioBOS)
	n++
	if err := m.conditioned(int64(n)); err != nil {
		return 0, err
	}
	return n, m.prefill(slot, length, n)
}

// FeedRows is Feed with the condition of a piece and its marks, [positions,hidden] of the model.
func (m *LM) FeedRows(slot, length int, rows []float32) (int, error) {
	n := len(rows) / m.dims.Hidden
	if n < 1 || n > pieceTokens {
		return 0, fmt.Errorf("read the rows of a piece of text: expected 1 to %d, has %d", pieceTokens, n)
	}
	if err := m.dev.CopyIn(m.inputs[2].At(0), floatBytes(m.float, rows)); err != nil {
		return 0, err
	}
	return n, m.prefill(slot, length, n)
}

// prefill feeds the first n rows of the prompt's inputs_embeds to a slot that holds length positions.
func (m *LM) prefill(slot, length, n int) error {
	padded := m.padded(length, n)
	if padded > n { // the rows of a former piece may be no numbers
		row := m.inputs[2].Width()
		if err := m.dev.Memset(m.inputs[2].At(n), 0, int64(padded-n)*row); err != nil {
			return err
		}
	}
	if err := m.decoder.Prefill(0, slot, length, padded, n); err != nil {
		return err
	}
	m.all = true
	return m.decoder.Fetch(kvcache.Range{Start: slot, Size: 1}, m.whole...)
}

// padded rounds the length of a piece up on a GPU: cuDNN plans its attention for each length, for up to a quarter of a second. Later
// runs overwrite the keys and values of the rows after the piece before they read them.
func (m *LM) padded(length, n int) int {
	if !m.onGPU() {
		return n
	}
	const rows = 16
	return max(n, min((n+rows-1)/rows*rows, pieceTokens, m.layout.MaxLen-length))
}

// TurnBack implements tts.LM. The graph numbers positions as the cache stores them, so the keys turn instead, on the host: a piece of text
// is seldom full. Heads have a goroutine each, since answers wait meanwhile: the 510 positions of the real model's first such piece take
// 30 ms of one core.
func (m *LM) TurnBack(slot, length int) error {
	half := m.dims.HeadDim() / 2
	cos, sin := make([]float32, half), make([]float32, half)
	for i := range half {
		s, c := math.Sincos(math.Pow(m.dims.RopeTheta, -float64(i)/float64(half)))
		cos[i], sin[i] = float32(c), float32(s)
	}
	step := m.layout.MaxLen * m.layout.HeadDim * m.layout.ElemSize // of a head
	return m.decoder.ChangeKeys(slot, m.keys, func(keys []byte) {
		var wg sync.WaitGroup
		for head := range m.layout.KVHeads {
			wg.Go(func() {
				rows := keys[head*step:][:length*m.layout.HeadDim*m.layout.ElemSize]
				if m.float == models.Float32 {
					turnBack(ort.Slice[float32](rows), cos, sin, func(x float32) float32 { return x }, func(x float32) float32 { return x })
				} else {
					turnBack(ort.Slice[uint16](rows), cos, sin, models.Float16FromBits, models.Float16Bits)
				}
			})
		}
		wg.Wait()
	})
}

// turnBack rotates keys by one position. A rotary embedding turns the i-th number of a key with the i-th of its second half.
func turnBack[T ort.Element](keys []T, cos, sin []float32, from func(T) float32, to func(float32) T) {
	half := len(cos)
	for ; len(keys) > 0; keys = keys[2*half:] {
		for i, c := range cos {
			a, b := from(keys[i]), from(keys[half+i])
			keys[i], keys[half+i] = to(a*c+b*sin[i]), to(b*c-a*sin[i])
		}
	}
}

// conditioned computes the first n rows of the prompt's inputs_embeds.
func (m *LM) conditioned(n int64) (err error) {
	out := m.inputs[2]
	for _, in := range []struct {
		name     string
		to, from *ort.Memory
		typ      models.Type
		row      int64 // bytes
		shape    []int64
	}{
		{"input_ids", m.ids, m.hostIDs, models.Int64, 8, []int64{n}},
		{"hidden_states", m.states, m.hostStates, m.float, int64(m.hidden * m.float.Size()), []int64{n, int64(m.hidden)}},
		{"said", m.said, m.hostS, models.Float32, 4, []int64{n, 1}},
	} {
		t, failed := m.dev.TensorAt(in.to.At(0), in.typ, in.shape...)
		if failed != nil {
			return failed
		}
		defer func() { _ = t.Close() }()
		err = errors.Join(err, m.dev.CopyIn(in.to.At(0), in.from.Bytes()[:n*in.row]), m.condition.BindInput(in.name, t))
	}
	t, failed := m.dev.TensorAt(out.At(0), m.float, n, int64(m.dims.Hidden))
	if failed != nil {
		return failed
	}
	defer func() { _ = t.Close() }()
	if err := errors.Join(err, m.condition.BindOutput("condition", t)); err != nil {
		return err
	}
	return m.condition.Do()
}

// Step implements tts.LM.
func (m *LM) Step(r kvcache.Range, history [][]int32, lengths []int32) error {
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		h := history[slot]
		m.past[slot] = min(len(h), tts.Official().Past)
		if len(h) == 0 {
			continue
		}
		ort.Slice[int64](m.inputs[0].Host(slot, 1))[0] = int64(h[len(h)-1])
		row := ort.Slice[int64](m.inputs[1].Host(slot, 1))
		clear(row)
		for i, c := range h[len(h)-m.past[slot]:] {
			row[i] = int64(c)
		}
	}
	if err := m.decoder.Step(0, r, lengths); err != nil {
		return err
	}
	m.all = false // on a GPU the copies of whole rows take longer than the search for the best, on a CPU the draws from them
	return m.decoder.Fetch(r, m.short...)
}

// Logits implements tts.LM.
func (m *LM) Logits(slot int) ([]float32, error) {
	if !m.all { // of a step
		if err := m.decoder.Fetch(kvcache.Range{Start: slot, Size: 1}, m.whole...); err != nil {
			return nil, err
		}
	}
	return ort.Slice[float32](m.whole[0].Host(slot, 1)), nil
}

// Best implements tts.LM.
func (m *LM) Best(slot int) (tts.Row, bool) {
	if m.all {
		return tts.Row{}, false
	}
	floats := func(i int) []float32 { return ort.Slice[float32](m.short[i].Host(slot, 1)) }
	return tts.Row{
		Logits: floats(0), IDs: ort.Slice[int64](m.short[1].Host(slot, 1)), Prob: floats(2)[0], Past: floats(3)[:m.past[slot]],
	}, true
}
