package hearing

import (
	"runtime"
	"time"

	"touchline/media/sound"
)

// Push takes decoded sound.
func (s *Sink) Push(p sound.Piece) {
	if s.m.on.Load() {
		s.m.Push(p)
	}
}

// Heard reports whether the microphone is heard.
func (s *Sink) Heard() bool { return s.m.on.Load() }

// Wait returns when all sound was taken to the session.
func (s *Sink) Wait() {
	for len(s.m.pieces) > 0 {
		runtime.Gosched()
	}
}

// Comparison compares the levels of a microphone with those of the voice, in dB.
func Comparison(voice, mic []float64) func() {
	v, m := voiceLevels{zero: time.Now()}, ownLevels{}
	for i, db := range voice {
		v.set(int64(i), db)
	}
	for i, db := range mic {
		m.set(int64(i), db)
	}
	return func() {
		m.asked = -1
		v.echoes(&m, 0, v.zero)
	}
}

// Remembered is the number of utterances that are kept for comparison with orders.
func (e *Ears) Remembered() int {
	e.outsiders.mu.Lock()
	defer e.outsiders.mu.Unlock()
	return len(e.outsiders.list)
}

// StandStill is as if the process had stood still for a time until now.
func (e *Ears) StandStill(d time.Duration) { e.still.Check(time.Now().Add(-d)) }
