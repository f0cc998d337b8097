package voice_test

import (
	"touchline/inference"
	sessions "touchline/inference/engine"
	"touchline/inference/voice"
)

// wrap returns a model whose sessions have the voice of speech programs.
func wrap(m inference.Model, programs *voice.Synthesizer) inference.Model {
	return sessions.Of(m, programs)
}

// problemIn returns what the voice lacks in a room.
func problemIn(s inference.Session) string {
	room, _ := s.(*sessions.Session)
	return room.Status().VoiceProblem
}
