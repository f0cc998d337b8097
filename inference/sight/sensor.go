package sight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"touchline/inference"
)

// Eyes are the part of a conversation with this engine that a Sensor needs.
type Eyes interface {
	inference.Judge

	Watch(f func(inference.Sight))
	Observe(f inference.Frame)
	Close() error
	Forget()
}

// Sensor implements inference.Sensor: it has the eyes of this engine and tells nothing.
type Sensor struct {
	Eyes

	facts atomic.Pointer[inference.Facts] // of the last look; nil before the first
}

var _ inference.Sensor = (*Sensor)(nil)

// NewSensor returns a Sensor, which closes the eyes in the end. It calls looked, which does not block, after each look; news is set after
// the first and when there is any.
func NewSensor(eyes Eyes, looked func(news bool)) *Sensor {
	s := &Sensor{Eyes: eyes}
	eyes.Watch(func(seen inference.Sight) {
		now := &inference.Facts{PTS: seen.PTS, Epoch: seen.Epoch, News: seen.News, Things: numbersOf(seen.Things), Texts: seen.Texts}
		old := s.facts.Swap(now)
		looked(old == nil || old.Epoch != now.Epoch || old.News != now.News)
	})
	return s
}

// Facts implements inference.Sensor.
func (s *Sensor) Facts() (inference.Facts, bool) {
	now := s.facts.Load()
	if now == nil {
		return inference.Facts{}, false
	}
	return *now, true
}

// news counts the facts that are worth a comment.
type news struct {
	repeats

	count uint64
}

// countNews counts the facts of the last look that answers would tell if there was one after each look.
func (w *Watcher) countNews() {
	now := slices.DeleteFunc(slices.Clone(w.fresh), func(f *fact) bool { return f.outdated(w.fresh) })
	now, _ = w.sumUp(&w.news.repeats, now)
	for _, f := range append(joined(now), w.summary(&w.news.repeats)...) {
		if _, holds := w.holding(f); holds && !w.news.soon(f, w.now) {
			w.news.told(f, w.now)
			w.news.count++
		}
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
