package sight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/inference"
)

// Eyes are the part of a conversation with this engine that a Sensor needs.
type Eyes interface {
	inference.Seer

	Observe(f inference.Frame)
	Close() error
	Forget()
}

// Sensor implements inference.Sensor: it has the eyes of this engine and tells nothing.
type Sensor struct {
	Eyes

	mu        sync.Mutex
	newest    inference.Fact // of the last measurement
	changes   uint64
	changedAt time.Duration
	crowded   bool // facts of a crowd came after the last change
}

// crowdChange is the least time between changes that are only the comings and goings of a crowd.
const crowdChange = 2500 * time.Millisecond

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
	s.note(seen)
	return inference.Facts{
		PTS: seen.PTS, Epoch: seen.Epoch, Changes: s.changes, Things: numbersOf(seen.Things), Texts: seen.Texts,
	}, true
}

// note counts a change if there are new facts. Those that the engine sums up in a crowd count now and then.
func (s *Sensor) note(seen inference.Sight) {
	fresh := seen.Facts[slices.Index(seen.Facts, s.newest)+1:]
	crowd, single := 0, false
	for _, f := range seen.Facts {
		what, about, _ := strings.Cut(f.Text, ": ")
		if slices.Contains([]kind{enterFact, appearFact, leaveFact}, kind(what)) && seen.PTS-f.PTS <= crowdTime {
			crowd += 1 + strings.Count(about, ", ")
		}
	}
	for _, f := range fresh {
		what, _, _ := strings.Cut(f.Text, ":")
		single = single || crowd <= crowdEvents || !summed(kind(what))
		s.crowded, s.newest = true, f
	}
	if single || s.crowded && (seen.PTS < s.changedAt || seen.PTS-s.changedAt >= crowdChange) {
		s.changes, s.changedAt, s.crowded = s.changes+1, seen.PTS, false
	}
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
