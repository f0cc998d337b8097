package speech

import (
	"slices"
	"time"
)

// tap is one subscriber; it takes frames with their time or without.
type tap struct {
	frames chan []int16
	timed  chan Frame
}

// Frame is 20 ms of the voice as it is sent, silence included.
type Frame struct {
	// Due is the frame's place in the schedule. Its first sample is heard EncoderDelay later.
	Due time.Time
	// PCM is 48 kHz mono. It is shared: read only.
	PCM []int16
}

// Subscribe taps the sound as it is sent: one 20 ms frame of 48 kHz mono at a
// time, silence included. The slices are shared: read only. A subscriber more
// than a second behind loses frames (counted). The channel is closed when Run
// returns; cancel, which may be called more than once, ends it without closing.
func (w *Writer) Subscribe() (frames <-chan []int16, cancel func()) {
	t := &tap{frames: make(chan []int16, tapFrames)}
	return t.frames, w.add(t)
}

// Frames is Subscribe with the place of each frame in the schedule: frames
// that were skipped show as a gap.
func (w *Writer) Frames() (frames <-chan Frame, cancel func()) {
	t := &tap{timed: make(chan Frame, tapFrames)}
	return t.timed, w.add(t)
}

func (w *Writer) add(t *tap) (cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		t.close()
		return func() {}
	}
	w.taps = append(w.taps, t)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.taps = slices.DeleteFunc(w.taps, func(o *tap) bool { return o == t })
	}
}

func (t *tap) close() {
	if t.timed != nil {
		close(t.timed)
		return
	}
	close(t.frames)
}

// tell calls the frame's events. Only Run's goroutine touches them after fill.
func (w *Writer) tell(at time.Time) {
	for i, e := range w.events {
		when := at.Add(samples(int64(e.place + lookahead)))
		switch {
		case !e.end && e.u.ev.Started != nil:
			e.u.ev.Started(when)
		case e.end && e.u.ev.Ended != nil:
			e.u.ev.Ended(when, e.cut)
		}
		w.events[i].u = nil
	}
	w.events = w.events[:0]
}

func (w *Writer) tap(due time.Time) {
	if len(w.taps) == 0 {
		return
	}
	frame := slices.Clone(w.pcm[:])
	for _, t := range w.taps { // a channel that is nil takes nothing
		select {
		case t.frames <- frame:
		case t.timed <- Frame{due, frame}:
		default:
			w.stats.TapDrops++
		}
	}
}
