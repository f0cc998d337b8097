package command

import (
	"errors"
	"fmt"
	"time"

	"touchline/agent/settings"
	"touchline/inference"
)

// ErrNothingTo is wrapped by the error of a command that has nothing to act on.
var ErrNothingTo = errors.New("nothing to do")

// Done is the result of a command.
type Done struct {
	Command Command   `json:"command"`
	Effect  string    `json:"effect"` // a sentence
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// Handle carries out a text that a person typed or said: a command if Parse recognizes one, otherwise an instruction. The returned command
// is nil for an instruction.
func Handle(to interface {
	Command(c Command, by string) (Done, error)
	Change(c Change, by string) (settings.Settings, error)
}, text, by string,
) (*Done, error) {
	if c, ok := Parse(text); ok {
		done, err := to.Command(c, by)
		return &done, err
	}
	_, err := to.Change(Change{Instruction: &text}, by)
	return nil, err
}

// gainStep is the step of louder and softer, in dB.
const gainStep = 6

// maxUndo bounds the orders that can be taken back.
const maxUndo = 16

// ordered is the state that an order can change.
type ordered struct {
	instruction, by string
	active          bool
	profile         string
	settings        settings.State
}

// order is the state before and after an order that acted.
type order struct {
	before, after ordered
	waits         string // an instruction of the same Change that does not act yet; "" without
}

func orderedOf(s *Steering) ordered {
	return ordered{s.state.Instruction, s.state.InstructionBy, s.state.Active, s.state.Profile.Name, s.live.State()}
}

func (o ordered) same(p ordered) bool {
	return o.instruction == p.instruction && o.by == p.by && o.active == p.active && o.profile == p.profile && o.settings.Same(p.settings)
}

// remember carries out one order and stores the previous state for Undo. It reports whether the order changed the state.
func (s *Steering) remember(act func()) bool {
	before := orderedOf(s)
	act()
	after := orderedOf(s)
	if before.same(after) {
		return false
	}
	s.past = append(s.past[max(0, len(s.past)+1-maxUndo):], order{before: before, after: after})
	return true
}

// Command carries out a command at once. The error is a *RangeError for an unknown command, and wraps ErrNothingTo if the command has
// nothing to act on. Repeat may return speech.ErrFull.
func (s *Steering) Command(c Command, by string) (Done, error) {
	done := Done{Command: c, By: by, At: time.Now()}
	err := s.do(func() (err error) {
		if c == Undo {
			done.Effect, err = s.undo(by, done.At)
		} else {
			s.remember(func() { done.Effect, err = s.command(c, by) })
		}
		if err == nil {
			s.done = &done
		}
		return err
	})
	if err != nil {
		return Done{}, err
	}
	s.log.Info().Str("command", string(c)).Str("by", by).Msg("command")
	s.log.Debug().Str("effect", done.Effect).Msg("command done") // it may quote an instruction
	return done, nil
}

func (s *Steering) command(c Command, by string) (effect string, err error) {
	switch c {
	case Stop:
		if !s.state.Active && !s.room.Busy() {
			return "", fmt.Errorf("%w: commenting is off already", ErrNothingTo)
		}
		s.pause()
		return s.did(c), nil
	case GoOn:
		if s.state.Active {
			return "", fmt.Errorf("%w: commenting is on already", ErrNothingTo)
		}
		s.state.Active = true
		s.room.ActNow(s.now())
		return s.did(c), nil
	case Undo: // see Command
	case Shorter:
		return s.talkBy(c, -1)
	case Longer:
		return s.talkBy(c, 1)
	case Repeat:
		if err := s.room.Repeat(by); err != nil {
			return "", err
		}
		return s.did(c), nil
	case Louder:
		return s.gainBy(c, gainStep)
	case Softer:
		return s.gainBy(c, -gainStep)
	}
	return "", &settings.RangeError{Name: "command", Want: fmt.Sprintf("one of %q", All()), Got: fmt.Sprintf("%.40q", c)}
}

// did returns a sentence about the effect of a command, in the language of the comments.
func (s *Steering) did(key Command, values ...any) string {
	return Did(s.engine.Capabilities().AnswersIn(s.live.Inference.Voice.Language), key, values...)
}

// undo reverts the changes of the last order, except values that have changed since.
func (s *Steering) undo(by string, now time.Time) (string, error) {
	n := len(s.past)
	w, waited := s.orders.drop(by)
	switch {
	case waited && (n == 0 || s.past[n-1].waits != w.Instruction):
		return s.did("undo.waiting", w.Instruction), nil
	case n == 0:
		return "", fmt.Errorf("%w: there is no order to take back", ErrNothingTo)
	}
	was, after := s.past[n-1].before, s.past[n-1].after
	s.past = s.past[:n-1]
	var own *settings.Settings
	if was.profile != after.profile {
		if p, err := s.findProfile(was.profile); err == nil { // else it was deleted
			s.state.Profile, own = p, new(settingsOf(p))
		}
	}
	s.settle(func() { s.live.Undo(was.settings, after.settings, own) })
	if was.instruction != "" && was.instruction != s.state.Instruction {
		s.orders.events = append(s.orders.events, OrderEvent{WaitingOrder{was.instruction, was.by, now}, OrderActs})
	}
	s.state.Instruction, s.state.InstructionBy, s.state.Active, s.orders.began = was.instruction, was.by, was.active, now
	switch {
	case !s.state.Active:
		s.room.Stop(s.now())
		return s.did("undo.off"), nil
	case s.state.Instruction == "":
		s.room.ActNow(s.now())
		return s.did("undo.none"), nil
	}
	s.room.ActNow(s.now())
	return s.did("undo", s.state.Instruction), nil
}

func (s *Steering) talkBy(c Command, step int) (string, error) {
	to := s.live.Agent.Verbosity + step
	if to < 1 || to > 5 {
		return "", fmt.Errorf("%w: talkativeness is %d, and goes from 1 to 5", ErrNothingTo, s.live.Agent.Verbosity)
	}
	s.settle(func() { s.live.Change(settings.Settings{Verbosity: &to}) })
	return s.did(c, to), nil
}

func (s *Steering) gainBy(c Command, step float64) (string, error) {
	if s.opts.Mute || !s.live.Inference.Voice.Enabled {
		return "", fmt.Errorf("%w: speech is off", ErrNothingTo)
	}
	to := min(max(s.live.Inference.Voice.Gain+step, inference.MinGain), inference.MaxGain)
	if to == s.live.Inference.Voice.Gain {
		return "", fmt.Errorf("%w: the voice is at %+g dB, and goes from %+d to %+d", ErrNothingTo, to, inference.MinGain, inference.MaxGain)
	}
	s.settle(func() { s.live.Change(settings.Settings{VoiceGain: &to}) })
	return s.did(c, to), nil
}
