package speech

import (
	"slices"
	"sync"
	"time"
)

// Fanout sends values to subscribers without waiting for them. All methods are safe for concurrent use.
type Fanout[T any] struct {
	mu          sync.Mutex
	subscribers []chan T
	closed      bool
}

// Subscribe returns a channel with space for backlog values; a full channel loses values. Close closes it. cancel,
// which may be called more than once, ends the subscription without closing it.
func (f *Fanout[T]) Subscribe(backlog int) (values <-chan T, cancel func()) {
	c := make(chan T, backlog)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		close(c)
		return c, func() {}
	}
	f.subscribers = append(f.subscribers, c)
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.subscribers = slices.DeleteFunc(f.subscribers, func(s chan T) bool { return s == c })
	}
}

// Empty reports whether there is no subscriber.
func (f *Fanout[T]) Empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subscribers) == 0
}

// Send returns the number of subscribers that lost the value.
func (f *Fanout[T]) Send(value T) (lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		select {
		case s <- value:
		default:
			lost++
		}
	}
	return lost
}

// Close closes the channels of the subscribers, and of later ones.
func (f *Fanout[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, s := range f.subscribers {
		close(s)
	}
	f.subscribers = nil
}

// Frame is 20 ms of the voice as it is sent, silence included.
type Frame struct {
	// Due is the frame's place in the schedule. Its first sample is heard EncoderDelay later.
	Due time.Time
	// PCM is 48 kHz mono. It is shared: read only.
	PCM []int16
}

// Frames returns the sound as it is sent, silence included: one 20 ms frame at a time, with its place in the schedule, so that
// skipped frames show as a gap. A subscriber more than a second behind loses frames. The channel is closed when Run returns.
func (w *Writer) Frames() (frames <-chan Frame, cancel func()) { return w.frames.Subscribe(backlog) }

// publish sends the frame to the subscribers.
func (w *Writer) publish(due time.Time) {
	if w.frames.Empty() {
		return
	}
	w.stats.Lost += w.frames.Send(Frame{due, slices.Clone(w.pcm[:])})
}

// notify calls the frame's events. Only Run's goroutine uses them after fill.
func (w *Writer) notify(at time.Time) {
	for i, e := range w.events {
		when := at.Add(duration(int64(e.place + lookahead)))
		switch {
		case e.lost > 0:
			if e.u.ev.Slipped != nil {
				e.u.ev.Slipped(e.lost)
			}
		case !e.end && e.u.ev.Started != nil:
			e.u.ev.Started(when)
		case e.end && e.u.ev.Ended != nil:
			e.u.ev.Ended(when, e.cut)
		}
		w.events[i].u = nil
	}
	w.events = w.events[:0]
}
