package look

import (
	"time"

	"touchline/inference"
)

// Sight is what the engine found in a picture.
type Sight struct {
	// At is the arrival of the picture, PTS its media time in seconds.
	At     time.Time         `json:"at"`
	PTS    float64           `json:"pts"`
	Things []inference.Thing `json:"things"`
	Facts  []Fact            `json:"facts"` // the last ones, oldest first
}

// Fact is a measured event; PTS is its media time in seconds.
type Fact struct {
	PTS  float64 `json:"pts"`
	Text string  `json:"text"`
}

// Sight returns what the engine found in the newest picture that it looked at; false for an engine that finds nothing, and before its
// first look.
func (l *Loop) Sight() (Sight, bool) {
	seen, ok := l.engine.current().Sight()
	source := l.picture.Source()
	if !ok || seen.Epoch != source.Epoch {
		return Sight{}, false
	}
	return Sight{
		At: source.Arrival.Add(seen.PTS - source.PTS), PTS: seen.PTS.Seconds(),
		Things: append([]inference.Thing{}, seen.Things...), Facts: append([]Fact{}, facts(seen.Facts)...),
	}, true
}

func facts(of []inference.Fact) []Fact {
	var out []Fact
	for _, f := range of {
		out = append(out, Fact{f.PTS.Seconds(), f.Text})
	}
	return out
}
