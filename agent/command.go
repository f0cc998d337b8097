package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"touchline/agent/command"
	"touchline/agent/settings"
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
	settings        settings.State
}

// order is the state before and after an order that acted.
type order struct {
	before, after ordered
	waits         string // an instruction of the same Change that does not act yet; "" without
}

func (s *Session) orderedLocked() ordered {
	return ordered{s.instruction, s.instructionBy, s.active, s.profile.Name, s.live.State()}
}

func (o ordered) same(p ordered) bool {
	return o.instruction == p.instruction && o.by == p.by && o.active == p.active && o.profile == p.profile && o.settings.Same(p.settings)
}

// rememberLocked carries out one order and keeps what it changed for command.Undo. It reports whether that is anything.
func (s *Session) rememberLocked(act func()) bool {
	before := s.orderedLocked()
	act()
	after := s.orderedLocked()
	if before.same(after) {
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
	return "", &RangeError{Name: "command", Want: fmt.Sprintf("one of %q", command.All()), Got: fmt.Sprintf("%.40q", c)}
}

// didLocked says what a command did, in the language of the comments.
func (s *Session) didLocked(key command.Command, values ...any) string {
	return command.Did(s.engine.Capabilities().AnswersIn(s.live.Inference.Voice.Language), key, values...)
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
	was, after := s.past[n-1].before, s.past[n-1].after
	s.past = s.past[:n-1]
	var own *Settings
	if was.profile != after.profile {
		if p, err := s.findProfile(was.profile); err == nil { // else it was deleted
			s.profile, own = p, new(settingsOf(p))
		}
	}
	s.settleLocked(func() { s.live.Undo(was.settings, after.settings, own) })
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
	to := s.live.Agent.Talkativeness + step
	if to < 1 || to > 5 {
		return "", fmt.Errorf("%w: talkativeness is %d, and goes from 1 to 5", ErrNothingTo, s.live.Agent.Talkativeness)
	}
	s.configureLocked(Settings{Talkativeness: &to})
	return s.didLocked(c, to), nil
}

func (s *Session) gainByLocked(c command.Command, step float64) (string, error) {
	if s.opts.Audio == nil || !s.live.Inference.Voice.Enabled {
		return "", fmt.Errorf("%w: speech is off", ErrNothingTo)
	}
	to := min(max(s.live.Inference.Voice.Gain+step, inference.MinGain), inference.MaxGain)
	if to == s.live.Inference.Voice.Gain {
		return "", fmt.Errorf("%w: the voice is at %+g dB, and goes from %+d to %+d", ErrNothingTo, to, inference.MinGain, inference.MaxGain)
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
