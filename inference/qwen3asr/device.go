package qwen3asr

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/mel"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// device is the backend on ONNX Runtime.
type device struct {
	sel     *selection
	runtime *ort.Runtime
	dev     *ort.Device
	table   *networks.Table
	float   models.Type
	options ort.SessionOptions

	session     *ort.Session // of the decoder
	decoder     *networks.Text
	encoder     *encoder
	aligner     *alignerDevice // nil before the first use
	togetherErr error          // why prompts are fed one at a time; nil if they are not
}

// openDevice loads the recognizer's graphs and allocates the memory. progress receives the name of each part.
func openDevice(sel *selection, rt *ort.Runtime, dev *ort.Device, threads int, progress func(stage string)) (_ *device, err error) {
	d := &device{
		sel: sel, runtime: rt, dev: dev, float: models.Float32,
		// A memory plan for each prompt length would only make the arenas grow.
		options: ort.SessionOptions{CUDAGraph: true, Threads: threads, NoMemoryPattern: true, NoXQA: true},
	}
	if sel.device == models.DeviceCUDA {
		d.float = models.Float16
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	progress("embedding table")
	if d.table, err = networks.OpenTable(sel.bundle, sel.embed, d.float.Size()); err != nil {
		return nil, err
	}
	progress("encoder")
	if d.encoder, err = d.openEncoder(sel.bundle, sel.encoder); err != nil {
		return nil, err
	}
	progress("decoder")
	if d.session, err = rt.NewSession(sel.bundle.Path(sel.decoder.File), dev, d.decoding()); err != nil {
		return nil, fmt.Errorf("load the decoder: %w", err)
	}
	progress("cache and buffers")
	return d, d.allocate()
}

// decoding returns the options of decoders, whose norms square what float16 cannot hold.
func (d *device) decoding() ort.SessionOptions {
	o := d.options
	o.StrictNorm = true
	return o
}

// allocate allocates the decoder's memory.
func (d *device) allocate() (err error) {
	c, pad := d.sel.dims(), 1
	if d.sel.device == models.DeviceCUDA {
		pad = networks.PadTo
	}
	d.decoder, err = networks.NewText(d.runtime, d.dev, d.table, networks.TextOptions{
		Decoder: networks.DecoderOptions{
			Sessions: []*ort.Session{d.session}, Captured: []int{d.captured(d.sel.layout.Slots)}, Layout: d.sel.layout, Float: d.float,
			Chunk: d.sel.chunk, Together: d.sel.together, Async: true,
		},
		Hidden: c.Hidden, Vocab: c.Vocab, Top: min(models.HearingTopK, c.Vocab), Pad: pad,
	})
	if err != nil {
		return err
	}
	row := make([]float32, c.Vocab)
	for _, id := range d.sel.bundle.Manifest.Forbidden {
		row[id] = networks.ForbiddenBias
	}
	for slot := range d.sel.layout.Slots {
		if err := d.dev.CopyIn(d.decoder.Bias.At(slot), ort.Bytes(row)); err != nil {
			return err
		}
	}
	return d.dev.Synchronize()
}

// captured returns the largest range that runs as a CUDA graph: all, or 0 on the CPU.
func (d *device) captured(all int) int {
	if d.sel.device == models.DeviceCUDA {
		return all
	}
	return 0
}

// warmEncoder runs the encoder for each length of windows, alone and together: the first run of a shape takes longer.
func (d *device) warmEncoder(turn turn) error {
	longest := 1
	if d.sel.device == models.DeviceCUDA {
		longest = d.encoder.dims.Window
	}
	for n := 1; n <= longest; n *= 2 {
		frames := n * d.encoder.dims.Chunk
		w := &window{mel: make([]float32, mel.SpeechBins*frames), frames: frames, rows: d.encoder.dims.Rows(frames)}
		for batch := 1; batch <= max(d.encoder.captured, 1); batch *= 2 {
			if err := turn(func() error { return d.encode(slices.Repeat([]*window{w}, batch)) }); err != nil {
				return fmt.Errorf("warm up the encoder: %w", err)
			}
		}
	}
	return nil
}

// turn does a run of warming up, when nothing else loads on the GPU.
type turn func(run func() error) error

// warm runs the encoder, each captured range and each length of prompt, in turns, and zeroes the cache.
func (d *device) warm(turn turn) error {
	if err := d.warmEncoder(turn); err != nil {
		return err
	}
	l := d.sel.layout
	ids := make([]int32, min(d.sel.chunk, l.MaxLen-1))
	lengths := []int{len(ids)}
	ranges := []kvcache.Range{{Start: 0, Size: 1}}
	if d.sel.device == models.DeviceCUDA {
		ranges = l.Ranges(l.Slots)
		for n := len(ids); n > networks.PadTo; {
			n = min(n-1, d.decoder.Padded(0, n-networks.PadTo))
			lengths = append(lengths, n)
		}
	}
	for _, n := range lengths {
		if err := turn(func() error { return d.prefill(&job{prompt: prompt{ids: ids[:n]}}, 0, n) }); err != nil {
			return fmt.Errorf("warm up the prompt: %w", err)
		}
	}
	if err := turn(d.warmTogether); errors.Is(err, ort.ErrDeviceLost) {
		return err
	} else if err != nil { // slower, but as right
		d.sel.together, d.togetherErr = 0, err
	}
	tokens := make([]int32, l.Slots)
	for _, r := range ranges {
		if err := turn(func() error { return d.decode(r, tokens, tokens) }); err != nil {
			return fmt.Errorf("warm up slots %d to %d: %w", r.Start, r.Start+r.Size-1, err)
		}
	}
	for slot := range l.Slots {
		if err := d.decoder.Clear(slot); err != nil {
			return err
		}
	}
	return d.dev.Synchronize()
}

// close frees everything, the sessions last.
func (d *device) close() error {
	var err error
	if d.aligner != nil {
		err = d.aligner.close()
	}
	if d.encoder != nil {
		err = errors.Join(err, d.encoder.close())
	}
	if d.decoder != nil {
		err = errors.Join(err, d.decoder.Close())
	}
	if d.session != nil {
		err = errors.Join(err, d.session.Close())
	}
	return errors.Join(err, d.table.Close())
}

func (d *device) clear(slot int) error { return d.decoder.Clear(slot) }

func (d *device) prefill(j *job, from, to int) error {
	slot := max(j.Slot, 0)
	err := d.decoder.Feed(0, slot, from, to-from, 0, func(rows []byte) error { return fill(rows, d.table, j, from, to) })
	if err != nil {
		return err
	}
	return d.decoder.FetchTop(kvcache.Range{Start: slot, Size: 1})
}

// alignedTo: the length of several prompts in one run is rounded up to a multiple of it, less networks.PadLess.
const alignedTo = 32

// aligned returns the padded length of several prompts of up to n positions.
func (d *device) aligned(size, n int) int {
	if d.sel.device == models.DeviceCUDA {
		n = max(n, (n+networks.PadLess+alignedTo-1)/alignedTo*alignedTo-networks.PadLess)
	}
	return min(n, d.sel.chunk, d.sel.together/size)
}

func (d *device) begin(jobs []*job, r kvcache.Range) error {
	longest := 0
	for _, j := range jobs {
		longest = max(longest, len(j.prompt.ids)-1)
	}
	length := d.aligned(r.Size, longest)
	failed := make([]error, len(jobs))
	each(len(jobs), func(i int) {
		rows, n := d.decoder.Rows(i, length), len(jobs[i].prompt.ids)-1
		failed[i] = fill(rows, d.table, jobs[i], 0, n)
		clear(rows[n*d.table.Row():])
	})
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if err := d.decoder.PrefillFirst(0, r, length); err != nil {
		return err
	}
	return d.dev.Synchronize() // the next prompts use the same memory on the host
}

// warmTogether runs each number and length of prompts that begin together.
func (d *device) warmTogether() error {
	for size := 2; size <= min(d.sel.layout.Slots, d.sel.together); size *= 2 {
		for n := 1; ; n++ {
			n = d.aligned(size, n)
			jobs := slices.Repeat([]*job{{prompt: prompt{ids: make([]int32, n+1)}}}, size)
			if err := d.begin(jobs, kvcache.Range{Start: 0, Size: size}); err != nil {
				return fmt.Errorf("warm up %d prompts of %d positions: %w", size, n, err)
			}
			if d.sel.device == models.DeviceCPU || n >= min(d.sel.chunk, d.sel.together/size) {
				break
			}
		}
	}
	return nil
}

// fill writes the inputs of positions [from, to) of a job's prompt: rows of sound in their place, of the table elsewhere.
func fill(dst []byte, table *networks.Table, j *job, from, to int) error {
	width, p := table.Row(), j.prompt
	for i := from; i < to; i++ {
		if i < p.from || i >= p.from+p.rows {
			table.Copy(dst[(i-from)*width:], p.ids[i])
		}
	}
	at := p.from
	for _, w := range j.windows {
		if len(w.out) != w.rows*width {
			return fmt.Errorf("feed sound: expected %d rows of %d bytes, has %d bytes", w.rows, width, len(w.out))
		}
		if low, high := max(from, at), min(to, at+w.rows); low < high {
			copy(dst[(low-from)*width:], w.out[(low-at)*width:(high-at)*width])
		}
		at += w.rows
	}
	return nil
}

func (d *device) decode(r kvcache.Range, tokens, lengths []int32) error {
	if err := d.decoder.Tokens(0, r, tokens, lengths); err != nil {
		return err
	}
	return d.decoder.FetchTop(r)
}

func (d *device) top(slot int) ([]float32, []int64) { return d.decoder.Top(slot) }

func (d *device) logits(slot int) ([]float32, error) { return d.decoder.Logits(slot) }

// encode runs the encoder on windows of one model. Shorter ones are padded.
func (d *device) encode(windows []*window) error {
	if !windows[0].aligner {
		return d.encoder.run(windows)
	}
	if err := d.openAligner(); err != nil {
		return err
	}
	return d.aligner.encoder.run(windows)
}

// alike reports whether two windows are of one length for the encoder, and can be encoded in one run.
func alike(a, b *window) bool {
	return a.aligner == b.aligner && chunks(a.frames, chunkFrames) == chunks(b.frames, chunkFrames)
}

// chunkFrames is the number of frames of a chunk: the formulas of the published models hold for no other.
const chunkFrames = 100

// chunks returns the number of chunks of a run for a number of frames, a power of two.
func chunks(frames, chunk int) int {
	n := (frames + chunk - 1) / chunk
	return 1 << bits.Len(uint(max(n-1, 0)))
}

// encoder runs the encoder of sound for several windows at once.
type encoder struct {
	*networks.Arena
	dims    models.Hearing
	session *ort.Session
	batch   kvcache.Layout
	// captured is the largest number of windows that run as a CUDA graph.
	captured int
	sizes    map[int]*encoderSize // by chunks, made when needed
}

// encoderSize holds the memory for windows of one number of chunks.
type encoderSize struct {
	mel, rows, audio *networks.Rows
	network          *networks.Network
}

func (d *device) openEncoder(b *models.Bundle, g models.Graph) (*encoder, error) {
	s, err := d.runtime.NewSession(b.Path(g.File), d.dev, d.options)
	if err != nil {
		return nil, fmt.Errorf("load the encoder: %w", err)
	}
	return &encoder{
		Arena: networks.NewArena(d.runtime, d.dev), dims: *b.Manifest.Dims.Hearing, session: s,
		batch: kvcache.Layout{Slots: d.sel.batch}, captured: d.captured(d.sel.batch), sizes: map[int]*encoderSize{},
	}, nil
}

// size returns the network for windows of a number of chunks.
func (e *encoder) size(chunks int, float models.Type) (*encoderSize, error) {
	if s := e.sizes[chunks]; s != nil {
		return s, nil
	}
	rows := func(p networks.Port) *networks.Rows {
		p.Host = true
		return e.NewRows(p, e.batch.Slots)
	}
	s := &encoderSize{
		mel:   rows(networks.Port{Name: "mel", Type: models.Float32, Shape: []int64{mel.SpeechBins, int64(chunks * e.dims.Chunk)}}),
		rows:  rows(networks.Port{Name: "rows", Type: models.Int32}),
		audio: rows(networks.Port{Name: "audio", Type: float, Shape: []int64{int64(chunks * e.dims.ChunkRows()), int64(e.dims.Out)}}),
	}
	if err := e.Err(); err != nil {
		return nil, err
	}
	s.network = e.NewNetwork(networks.NetworkOptions{
		Session: e.session, Layout: e.batch, Captured: e.captured, Graphs: len(e.sizes) * len(e.batch.Ranges(e.batch.Slots)),
		Inputs:  map[string]*networks.Rows{"mel": s.mel, "rows": s.rows},
		Outputs: map[string]*networks.Rows{"audio": s.audio},
	})
	e.sizes[chunks] = s
	return s, nil
}

func (e *encoder) run(windows []*window) error {
	n := 0
	for _, w := range windows {
		n = max(n, min(chunks(w.frames, e.dims.Chunk), e.dims.Window))
	}
	float := models.Float32
	if e.Device().Kind() == ort.CUDA {
		float = models.Float16
	}
	s, err := e.size(n, float)
	if err != nil {
		return err
	}
	r := e.batch.Cover(0, len(windows)-1)
	each(r.Size, func(i int) {
		w := windows[min(i, len(windows)-1)] // the rest of the range repeats the last one
		into := ort.Slice[float32](s.mel.Host(i, 1))
		clear(into)
		for b := range mel.SpeechBins {
			copy(into[b*n*e.dims.Chunk:], w.mel[b*w.frames:][:w.frames])
		}
		ort.Slice[int32](s.rows.Host(i, 1))[0] = int32(w.rows)
	})
	if err := s.network.Run(r); err != nil {
		return err
	}
	if err := e.Fetch(r, s.audio); err != nil {
		return err
	}
	each(len(windows), func(i int) {
		windows[i].out = slices.Clone(s.audio.Host(i, 1)[:windows[i].rows*e.dims.Out*float.Size()])
	})
	return nil
}

func (e *encoder) close() error { return errors.Join(e.Arena.Close(), e.session.Close()) }
