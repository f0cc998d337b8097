package agent

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"touchline/agent/command"
	"touchline/inference"
	"touchline/media/window"
)

// ErrNothingTo is wrapped by the error of a command that has nothing to act on.
var ErrNothingTo = errors.New("nothing to do")

// Done is a command that acted.
type Done struct {
	Command command.Command `json:"command"`
	Effect  string          `json:"effect"` // a sentence
	By      string          `json:"by"`
	At      time.Time       `json:"at"`
}

// HandleText gives a commentator what a person typed or said: a command acts as one, any other text is an instruction. The
// command is nil for an instruction.
func HandleText(to Steerer, text, by string) (*Done, error) {
	if c, ok := command.Parse(text); ok {
		done, err := to.Command(c, by)
		return &done, err
	}
	_, err := to.Change(Change{Instruction: &text}, by)
	return nil, err
}

// gainStep is what louder and softer change, dB.
const gainStep = 6

// maxUndo bounds the orders that can be taken back.
const maxUndo = 16

// ordered is what an order can change.
type ordered struct {
	instruction, by string
	active          bool
	profile         string
	inForce, made   Settings // made by people
}

// order is the state before and after an order that acted.
type order struct {
	before, after ordered
	waits         string // an instruction of the same Change that does not act yet; "" without
}

func (s *Session) orderedLocked() ordered {
	return ordered{s.instruction, s.instructionBy, s.active, s.profile.Name, s.settingsLocked(), s.set}
}

// rememberLocked carries out one order and keeps what it changed for command.Undo. It reports whether that is anything.
func (s *Session) rememberLocked(act func()) bool {
	before := s.orderedLocked()
	act()
	after := s.orderedLocked()
	if reflect.DeepEqual(before, after) {
		return false
	}
	s.past = append(s.past[max(0, len(s.past)+1-maxUndo):], order{before: before, after: after})
	return true
}

// Command does a command at once. The error is a *RangeError for one that does not exist, and wraps ErrNothingTo for one
// that has nothing to act on. command.Repeat may return ErrTooMuchToSay.
func (s *Session) Command(c command.Command, by string) (Done, error) {
	done := Done{Command: c, By: by, At: time.Now()}
	var err error
	s.locked(func() {
		if c == command.Undo {
			done.Effect, err = s.undoLocked(by, done.At)
		} else {
			s.rememberLocked(func() { done.Effect, err = s.commandLocked(c, by) })
		}
		if err == nil {
			s.done = &done
		}
	})
	if err != nil {
		return Done{}, err
	}
	s.log.Info().Str("command", string(c)).Str("by", by).Msg("command")
	s.log.Debug().Str("effect", done.Effect).Msg("command done") // it may quote an instruction
	s.nudge()
	return done, nil
}

func (s *Session) commandLocked(c command.Command, by string) (effect string, err error) {
	switch c {
	case command.Stop:
		if !s.active && !s.speech.Busy() {
			return "", fmt.Errorf("%w: commenting is off already", ErrNothingTo)
		}
		s.pauseLocked()
		return s.didLocked(c), nil
	case command.GoOn:
		if s.active {
			return "", fmt.Errorf("%w: commenting is on already", ErrNothingTo)
		}
		s.active = true
		s.actNowLocked(errReplaced)
		return s.didLocked(c), nil
	case command.Undo: // see Command
	case command.Shorter:
		return s.talkByLocked(c, -1)
	case command.Longer:
		return s.talkByLocked(c, 1)
	case command.Repeat:
		return s.repeatLocked(by)
	case command.Louder:
		return s.gainByLocked(c, gainStep)
	case command.Softer:
		return s.gainByLocked(c, -gainStep)
	}
	return "", &RangeError{"command", fmt.Sprintf("one of %q", command.All()), fmt.Sprintf("%.40q", c)}
}

// didLocked says what a command did, in the language of the comments.
func (s *Session) didLocked(key command.Command, values ...any) string {
	return command.Did(s.engine.Capabilities().AnswersIn(s.infer.Voice.Language), key, values...)
}

// pauseLocked ends commenting and keeps the instruction.
func (s *Session) pauseLocked() {
	s.active = false
	s.dropAllWaitingLocked()
	s.endTalkLocked(errStopped, true)
}

// undoLocked takes back the last order: what it changed, and nobody has changed since.
func (s *Session) undoLocked(by string, now time.Time) (string, error) {
	n := len(s.past)
	w, waited := s.dropWaitingLocked(by)
	switch {
	case waited && (n == 0 || s.past[n-1].waits != w.Instruction):
		return s.didLocked("undo.waiting", w.Instruction), nil
	case n == 0:
		return "", fmt.Errorf("%w: there is no order to take back", ErrNothingTo)
	}
	was, after, current := s.past[n-1].before, s.past[n-1].after, s.orderedLocked()
	s.past = s.past[:n-1]
	if was.profile != after.profile {
		if p, err := s.findProfile(was.profile); err == nil { // else it was deleted
			s.useProfileLocked(p)
		}
	}
	// After the profile, which may have other values.
	back := s.settingsLocked().takeBack(was.inForce, after.inForce, current.inForce, after.made, current.made)
	s.applyLocked(back.differing(s.settingsLocked()))
	s.set = current.made.revert(was.made, after.made)
	if back.Preset != nil && *back.Preset != s.preset {
		s.preset = *back.Preset
		s.startLadder()
	}
	if was.instruction != "" && was.instruction != s.instruction {
		s.orders = append(s.orders, OrderEvent{WaitingOrder{was.instruction, was.by, now}, OrderActs})
	}
	s.instruction, s.instructionBy, s.active, s.orderedAt = was.instruction, was.by, was.active, now
	switch {
	case !s.active:
		s.endTalkLocked(errStopped, true)
		return s.didLocked("undo.off"), nil
	case s.instruction == "":
		s.actNowLocked(errReplaced)
		return s.didLocked("undo.none"), nil
	}
	s.actNowLocked(errReplaced)
	return s.didLocked("undo", s.instruction), nil
}

func (s *Session) talkByLocked(c command.Command, step int) (string, error) {
	to := s.agent.Talkativeness + step
	if to < 1 || to > 5 {
		return "", fmt.Errorf("%w: talkativeness is %d, and goes from 1 to 5", ErrNothingTo, s.agent.Talkativeness)
	}
	s.configureLocked(Settings{Talkativeness: &to})
	return s.didLocked(c, to), nil
}

func (s *Session) gainByLocked(c command.Command, step float64) (string, error) {
	if s.opts.Audio == nil || !s.infer.Voice.Enabled {
		return "", fmt.Errorf("%w: speech is off", ErrNothingTo)
	}
	to := min(max(s.gain+step, inference.MinGain), inference.MaxGain)
	if to == s.gain {
		return "", fmt.Errorf("%w: the voice is at %+g dB, and goes from %+d to %+d", ErrNothingTo, s.gain, inference.MinGain, inference.MaxGain)
	}
	s.configureLocked(Settings{VoiceGain: &to})
	return s.didLocked(c, to), nil
}

// repeatLocked has the last comment said again.
func (s *Session) repeatLocked(by string) (string, error) {
	if s.latest == nil {
		return "", fmt.Errorf("%w: there is no comment yet", ErrNothingTo)
	}
	ids := s.latest.rec.FrameIDs
	anchor := window.Frame{ID: ids[len(ids)-1], VideoFrame: s.latest.anchor}
	again := Announcement{Text: strings.TrimSpace(s.speech.TextOf(s.latest.said)), Reason: reasonAgain, Interrupt: true}
	if err := s.queueAnnouncement(announcement{Announcement: again, by: by, anchor: &anchor}); err != nil {
		return "", err
	}
	return s.didLocked(command.Repeat), nil
}
