package voice

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/models"
)

// silenceCode is the code of silence in front of a turn and behind a prompt.
const silenceCode = 4218

// scratch is memory for runs of any shape: a buffer for each name, as large as its largest use so far. A GPU's memory is not given back
// between the runs of turns, because that would hold up the whole device.
type scratch struct {
	keeps   bool
	memory  *networks.Arena
	handles *networks.Arena // of the runs since the last reset
	named   map[string]*ort.Memory
}

func (w *Wave) newScratch() *scratch {
	return &scratch{keeps: !w.single, memory: w.temporary(), handles: w.temporary(), named: map[string]*ort.Memory{}}
}

// reset closes all tensors; the runs that use them must have ended. On a GPU the buffers stay allocated for reuse, on the CPU they are
// freed.
func (s *scratch) reset() error {
	if s.keeps {
		return s.handles.Close()
	}
	clear(s.named)
	return s.close()
}

func (s *scratch) close() error { return errors.Join(s.handles.Close(), s.memory.Close()) }

// tensor returns a tensor in the buffer of a name.
func (s *scratch) tensor(name string, t models.Type, shape ...int64) (*ort.Memory, *ort.Tensor, error) {
	bytes := int64(t.Size())
	for _, n := range shape {
		bytes *= n
	}
	m := s.named[name]
	if m == nil || m.Size() < bytes {
		if m = s.memory.Memory(name, bytes); m == nil {
			return nil, nil, s.memory.Err()
		}
		s.named[name] = m
	}
	x, err := s.handles.TensorAt(m.At(0), t, shape...)
	return m, x, err
}

// once binds one run of a graph for a slot, of any shape, and runs it.
type once struct {
	w    *Wave
	from *scratch
	run  *networks.Run
	err  error
}

func (w *Wave) newOnce(s *scratch, session *ort.Session) *once {
	run, err := s.handles.NewRun(session, ort.NoGraph)
	return &once{w, s, run, err}
}

// fail remembers the first error.
func (o *once) fail(err error) bool {
	if o.err == nil {
		o.err = err
	}
	return o.err != nil
}

// input uploads an input.
func (o *once) input(name string, t models.Type, b []byte, shape ...int64) {
	if o.err != nil {
		return
	}
	m, x, err := o.from.tensor(name, t, shape...)
	if o.fail(err) || o.fail(o.w.Device().CopyIn(m.At(0), b)) {
		return
	}
	o.fail(o.run.BindInput(name, x))
}

// floats uploads an input of the graphs' float.
func (o *once) floats(name string, values []float32, shape ...int64) {
	o.input(name, o.w.float, floatBytes(o.w.float, values), shape...)
}

func (o *once) ints(name string, values []int64, shape ...int64) {
	o.input(name, models.Int64, ort.Bytes(values), shape...)
}

// output allocates an output.
func (o *once) output(name string, t models.Type, shape ...int64) *ort.Memory {
	if o.err != nil {
		return nil
	}
	m, x, err := o.from.tensor(name, t, shape...)
	if !o.fail(err) {
		o.fail(o.run.BindOutput(name, x))
	}
	return m
}

// slot binds the rows of a slot.
func (o *once) slot(slot int, in, out map[string]*networks.Rows) {
	if o.err != nil {
		return
	}
	r := kvcache.Range{Start: slot, Size: 1}
	o.fail(errors.Join(o.from.handles.Bind(in, r, o.run.BindInput), o.from.handles.Bind(out, r, o.run.BindOutput)))
}

func (o *once) do() error {
	if o.err == nil {
		o.err = o.run.Do()
	}
	return o.err
}

// encodeOnce encodes codes of any number for a slot, of which coded are codes and the rest zeros. It returns mu of all but
// the last three.
func (w *Wave) encodeOnce(a *scratch, slot int, codes []int32, coded int, filled func(rate string) int) (*ort.Memory, error) {
	n := len(codes)
	ids, marks := make([]int64, n), make([]float32, n)
	for i, c := range codes[:coded] {
		ids[i], marks[i] = int64(c), 1
	}
	o := w.newOnce(a, w.encoder)
	o.ints("codes", ids, 1, int64(n))
	o.floats("coded", marks, 1, int64(n), 1)
	for _, rate := range rates() {
		cached, run := w.cached(rate)
		run = run * (n - models.Lookahead) / (chunkFrames / 2)
		all := int64(cached + run)
		o.floats("mask."+rate, maskOf(cached, filled(rate), run, 0), 1, 1, 1, all)
		o.ints("distances."+rate, models.FlowDistances(w.dims.Flow, rate == "50", run, cached), int64(run), all)
		keep := make([]int64, cached)
		w.keepRows(keep, rate, filled(rate), run, 0)
		o.ints("keep."+rate, keep, 1, int64(cached))
	}
	in, out := map[string]*networks.Rows{}, map[string]*networks.Rows{}
	w.caches(in, out, w.encoderCaches()...)
	o.slot(slot, in, out)
	mu := o.output("mu", w.float, 1, int64(2*(n-models.Lookahead)), int64(w.dims.Flow.Mel))
	return mu, o.do()
}

// transformOnce runs the flow for any number of frames after n windows of a slot; n is -1 for the prompt, with its
// spectrogram. It returns the spectrogram and the run's additions to the rings, by name.
func (w *Wave) transformOnce(
	a *scratch, slot, n, frames int, mu *ort.Memory, prompt []float32,
) (*ort.Memory, map[string]*ort.Memory, error) {
	f, d, long := w.dims.Flow, w.dims.Flow.DiT, int64(frames)
	o := w.newOnce(a, w.once)
	if n < 0 && !w.single && o.err == nil { // the prompt is far longer than any end of a turn
		o.fail(o.run.GiveBack(w.Device().Index()))
	}
	mask, from, conv := make([]float32, w.rows()+frames), 0, 0
	for i := range w.rows() {
		if n < 0 || !w.counts(i, n) {
			mask[i] = maskedOut
		}
	}
	if n >= 0 {
		from, conv = w.heard(n), n*chunkFrames%convRows
	}
	before := func(back int) int64 { return int64((conv - back + convRows) % convRows) }
	if prompt == nil {
		prompt = make([]float32, frames*f.Mel)
	}
	o.floats("prompt", prompt, 1, long, int64(f.Mel))
	o.input("noise", models.Float32, ort.Bytes(w.noise.Flow[from*f.Mel:(from+frames)*f.Mel]), 1, long, int64(f.Mel))
	o.floats("mask", slices.Concat(mask, mask), 2, 1, 1, int64(len(mask)))
	o.ints("conv_rows", []int64{before(2), before(1), convRows + before(2), convRows + before(1)}, 2, 2)
	in, unused := w.pick("speaker"), map[string]*networks.Rows{}
	w.caches(in, unused, w.flowCaches()...)
	o.slot(slot, in, nil)
	if o.err == nil {
		x, err := a.handles.TensorAt(mu.At(0), w.float, 1, long, int64(f.Mel))
		if !o.fail(err) {
			o.fail(o.run.BindInput("mu", x))
		}
	}
	added := map[string]*ort.Memory{}
	for s := range d.Steps {
		for i := range d.Layers {
			p := fmt.Sprintf("%d.%d.", s, i)
			for _, name := range []string{"key", "value"} {
				added[p+name] = o.output("present."+p+name, w.float, 2, long, int64(d.Heads*d.HeadDim))
			}
			for _, name := range []string{"conv1", "conv2"} {
				added[p+name] = o.output("present."+p+name, w.float, 2, 2, int64(d.Hidden))
			}
		}
	}
	mel := o.output("mel", models.Float32, 1, long, int64(f.Mel))
	return mel, added, o.do()
}

// long runs the last window of a turn that is too long for the captured shapes.
func (w *Wave) long(j *tts.Job) (err error) {
	n, slot := len(j.Codes), j.Slot
	codes := append(append([]int32{}, j.Codes...), 0, 0, 0)
	mu, err := w.encodeOnce(w.tails, slot, codes, n, func(rate string) int { return w.filled(rate, slot) })
	if err != nil {
		return errors.Join(err, w.tails.reset())
	}
	mel, _, err := w.transformOnce(w.tails, slot, w.turns[slot].windows, 2*n, mu, nil)
	if err != nil {
		return errors.Join(err, w.tails.reset())
	}
	return w.tail(j, mel.At(0), 2*n)
}

// tail turns the spectrogram of the last window of a turn, of some rows, into sound. All of its codes become sound.
func (w *Wave) tail(j *tts.Job, mel ort.Pointer, rows int) (err error) {
	defer func() { err = errors.Join(err, w.tails.reset()) }()
	from := 0
	if j.First {
		from = models.VocoderKept
	}
	used := counted(from, models.VocoderKept+2*len(j.Codes))
	frames, noise := len(used), w.noise.Rows(j.Slot, 8*len(used))
	rows8 := counted(noise, noise+8*frames)
	session, length := w.vocoder, frames
	in, out := map[string]*networks.Rows{}, map[string]*networks.Rows{}
	w.caches(in, out, "mel", "source", "wave")
	if w.ending != nil {
		session, length, out = w.ending, longestEnd, nil
		used, rows8 = repeated(used, length), repeated(rows8, 8*length)
	}
	o := w.newOnce(w.tails, session)
	if w.ending != nil {
		o.ending(frames)
	}
	o.ints("frames", used, int64(length))
	o.ints("noise_rows", rows8, 1, int64(8*length))
	o.ints("resumed", []int64{int64(1 - from/models.VocoderKept)}, 1, 1)
	o.slot(j.Slot, in, out)
	if o.err == nil {
		x, err := w.tails.handles.TensorAt(mel, models.Float32, 1, int64(rows), int64(w.dims.Flow.Mel))
		o.fail(err)
		if err == nil {
			o.fail(errors.Join(o.run.BindInput("mel", x), o.run.BindInput("noise", w.shared["noise"])))
		}
	}
	sound := o.output("wave", models.Float32, 1, int64(models.FrameSamples*length))
	if err := o.do(); err != nil {
		return err
	}
	wave := make([]float32, models.FrameSamples*frames)
	if err := errors.Join(w.Device().CopyOut(ort.Bytes(wave), sound.At(0)), w.Device().Synchronize()); err != nil {
		return err
	}
	j.Wave = wave
	w.turns[j.Slot].windows++
	return nil
}

// longestEnd is the number of frames of the longest end of a turn.
const longestEnd = models.VocoderKept + 2*(tts.WindowCodes-1)

// ending sets the inputs of VocoderTail for a number of frames.
func (o *once) ending(frames int) {
	counts, edges, heard := models.TailInputs(frames, longestEnd)
	o.input("counts", models.Float32, ort.Bytes(counts), 1, 1, longestEnd)
	o.input("edges", models.Float32, ort.Bytes(edges), int64(len(edges)))
	o.ints("heard", heard, int64(len(heard)))
}

// repeated extends v to n numbers with its last number.
func repeated(v []int64, n int) []int64 {
	for len(v) < n {
		v = append(v, v[len(v)-1])
	}
	return v
}

// AddVoice prepares a voice: the state of a turn after its prompt. It works in the first slot, which must be free.
func (w *Wave) AddVoice(name string, v Reference) (err error) {
	f := w.dims.Flow
	if len(v.Codes)*2 != w.prompt || len(v.Mel) != w.prompt*f.Mel || len(v.Speaker) != f.Speaker {
		return fmt.Errorf("voice %q: expected %d codes, %d values of a spectrogram and %d of a speaker, has %d, %d and %d: add the voice again",
			name, w.prompt/2, w.prompt*f.Mel, f.Speaker, len(v.Codes), len(v.Mel), len(v.Speaker))
	}
	a := w.newScratch()
	defer func() { err = errors.Join(err, a.close()) }()
	slot := 0
	w.turns[slot] = waveTurn{}
	for _, n := range w.state() {
		if err := w.Device().Memset(w.in[n].At(slot), 0, w.in[n].Width()); err != nil {
			return err
		}
	}
	if err := w.Device().CopyIn(w.in["speaker"].At(slot), floatBytes(w.float, direction(v.Speaker))); err != nil {
		return err
	}
	codes := append(append([]int32{}, v.Codes...), silenceCode, silenceCode, silenceCode)
	mu, err := w.encodeOnce(a, slot, codes, len(codes), func(string) int { return 0 })
	if err != nil {
		return err
	}
	if err := w.keep([]*tts.Job{{Slot: slot}}); err != nil {
		return err
	}
	_, added, err := w.transformOnce(a, slot, -1, w.prompt, mu, v.Mel)
	if err != nil {
		return err
	}
	for name, from := range added {
		if err := w.fillRing(slot, name, from); err != nil {
			return err
		}
	}
	return w.store(name, slot)
}

// fillRing copies what a prompt adds to a ring of a slot: keys and values to its first rows, and the two frames of a
// convolution to its last, before the first of a turn.
func (w *Wave) fillRing(slot int, name string, from *ort.Memory) error {
	ring := w.in["past."+name]
	half, count := ring.Width()/2, from.Size()/2 // of the two rows of a slot
	var at int64
	if count < half && ring.Port().Shape[0] == convRows {
		at = half - count
	}
	for r := range int64(2) {
		if err := w.Device().CopyDevice(ring.Within(slot, r*half+at), from.At(r*count), count); err != nil {
			return err
		}
	}
	return nil
}

// store keeps the state of a slot as a voice.
func (w *Wave) store(name string, slot int) error {
	a := w.temporary()
	ports := make([]networks.Port, len(w.begun))
	for i, r := range w.begun {
		ports[i] = r.Port()
		ports[i].Host = false
	}
	rows := a.AllRows("voice "+name, ports, 1)
	err := a.Err()
	if err == nil {
		err = w.CopySlots(rows, 0, w.begun, kvcache.Range{Start: slot, Size: 1})
	}
	if err == nil {
		err = w.Device().Synchronize()
	}
	if err != nil {
		return errors.Join(err, a.Close())
	}
	if old := w.voices[name]; old != nil {
		err = old.Close()
	}
	stored := maps.Clone(w.stored)
	stored[name] = rows
	w.voices[name], w.stored = a, stored
	return err
}
