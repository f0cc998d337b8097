package agent

import (
	"sync"
	"time"

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

// picture is the state of the watched picture: the measures of its source, the grid of its samples and the window. It has a
// lock of its own, which is held for moments, so that an access unit on its way to the room does not wait for the Session.
// The lock may be taken under Session.mu, not the other way round.
type picture struct {
	mu     sync.Mutex
	meter  sourceMeter
	grid   window.Grid
	fps    float64 // of the samples
	window *window.Window
}

// admit counts an access unit. It reports whether the unit begins another source, whether it ends a pause of the source, and
// whether its picture is sampled.
func (p *picture) admit(f media.EncodedFrame, now time.Time) (fresh, back, sample bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	back = !p.meter.fresh(now) || p.meter.stopped(now)
	if fresh = p.meter.add(f, now); fresh {
		p.window.Clear()
		p.grid = window.Grid{}
	}
	return fresh, back, p.grid.Take(f, p.fps)
}

// add adds a decoded picture to the window. It reports whether the picture is of the present source, and the first of it.
func (p *picture) add(f media.VideoFrame) (ours, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Epoch != p.meter.epoch {
		return false, false
	}
	p.window.Push(f)
	return true, p.window.Len() == 1
}

// source returns the measures of the source.
func (p *picture) source() sourceMeter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.meter
}

// configure sets the rate of the samples and the number of pictures in the window.
func (p *picture) configure(fps float64, pictures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fps = fps
	p.window.Limit(pictures)
}

// look returns the pictures of a look.
func (p *picture) look(frames, stride int) []window.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.Select(frames, stride)
}

// newest returns the newest picture in the window.
func (p *picture) newest() (window.Frame, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.Newest()
}

// buffered returns the number of pictures in the window.
func (p *picture) buffered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.Len()
}

// sourceMeter measures the source: epoch, size, rate, last frame.
type sourceMeter struct {
	any    bool
	epoch  uint32
	codec  media.Codec
	width  int
	height int
	lastAt time.Time
	// pts and arrival of the newest frame.
	pts     time.Duration
	arrival time.Time
	from    time.Time
	count   int
	fps     float64
}

// add counts a frame and reports whether it begins another source.
func (m *sourceMeter) add(f media.EncodedFrame, now time.Time) bool {
	fresh := !m.any || f.Epoch != m.epoch
	if fresh {
		*m = sourceMeter{any: true, epoch: f.Epoch, from: now}
	}
	m.codec, m.lastAt, m.pts, m.arrival = f.Codec, now, f.PTS, f.Arrival
	if f.Width > 0 {
		m.width, m.height = f.Width, f.Height
	}
	m.count++
	if d := now.Sub(m.from); d >= freshFor {
		m.fps = float64(m.count) / d.Seconds()
		m.from, m.count = now, 0
	}
	return fresh
}

// stopped reports whether the next frame is overdue: it is lost, or the camera stopped.
func (m sourceMeter) stopped(now time.Time) bool {
	if m.fps <= 0 {
		return false // not known yet
	}
	return now.Sub(m.lastAt) > max(overdue, time.Duration(overdueFrames/m.fps*float64(time.Second)))
}

func (m sourceMeter) fresh(now time.Time) bool {
	return m.any && now.Sub(m.lastAt) <= freshFor
}
