package sight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"touchline/inference"
)

// Eyes are the part of a conversation with this engine that a Sensor needs.
type Eyes interface {
	inference.Seer

	Observe(f inference.Frame)
	Close() error
}

// Sensor implements inference.Sensor: it has the eyes of this engine and tells nothing.
type Sensor struct {
	Eyes

	mu      sync.Mutex
	newest  inference.Fact // of the last measurement
	changes uint64
}

var _ inference.Sensor = (*Sensor)(nil)

// NewSensor returns a Sensor, which closes the eyes in the end.
func NewSensor(eyes Eyes) *Sensor { return &Sensor{Eyes: eyes} }

// Facts implements inference.Sensor.
func (s *Sensor) Facts() (inference.Facts, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.Sight()
	if !ok {
		return inference.Facts{}, false
	}
	if n := len(seen.Facts); n > 0 && seen.Facts[n-1] != s.newest {
		s.newest = seen.Facts[n-1]
		s.changes++
	}
	return inference.Facts{
		PTS: seen.PTS, Epoch: seen.Epoch, Changes: s.changes, Things: numbersOf(seen.Things), Texts: seen.Texts,
	}, true
}

// numbersOf returns the numbers of things, people first: "3 people, 1 car".
func numbersOf(things []inference.Thing) string {
	counts := map[string]int{}
	var names []string
	for _, t := range things {
		if counts[t.Name]++; counts[t.Name] == 1 {
			names = append(names, t.Name)
		}
	}
	first := func(name string) int {
		if name == person {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(first(a)-first(b), counts[b]-counts[a], cmp.Compare(a, b)) })
	for i, name := range names {
		if n := counts[name]; n > 1 {
			names[i] = fmt.Sprintf("%d %s", n, languageOf(english).noun(name, formMany))
		} else {
			names[i] = "1 " + name
		}
	}
	return strings.Join(names, ", ")
}
