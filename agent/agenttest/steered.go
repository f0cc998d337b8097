package agenttest

import (
	"fmt"
	"slices"
	"sync"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/agent/speech"
)

// Steered is a commentator that notes its orders.
type Steered struct {
	mu      sync.Mutex
	done    []string
	records []look.Record
}

// Record adds a record to the history.
func (s *Steered) Record(r look.Record) {
	s.mu.Lock()
	s.records = append(s.records, r)
	s.mu.Unlock()
}

// Orders returns the orders so far, each with its author.
func (s *Steered) Orders() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.done)
}

func (s *Steered) note(what, by string) {
	s.mu.Lock()
	s.done = append(s.done, what+" by "+by)
	s.mu.Unlock()
}

// History returns the records.
func (s *Steered) History() []look.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records)
}

// Snapshot returns the state of an engine named test.
func (s *Steered) Snapshot() agent.Snapshot { return agent.Snapshot{Engine: "test"} }

// Start notes the source.
func (s *Steered) Start(source, by string) error { s.note("start "+source, by); return nil }

// Stop notes the stop.
func (s *Steered) Stop(by string) { s.note("stop", by) }

// Command notes a known command.
func (s *Steered) Command(c command.Command, by string) (command.Done, error) {
	if !slices.Contains(command.All(), c) {
		return command.Done{}, &settings.RangeError{Name: "command", Want: "a command", Got: c}
	}
	s.note("command "+string(c), by)
	return command.Done{Command: c, By: by}, nil
}

// Say notes an announcement; it refuses the text "busy".
func (s *Steered) Say(a speech.Notice, by string) error {
	if a.Text == "busy" {
		return speech.ErrFull
	}
	s.note(fmt.Sprintf("say %q (%s, %v)", a.Text, a.Reason, a.Interrupt), by)
	return nil
}

// Check accepts every change.
func (s *Steered) Check(command.Change) error { return nil }

// Change notes the kind of a change.
func (s *Steered) Change(c command.Change, by string) (settings.Settings, error) {
	switch {
	case c.Instruction != nil && *c.Instruction == "":
		s.note("clear", by)
	case c.Instruction != nil:
		s.note("instruction "+*c.Instruction, by)
	case c.Profile != nil:
		s.note("profile "+*c.Profile, by)
	case c.Source != nil:
		s.note("source "+*c.Source, by)
	default:
		s.note("settings", by)
	}
	return c.Settings, nil
}
