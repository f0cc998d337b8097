package hearing

import (
	"runtime"

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
