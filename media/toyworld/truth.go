package toyworld

import (
	"encoding/json"
	"fmt"
	"time"

	"touchline/media/toyworld/match"
)

// Truth is what the picture of a moment shows. Its JSON form is a record of
// one line, with times in seconds.
type Truth struct {
	// Frame is the number of the frame.
	Frame uint32 `json:"frame"`
	// At is the time since the world's start; "t" in JSON.
	At time.Duration `json:"-"`
	// World is the name of the world.
	World string `json:"world"`
	// Light is the lamps' level, 1 = full. Tint is their colour: white, blue, red or violet.
	Light float64 `json:"light"`
	Tint  string  `json:"tint,omitempty"`
	// Match is set in the match only.
	Match *match.Truth `json:"match,omitempty"`
	// Events begin to show in this frame.
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

// Event is one thing that happens in a world. One of its fields is set.
type Event struct {
	Match *match.Event
}

// At is the time since the world's start at which the event begins to show.
func (e Event) At() time.Duration {
	return e.Match.At
}

// Kind names the kind of event.
func (e Event) Kind() string {
	return string(e.Match.Kind)
}

// Text says in plain words what happens.
func (e Event) Text() string {
	return e.Match.Text
}

// MarshalJSON returns the event's fields in one object, with the time "t" in seconds.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		T float64 `json:"t"`
		*match.Event
	}{inSeconds(e.At()), e.Match})
}

// UnmarshalJSON reads an event.
func (e *Event) UnmarshalJSON(data []byte) error {
	r := struct {
		T float64 `json:"t"`
		*match.Event
	}{Event: &match.Event{}}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	r.Event.At = fromSeconds(r.T)
	e.Match = r.Event
	return nil
}

// inSeconds returns the time in seconds, to the millisecond.
func inSeconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// fromSeconds is the inverse of inSeconds.
func fromSeconds(s float64) time.Duration {
	return time.Duration(s*1000+0.5) * time.Millisecond
}

// Events lists what happens from one moment (included) to another (not
// included), in order.
func (w *World) Events(from, to time.Duration) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scene.events(from, to)
}

// Truth returns what the picture of a moment shows, without events.
func (w *World) Truth(at time.Duration) Truth {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Truth{Frame: w.frameAt(at), At: at, World: w.name, Light: 1}
	w.scene.truth(at, &out)
	return out
}

// Record returns the truth of frame n, with the events that begin to show
// after the frame given as the last one.
func (w *World) Record(n, last uint32) Truth {
	out := w.Truth(w.PTS(n))
	from := time.Duration(0)
	if last < n {
		from = w.PTS(last) + 1
	}
	out.Events = w.Events(from, w.PTS(n)+1)
	return out
}

// frameAt is the number of the frame that a moment shows.
func (w *World) frameAt(at time.Duration) uint32 {
	n := uint32(max(0, at) * time.Duration(w.fps) / time.Second) //nolint:gosec // four years at 30 a second
	if w.PTS(n+1) <= at {
		n++
	}
	return n
}

// matchScene makes a match the scene of a world.
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
