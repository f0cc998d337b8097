package delay

import "time"

// Stats are the running totals of a Line, and the frames and bytes that it holds.
type Stats struct {
	counters
	Frames, Bytes int
}

// Stats returns the totals so far.
func (l *Line) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{counters: l.stats, Frames: len(l.queue) - l.head, Bytes: l.bytes}
}

// Next returns the head frame if it is due, or the time until it is.
func (l *Line) Next(now time.Time) (f OutFrame, ok bool, wait time.Duration) { return l.next(now) }

// Wrote records when a frame went out.
func (l *Line) Wrote(f OutFrame, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote(f, at)
}
