package worlds

import (
	"time"

	"touchline/worlds/yard"
)

// yardScene adapts a yard to scene.
type yardScene struct{ *yard.Yard }

func (s yardScene) events(from, to time.Duration) []Event {
	var out []Event
	for _, e := range s.Events(from, to) {
		out = append(out, Event{Yard: &e})
	}
	return out
}

func (s yardScene) truth(at time.Duration, out *Truth) {
	weather, truth := s.Weather(at), s.Truth(at)
	out.Light, out.Night, out.Rain, out.Yard = weather.Light, &weather.Night, &weather.Rain, &truth
}
