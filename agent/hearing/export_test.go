package hearing

import "touchline/media/sound"

// Push takes decoded sound.
func (s *Sink) Push(p sound.Piece) {
	if s.m.on.Load() {
		s.m.Push(p)
	}
}

// Heard reports whether the microphone is heard.
func (s *Sink) Heard() bool { return s.m.on.Load() }
