package qwen3asr

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"touchline/inference"
	"touchline/inference/internal/mel"
	"touchline/models"
)

const (
	rate       = inference.RecognizerRate
	leastSound = rate / 2 // shorter sound is padded with silence
	cutSearch  = 5 * rate // inference.SplitSound cuts so far from where it is asked to
)

// padded returns the sound, with silence appended if it is shorter than the model's minimum.
func padded(sound []float32) []float32 {
	if len(sound) >= leastSound {
		return sound
	}
	return append(make([]float32, 0, leastSound), sound...)[:leastSound]
}

// floorDrift is by how much, in powers of ten, the loudest sound must rise before encoded windows are encoded
// again: louder sound raises the floor of everything before it.
const floorDrift = 0.05

// window is the input of one run of the encoder, and its result.
type window struct {
	mel    []float32 // [mel.SpeechBins, frames]
	frames int
	rows   int // of the result
	// aligner selects its encoder.
	aligner bool

	out []byte // owned by the loop; nil before the run
}

// features are the features of a growing sound, in windows of the encoder. The zero value is not usable.
type features struct {
	dims   models.Hearing
	stream *mel.Stream
	rows   []float32 // logarithms of the frames that are complete
	peak   float32   // of rows
	whole  []wholeWindow
}

// wholeWindow is a window that gets no more frames.
type wholeWindow struct {
	*window

	low, floor float32 // its smallest logarithm, and the floor under which it was scaled
}

func newFeatures(dims models.Hearing) *features {
	return &features{dims: dims, stream: mel.NewStream()}
}

// append adds sound.
func (f *features) append(sound []float32) {
	n := len(f.rows)
	f.rows = f.stream.Append(f.rows, sound)
	if n == 0 && len(f.rows) > 0 {
		f.peak = f.rows[0]
	}
	f.peak = biggest(f.peak, f.rows[n:])
}

func biggest(most float32, values []float32) float32 {
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// windows returns the windows of all sound so far, at least half a second. Windows of an earlier call are
// returned again if they are still right: exactly, or within floorDrift.
func (f *features) windows(exact bool) []*window {
	rows := f.stream.Tail(f.rows)
	floor := biggest(f.peak, rows[len(f.rows):]) - dynamics
	frames := f.dims.Chunk * f.dims.Window
	var out []*window
	for i := 0; len(rows) > 0; i++ {
		n := min(frames, len(rows)/mel.SpeechBins)
		mine := rows[:n*mel.SpeechBins]
		rows = rows[n*mel.SpeechBins:]
		if (i+1)*frames*mel.SpeechBins > len(f.rows) { // not complete
			out = append(out, newWindow(f.dims, mine, n, floor+dynamics))
			continue
		}
		if i == len(f.whole) {
			f.whole = append(f.whole, wholeWindow{low: slices.Min(mine)})
		}
		w := &f.whole[i]
		if w.window == nil || w.low < floor && floor-w.floor > allowance(exact) {
			w.window, w.floor = newWindow(f.dims, mine, n, floor+dynamics), floor
		}
		out = append(out, w.window)
	}
	return out
}

// dynamics is the range below the peak that mel.Scale keeps, in powers of ten.
const dynamics = 8

func allowance(exact bool) float32 {
	if exact {
		return 0
	}
	return floorDrift
}

// newWindow returns the window of n frames, scaled by peak, the loudest value of its sound.
func newWindow(dims models.Hearing, rows []float32, n int, peak float32) *window {
	w := &window{mel: make([]float32, len(rows)), frames: n, rows: dims.Rows(n)}
	mel.Scale(w.mel, n, rows, peak)
	return w
}

// featurePool limits the sounds whose features are computed at once to one less than the number of cores. With all of 64 clips at once, the
// first features would be complete only when nearly all are: the GPU would wait for them, and the loop for a core.
type featurePool struct {
	places chan struct{}
	active atomic.Int32
}

func newFeaturePool() *featurePool {
	return &featurePool{places: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1))}
}

// windows returns the windows of a whole sound, computed on its share of the cores.
func (p *featurePool) windows(dims models.Hearing, sound []float32) []*window {
	p.places <- struct{}{}
	share := max(cap(p.places)/int(p.active.Add(1)), 1)
	defer func() {
		p.active.Add(-1)
		<-p.places
	}()
	rows := mel.SpeechRows(padded(sound), share)
	peak := slices.Max(rows)
	parts := slices.Collect(slices.Chunk(rows, dims.Chunk*dims.Window*mel.SpeechBins))
	out := make([]*window, len(parts))
	each(len(parts), func(i int) { out[i] = newWindow(dims, parts[i], len(parts[i])/mel.SpeechBins, peak) })
	return out
}

// each calls work with 0 to n-1, on several cores, and returns when all calls have.
func each(n int, work func(i int)) {
	if n == 1 {
		work(0)
		return
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { work(i) })
	}
	all.Wait()
}

// rowsOf returns the rows of all windows.
func rowsOf(windows []*window) int {
	n := 0
	for _, w := range windows {
		n += w.rows
	}
	return n
}
