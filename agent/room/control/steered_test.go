package control_test

import (
	"fmt"
	"slices"
	"sync"

	"touchline/agent"
	"touchline/agent/command"
)

// steered is a commentator that notes its orders.
type steered struct {
	mu   sync.Mutex
	done []string
	said []agent.Record
}

func (s *steered) History() []agent.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]agent.Record(nil), s.said...)
}

func (s *steered) note(what, by string) {
	s.mu.Lock()
	s.done = append(s.done, what+" by "+by)
	s.mu.Unlock()
}

func (s *steered) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.done...)
}

func (s *steered) Snapshot() agent.Snapshot      { return agent.Snapshot{Engine: "test"} }
func (s *steered) Start(source, by string) error { s.note("start "+source, by); return nil }
func (s *steered) Stop(by string)                { s.note("stop", by) }
func (s *steered) Command(c command.Command, by string) (agent.Done, error) {
	if !slices.Contains(command.All(), c) {
		return agent.Done{}, &agent.RangeError{Name: "command", Want: "a command", Got: c}
	}
	s.note("command "+string(c), by)
	return agent.Done{Command: c, By: by}, nil
}

func (s *steered) Say(a agent.Announcement, by string) error {
	if a.Text == "busy" {
		return agent.ErrTooMuchToSay
	}
	s.note(fmt.Sprintf("say %q (%s, %v)", a.Text, a.Reason, a.Interrupt), by)
	return nil
}

func (s *steered) Check(agent.Change) error { return nil }
func (s *steered) Change(c agent.Change, by string) (agent.Settings, error) {
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
