package look

import (
	"sync"
	"time"

	"touchline/inference"
	"touchline/media"
	"touchline/media/window"
)

// freshFor is how long after its last frame a source counts as present.
const freshFor = 2 * time.Second

// A frame is overdue after the time of overdueFrames frames, at least overdue, which covers network jitter.
const (
	overdue       = 250 * time.Millisecond
	overdueFrames = 3
)

// Picture is the state of the watched picture: the measures of its source, the grid of its samples and the window. Its lock is a
// leaf, held for moments: an access unit on its way to the room waits for nothing else.
type Picture struct {
	mu     sync.Mutex
	meter  Source
	grid   window.Grid
	fps    float64 // of the samples
	window *window.Window
	from   time.Time // of the window
}

// NewPicture returns the state of a picture before its first frame; size bounds the window.
func NewPicture(size int) *Picture { return &Picture{window: window.New(size)} }

// Admit counts an access unit. It reports whether the unit begins another source, whether it ends a pause of the source, and
// whether its picture is sampled.
func (p *Picture) Admit(f media.EncodedFrame, now time.Time) (fresh, back, sample bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	back = !p.meter.Fresh(now) || p.meter.Stopped(now)
	if fresh = p.meter.add(f, now); fresh {
		p.window.Clear()
		p.grid = window.Grid{}
	}
	return fresh, back, p.grid.Take(f, p.fps)
}

// Add adds a decoded picture to the window. It reports whether the picture is of the present source, and the first of it.
func (p *Picture) Add(f media.VideoFrame) (ours, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Epoch != p.meter.Epoch || f.Arrival.Before(p.from) {
		return false, false
	}
	p.window.Push(f)
	return true, p.window.Len() == 1
}

// Clear empties the window.
func (p *Picture) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window.Clear()
}

// ClearBefore empties the window, and takes no picture that arrived before a time.
func (p *Picture) ClearBefore(from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from = from
	p.window.Clear()
}

// Source returns the measures of the source.
func (p *Picture) Source() Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.meter
}

// Configure sets the rate of the samples and the number of pictures in the window.
func (p *Picture) Configure(fps float64, pictures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fps = fps
	p.window.Limit(pictures)
}

// Select returns the pictures of a look.
func (p *Picture) Select(frames, stride int) []window.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.Select(frames, stride)
}

// Newest returns the newest picture in the window; false if the window is empty.
func (p *Picture) Newest() (window.Frame, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.Newest()
}

// Len returns the number of pictures in the window.
func (p *Picture) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.Len()
}

// Size returns the size of the engine's pictures with a long side; changed says that it is not in force yet.
func (p *Picture) Size(longSide int, changed bool) (width, height int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.window.Newest(); ok && !changed {
		return f.Width, f.Height
	}
	width, height = p.meter.Width, p.meter.Height
	if width < 1 || height < 1 {
		return longSide, longSide * 9 / 16
	}
	if long := max(width, height); long > longSide {
		width, height = max(1, width*longSide/long), max(1, height*longSide/long)
	}
	return width, height
}

// Source measures the watched source.
type Source struct {
	Any           bool // there was a frame
	Epoch         uint32
	Codec         media.Codec
	Width, Height int
	FPS           float64
	// PTS and Arrival of the newest frame.
	PTS     time.Duration
	Arrival time.Time

	lastAt, from time.Time
	count        int
}

// add counts a frame and reports whether it begins another source.
func (m *Source) add(f media.EncodedFrame, now time.Time) bool {
	fresh := !m.Any || f.Epoch != m.Epoch
	if fresh {
		*m = Source{Any: true, Epoch: f.Epoch, from: now}
	}
	m.Codec, m.lastAt, m.PTS, m.Arrival = f.Codec, now, f.PTS, f.Arrival
	if f.Width > 0 {
		m.Width, m.Height = f.Width, f.Height
	}
	m.count++
	if d := now.Sub(m.from); d >= freshFor {
		m.FPS = float64(m.count) / d.Seconds()
		m.from, m.count = now, 0
	}
	return fresh
}

// Stopped reports whether the next frame is overdue: it is lost, or the camera stopped.
func (m Source) Stopped(now time.Time) bool {
	if m.FPS <= 0 {
		return false // not known yet
	}
	return now.Sub(m.lastAt) > max(overdue, time.Duration(overdueFrames/m.FPS*float64(time.Second)))
}

// Fresh reports whether the source is present.
func (m Source) Fresh(now time.Time) bool {
	return m.Any && now.Sub(m.lastAt) <= freshFor
}

// Pictures returns pictures as they are in a prompt.
func Pictures(frames []window.Frame) []inference.Frame {
	out := make([]inference.Frame, len(frames))
	for i, f := range frames {
		out[i] = EngineFrame(f.VideoFrame)
	}
	return out
}

// EngineFrame returns a picture in the engines' form.
func EngineFrame(f media.VideoFrame) inference.Frame {
	return inference.Frame{PTS: f.PTS, Epoch: f.Epoch, Width: f.Width, Height: f.Height, Pix: f.Pix}
}
