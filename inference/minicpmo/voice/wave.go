package voice

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/models"
)

const (
	// chunkFrames is the number of frames of the spectrogram of a window: two for each code.
	chunkFrames = models.ChunkFrames
	// The rings of the flow keep the newest frames, as many as the voice's prompt has, and the last keptPrompt frames of the prompt.
	keptPrompt = models.FlowKept
	// growth is the number of frames of a turn before the first are overwritten.
	growth = keptPrompt + chunkFrames
	// convRows is the length of the rings of the flow's convolutions, which look two frames back.
	convRows = chunkFrames + 2
	// maskedOut is the mask of rows that do not count.
	maskedOut = -1e4
	// together is the largest number of slots in one run of the encoder or the vocoder. Larger runs save little time and need memory in
	// proportion.
	together = 16
	// overlap is the number of samples that a turn holds back for the next window.
	overlap = models.VocoderKept * models.FrameSamples
)

// Noise is the noise that the flow and the vocoder start from.
type Noise struct {
	Flow    []float32 // [prompt+keptPrompt+2*tts.WindowCodes,mel], the same for every turn
	Vocoder []float32 // rows of models.NoiseColumns
	// Rows returns the first of n rows of the vocoder's noise for a turn's next window.
	Rows func(slot, n int) int
}

// Wave turns windows of codes into sound on ONNX Runtime (FlowEncoder, FlowDiT,
// FlowDiTOnce and Vocoder of package graph).
//
// All turns have a prompt of one length, so that every ring has the same places. The rings
// of the flow are written in place, where the next window of the turn belongs; the other
// caches are written elsewhere, and kept when the window is sound. So repeating a window, or
// running other slots along, harms nothing.
type Wave struct {
	*networks.Arena

	// EndsTook is how long the ends of turns took at warm-up.
	EndsTook time.Duration

	runtime *ort.Runtime
	dims    models.Speech
	float   models.Type
	slots   kvcache.Layout
	noise   Noise
	single  bool // on the CPU

	flowRing

	encoder, flow, once, vocoder *ort.Session
	ending                       *ort.Session // the vocoder of a turn's end of any length; nil in older bundles

	encode, transform *networks.Network
	first, later      *networks.Network // of the vocoder

	// in and out are the rows of all networks by name.
	in, out map[string]*networks.Rows
	kept    [2][]*networks.Rows // present.x that a run writes, and past.x that they become
	rings   []string            // past.x that a run writes in place
	begun   []*networks.Rows    // the state at the beginning of a turn
	shared  map[string]*ort.Tensor

	turns  []waveTurn
	tails  *scratch
	voices map[string]*networks.Arena
	stored map[string][]*networks.Rows // the state after a voice's prompt
}

// temporary returns an arena for one use.
func (w *Wave) temporary() *networks.Arena { return networks.NewArena(w.runtime, w.Device()) }

// flowRing is the layout of the flow's rings behind a prompt of some frames.
type flowRing struct{ prompt int }

// rows returns the rows of a ring of keys or values.
func (r flowRing) rows() int { return (r.prompt + growth + 7) / 8 * 8 }

// place returns the first ring row of a turn's n-th window.
func (r flowRing) place(n int) int {
	if n < growth/chunkFrames {
		return r.prompt + n*chunkFrames
	}
	// The middle of the prompt from its end on, then the turn's windows again, in their order.
	middle := (r.prompt - keptPrompt) / chunkFrames
	n = (n - growth/chunkFrames) % (middle + growth/chunkFrames)
	if n < middle {
		return (middle - 1 - n) * chunkFrames
	}
	return r.prompt + (n-middle)*chunkFrames
}

// counts reports whether a ring row belongs to a turn before its n-th window.
func (r flowRing) counts(row, n int) bool {
	if n < growth/chunkFrames {
		return row < r.prompt+n*chunkFrames
	}
	at := r.place(n)
	return row < r.prompt+growth && (row < at || row >= at+chunkFrames)
}

// heard returns the number of noise frames before a turn's n-th window.
func (r flowRing) heard(n int) int { return r.prompt + min(n*chunkFrames, keptPrompt) }

// waveTurn is the state of a slot on the host.
type waveTurn struct {
	windows int // that became frames
}

var _ tts.Wave = (*Wave)(nil)

// WaveOptions are the parameters of OpenWave.
type WaveOptions struct {
	// Files are the graph files of the encoder, the flow, the flow for any length, the vocoder, and the vocoder for the end of a turn; ""
	// for none.
	Files   [5]string
	Float   models.Type // of the graphs
	Dims    models.Speech
	Slots   int
	Prompt  int // frames
	Threads int
	Noise   Noise
}

// OpenWave opens the networks of the voice's sound.
func OpenWave(rt *ort.Runtime, dev *ort.Device, o WaveOptions) (_ *Wave, err error) {
	w := &Wave{
		Arena: networks.NewArena(rt, dev), runtime: rt, dims: o.Dims, float: o.Float,
		slots: kvcache.Layout{Slots: o.Slots}, noise: o.Noise,
		flowRing: flowRing{o.Prompt}, single: dev.Kind() == ort.CPU, turns: make([]waveTurn, o.Slots),
		in: map[string]*networks.Rows{}, out: map[string]*networks.Rows{}, shared: map[string]*ort.Tensor{},
		stored: map[string][]*networks.Rows{}, voices: map[string]*networks.Arena{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	for i, s := range []**ort.Session{&w.encoder, &w.flow, &w.once, &w.vocoder, &w.ending} {
		if o.Files[i] == "" {
			continue
		}
		so := ort.SessionOptions{CUDAGraph: true, Threads: o.Threads, NoMemoryPattern: true, NHWC: s == &w.vocoder || s == &w.ending}
		if *s, err = rt.NewSession(o.Files[i], dev, so); err != nil {
			return nil, err
		}
	}
	w.tails = w.newScratch()
	w.allocate()
	if err := w.Err(); err != nil {
		return nil, err
	}
	return w, w.connect()
}

// Close frees everything.
func (w *Wave) Close() error {
	var err error
	if w.tails != nil {
		err = w.tails.close()
	}
	for _, a := range w.voices {
		err = errors.Join(err, a.Close())
	}
	err = errors.Join(err, w.Arena.Close())
	for _, s := range []*ort.Session{w.ending, w.vocoder, w.once, w.flow, w.encoder} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// counted returns the integers in [a, b).
func counted(a, b int) []int64 {
	out := make([]int64, 0, b-a)
	for i := a; i < b; i++ {
		out = append(out, int64(i))
	}
	return out
}

// put writes values to rows of floats on the host.
func (w *Wave) put(name string, slot int, values []float32) {
	copy(w.in[name].Host(slot, 1), floatBytes(w.float, values))
}

// ints returns a slot's row of integers on the host.
func (w *Wave) ints(name string, slot int) []int64 {
	return ort.Slice[int64](w.in[name].Host(slot, 1))
}

// state returns the names of a turn's initial state.
func (w *Wave) state() []string {
	names := append(slices.Clone(w.rings), "speaker")
	for _, n := range w.encoderCaches() {
		names = append(names, "past."+n)
	}
	return names
}

// Begin implements tts.Wave.
func (w *Wave) Begin(slot int, voice string) error {
	from, ok := w.stored[voice]
	if !ok {
		return fmt.Errorf("the model has no voice %q", voice)
	}
	w.turns[slot] = waveTurn{}
	return w.CopySlots(w.begun, slot, from, kvcache.Range{Size: 1})
}

// Run implements tts.Wave.
func (w *Wave) Run(jobs []tts.Job) {
	var shared []*tts.Job
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.Last && len(j.Codes) > tts.Burst:
			j.Err = w.long(j)
		case w.single: // sharing a run gains nothing
			w.all([]*tts.Job{j})
		default:
			shared = append(shared, j)
		}
	}
	if len(shared) > 0 {
		w.all(shared)
	}
}

// all runs windows that fit the captured shapes, together.
func (w *Wave) all(jobs []*tts.Job) {
	if err := w.windows(jobs); err != nil {
		for _, j := range jobs {
			j.Err = err
		}
	}
}

// cover returns the slots of a run: on CUDA all from the first on, which needs a captured graph for each size only. Turns use the first
// slots first.
func (w *Wave) cover(jobs []*tts.Job) kvcache.Range {
	low, high := jobs[0].Slot, jobs[0].Slot
	for _, j := range jobs {
		low, high = min(low, j.Slot), max(high, j.Slot)
	}
	if !w.single {
		low = 0
	}
	return w.slots.Cover(low, high)
}

// SharedSlots implements tts.Wave.
func (w *Wave) SharedSlots(slot int) int {
	if w.single {
		return 0
	}
	return w.slots.Cover(0, slot).Size
}

// windows runs windows of any kind: the encoder and the flow for all, then the vocoder for each kind.
func (w *Wave) windows(jobs []*tts.Job) error {
	r := w.cover(jobs)
	for slot := r.Start; slot < r.Start+r.Size; slot++ { // the others run along
		w.frames(slot, slot-r.Start, chunkFrames)
	}
	var first, later, last []*tts.Job
	for _, j := range jobs {
		rows := chunkFrames / 2
		switch {
		case j.Last:
			last, rows = append(last, j), len(j.Codes)
		case j.First:
			first = append(first, j)
		default:
			later = append(later, j)
		}
		w.window(j.Slot, j.Codes, rows, (j.Slot-r.Start)%together)
		w.frames(j.Slot, j.Slot-r.Start, 2*rows)
	}
	if err := w.parts(r, jobs, w.encode.Run); err != nil {
		return err
	}
	if err := w.transform.Run(r); err != nil {
		return err
	}
	for _, j := range last {
		if err := w.tail(j, w.out["mel"].At(j.Slot), chunkFrames); err != nil {
			return err
		}
	}
	return errors.Join(w.sound(w.first, chunkFrames, first), w.sound(w.later, chunkFrames+models.VocoderKept, later))
}

// sound runs the vocoder for whole windows of one kind.
func (w *Wave) sound(vocoder *networks.Network, frames int, jobs []*tts.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	r := w.cover(jobs)
	for _, j := range jobs {
		w.sounding(j.Slot, j.First, frames)
	}
	wave := w.out["wave."+strconv.Itoa(frames)]
	err := w.parts(r, jobs, func(r kvcache.Range) error { return errors.Join(vocoder.Run(r), w.Copy(r, wave)) })
	if err == nil {
		err = w.Device().Synchronize()
	}
	if err != nil {
		return err
	}
	for _, j := range jobs {
		samples := ort.Slice[float32](wave.Host(j.Slot, 1))
		j.Wave = slices.Clone(samples[:len(samples)-overlap])
		w.turns[j.Slot].windows++
	}
	return w.keep(jobs)
}

// parts runs the parts of a range that have a job.
func (w *Wave) parts(r kvcache.Range, jobs []*tts.Job, run func(kvcache.Range) error) error {
	for part := (kvcache.Range{Start: r.Start, Size: min(r.Size, together)}); part.Start < r.Start+r.Size; part.Start += part.Size {
		if !slices.ContainsFunc(jobs, func(j *tts.Job) bool { return part.Has(j.Slot) }) {
			continue
		}
		if err := run(part); err != nil {
			return err
		}
	}
	return nil
}

// window sets the inputs of the encoder for a slot that is the at-th of its run: codes, the first rows of which become frames.
func (w *Wave) window(slot int, codes []int32, rows, at int) {
	marks := make([]float32, tts.WindowCodes)
	row := w.ints("codes", slot)
	clear(row)
	for i, c := range codes {
		row[i], marks[i] = int64(c), 1
	}
	w.put("coded", slot, marks)
	for _, rate := range rates() {
		cached, run := w.cached(rate)
		filled := w.filled(rate, slot)
		w.put("mask."+rate, slot, maskOf(cached, filled, run, run-rows*run/(chunkFrames/2)))
		w.keepRows(w.ints("keep."+rate, slot), rate, filled, run, at*(cached+run))
	}
}

// filled returns the rows of the encoder's caches at a rate that a slot has filled.
func (w *Wave) filled(rate string, slot int) int {
	cached, run := w.cached(rate)
	prompt := w.prompt
	if rate == "25" {
		prompt /= 2
	}
	return min(cached, prompt+w.turns[slot].windows*run)
}

// maskOf masks the rows of a cache that are not filled, which are the first, and the padding at the end of a run.
func maskOf(cached, filled, run, padding int) []float32 {
	mask := make([]float32, cached+run)
	for i := range mask {
		if i < cached-filled || i >= len(mask)-padding {
			mask[i] = maskedOut
		}
	}
	return mask
}

// keepRows sets which rows of cache and run are the next cache: the newest while there is room. Once it is full, the blocks at 25 rows a
// second keep the oldest rows, and the blocks at 50 the rows of the prompt and the newest, as in the official code.
func (w *Wave) keepRows(to []int64, rate string, filled, run, from int) {
	for i := range to {
		row := run + i
		if filled+run > len(to) && (rate == "25" || i < w.prompt) {
			row = i
		}
		to[i] = int64(from + row)
	}
}

// frames sets the inputs of the flow for the slot that is the at-th of a run, of which count frames become sound.
func (w *Wave) frames(slot, at, count int) {
	n, mel := w.turns[slot].windows, w.dims.Flow.Mel
	copy(ort.Slice[float32](w.in["noise"].Host(slot, 1)), w.noise.Flow[w.heard(n)*mel:])
	write, conv := w.place(n), n*chunkFrames%convRows
	mask := make([]float32, w.rows())
	for i := range mask {
		if !w.counts(i, n) && (i < write || i >= write+count) {
			mask[i] = maskedOut
		}
	}
	w.put("mask", slot, slices.Concat(mask, mask))
	rows := w.ints("conv_rows", slot)[:0]
	for r := range 2 {
		w.ints("write", slot)[r], w.ints("conv_write", slot)[r] = int64(write), int64(conv)
		for t := range chunkFrames {
			for back := 2; back >= 0; back-- {
				rows = append(rows, int64((2*at+r)*convRows+(conv+t-back+convRows)%convRows))
			}
		}
	}
}

// sounding sets the inputs of the vocoder for a run of frames.
func (w *Wave) sounding(slot int, first bool, frames int) {
	w.ints("resumed", slot)[0] = 1
	if first {
		w.ints("resumed", slot)[0] = 0
	}
	from := w.noise.Rows(slot, 8*frames)
	copy(w.ints("noise_rows."+strconv.Itoa(frames), slot), counted(from, from+8*frames))
}

// keep stores the state for the next windows of turns.
func (w *Wave) keep(jobs []*tts.Job) error {
	slots := make([]int, len(jobs))
	for i, j := range jobs {
		slots[i] = j.Slot
	}
	slices.Sort(slots)
	for i := 0; i < len(slots); {
		n := 1
		for ; i+n < len(slots) && slots[i+n] == slots[i]+n; n++ {
		}
		if err := w.CopySlots(w.kept[1], slots[i], w.kept[0], kvcache.Range{Start: slots[i], Size: n}); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// direction returns a vector of length 1.
func direction(v []float32) []float32 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(float64(x) / math.Sqrt(max(sum, 1e-24)))
	}
	return out
}

// floatBytes returns numbers in a graph's float. Those of float32 are not copied.
func floatBytes(float models.Type, values []float32) []byte {
	if float == models.Float32 {
		return ort.Bytes(values)
	}
	half := make([]uint16, len(values))
	for i, v := range values {
		half[i] = models.Float16Bits(v)
	}
	return ort.Bytes(half)
}
