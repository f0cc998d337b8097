package delay

import "time"

// Next returns the head frame if it is due, or the time until it is.
func (l *Line) Next(now time.Time) (f OutFrame, ok bool, wait time.Duration) { return l.next(now) }

// Wrote records when a frame went out.
func (l *Line) Wrote(f OutFrame, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote(f, at)
}
