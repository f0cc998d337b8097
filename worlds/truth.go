package worlds

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"touchline/internal/ticks"
	"touchline/worlds/match"
	"touchline/worlds/yard"
)

// Truth is the content of the picture at a moment. Its JSON form is a record of one line, with
// times in seconds.
type Truth struct {
	// Frame is the number of the frame.
	Frame uint32 `json:"frame"`
	// At is the time since the world's start; "t" in JSON.
	At time.Duration `json:"-"`
	// World is the name of the world.
	World string `json:"world"`
	// Light is the level of the floodlights or, in the yard, of the daylight; 1 = full.
	Light float64 `json:"light"`
	// Tint is the colour of the floodlights: white, blue, red or violet.
	Tint string `json:"tint,omitempty"`
	// Night and Rain are set in the yard only.
	Night *bool `json:"night,omitempty"`
	Rain  *bool `json:"rain,omitempty"`
	// Match or Yard is set, depending on the world.
	Match *match.Truth `json:"match,omitempty"`
	Yard  *yard.Truth  `json:"yard,omitempty"`
	// Events are the events that first show in this frame.
	Events []Event `json:"events,omitempty"`
}

// truthFields are the fields of a Truth without its methods.
type truthFields Truth

// truthRecord is the JSON form of a Truth.
type truthRecord struct {
	T float64 `json:"t"`
	truthFields
}

// MarshalJSON returns the record.
func (t Truth) MarshalJSON() ([]byte, error) {
	return json.Marshal(truthRecord{T: inSeconds(t.At), truthFields: truthFields(t)})
}

// UnmarshalJSON reads a record.
func (t *Truth) UnmarshalJSON(data []byte) error {
	var r truthRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read a truth record: %w", err)
	}
	*t = Truth(r.truthFields)
	t.At = fromSeconds(r.T)
	return nil
}

// Event is an event of a world. One of its fields is set.
type Event struct {
	Match *match.Event
	Yard  *yard.Event
}

// At is when the event becomes visible, since the world's start.
func (e Event) At() time.Duration {
	if e.Yard != nil {
		return e.Yard.At
	}
	return e.Match.At
}

// Kind names the kind of event.
func (e Event) Kind() string {
	if e.Yard != nil {
		return string(e.Yard.Kind)
	}
	return string(e.Match.Kind)
}

// Text describes the event in plain words.
func (e Event) Text() string {
	if e.Yard != nil {
		return e.Yard.Text
	}
	return e.Match.Text
}

// MarshalJSON returns the event's fields in one object, with the time "t" in seconds.
func (e Event) MarshalJSON() ([]byte, error) {
	t := inSeconds(e.At())
	if e.Yard != nil {
		return json.Marshal(yardRecord{t, e.Yard})
	}
	return json.Marshal(matchRecord{t, e.Match})
}

// matchRecord and yardRecord are the JSON forms of events.
type (
	matchRecord struct {
		T float64 `json:"t"`
		*match.Event
	}
	yardRecord struct {
		T float64 `json:"t"`
		*yard.Event
	}
)

// UnmarshalJSON reads an event of any world: their kinds are distinct.
func (e *Event) UnmarshalJSON(data []byte) error {
	var r struct {
		T    float64 `json:"t"`
		Kind string  `json:"kind"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	var err error
	if slices.Contains(yard.Kinds(), yard.Kind(r.Kind)) {
		e.Yard = &yard.Event{}
		err = json.Unmarshal(data, e.Yard)
		e.Yard.At = fromSeconds(r.T)
	} else {
		e.Match = &match.Event{}
		err = json.Unmarshal(data, e.Match)
		e.Match.At = fromSeconds(r.T)
	}
	if err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	return nil
}

// inSeconds returns the time in seconds, rounded to the millisecond.
func inSeconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// fromSeconds is the inverse of inSeconds.
func fromSeconds(s float64) time.Duration {
	return time.Duration(s*1000+0.5) * time.Millisecond
}

// Events lists the events in [from, to), in order.
func (w *World) Events(from, to time.Duration) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scene.events(from, to)
}

// Truth returns the content of the picture at a moment, without events.
func (w *World) Truth(at time.Duration) Truth {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Truth{Frame: w.frameAt(at), At: at, World: w.name, Light: 1}
	w.scene.truth(at, &out)
	return out
}

// Record returns the truth of frame n, with the events since the last frame given.
func (w *World) Record(n, last uint32) Truth {
	out := w.Truth(w.PTS(n))
	from := time.Duration(0)
	if last < n {
		from = w.PTS(last) + 1
	}
	out.Events = w.Events(from, w.PTS(n)+1)
	return out
}

// frameAt returns the number of the frame that is shown at a moment.
func (w *World) frameAt(at time.Duration) uint32 {
	n := uint32(ticks.Count(max(0, at), int64(w.fps)))
	if w.PTS(n+1) <= at {
		n++
	}
	return n
}

// matchScene adapts a match to scene.
type matchScene struct{ *match.Match }

func (s matchScene) events(from, to time.Duration) []Event {
	var out []Event
	for _, e := range s.Events(from, to) {
		out = append(out, Event{Match: &e})
	}
	return out
}

func (s matchScene) truth(at time.Duration, out *Truth) {
	lamps, truth := s.Lamps(at), s.Truth(at)
	out.Light, out.Tint, out.Match = lamps.Level, lamps.Tint, &truth
}
