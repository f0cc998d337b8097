package speech

import (
	"slices"
	"time"
)

// Frame is 20 ms of the voice as it is sent, silence included.
type Frame struct {
	// Due is the frame's place in the schedule. Its first sample is audible EncoderDelay later.
	Due time.Time
	// PCM is 48 kHz mono. It is shared: read only.
	PCM []int16
}

// Frames returns the sound as it is sent, silence included: one 20 ms frame at a time, with its place in the schedule, so that
// skipped frames show as a gap. A subscriber more than a second behind loses frames. The channel is closed when Run returns.
func (w *Writer) Frames() (frames <-chan Frame, cancel func()) { return w.frames.Subscribe(backlog) }

// publish sends the frame to the subscribers.
func (w *Writer) publish(due time.Time) {
	if w.frames.Len() == 0 {
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
