package agent

import (
	"fmt"
	"strings"

	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/agent/speech"
)

// steered implements command.Room for a Session.
type steered struct{ *Session }

// task returns the task of the looks.
func (s *Session) task(now command.State) look.Task {
	return look.Task{
		InForce: now.InForce, Active: now.Active, Instruction: now.Instruction, InstructionBy: now.InstructionBy,
		InstructionNumber: now.InstructionNumber, Profile: now.Profile, Background: now.Background, Spoken: s.speaks(now.InForce),
	}
}

// speaks reports whether comments and announcements that begin now are spoken.
func (s *Session) speaks(now settings.InForce) bool {
	return now.Inference.Voice.Enabled && s.opts.Audio != nil
}

// Look implements command.Room.
func (s steered) Look(now command.State) { s.Looks.Set(s.task(now)) }

// ActNow implements command.Room.
func (s steered) ActNow(now command.State) { s.Looks.ActNow(s.task(now)) }

// Stop implements command.Room.
func (s steered) Stop(now command.State) { s.Looks.Stop(s.task(now)) }

// Settle implements command.Room.
func (s steered) Settle(now command.State, was settings.InForce) {
	s.picture.Configure(now.Media.CaptureFPS, now.Agent.Reach())
	s.Look(now)
	s.behave(now.InForce)
	turned := now.Inference.Voice.Enabled != was.Inference.Voice.Enabled
	if turned {
		s.speech.Forget(false) // the observed times are of either first words or first audio
		if !now.Inference.Voice.Enabled {
			s.speech.Mute()
		}
	}
	s.speech.Pace(now.Pace().PauseAfter, now.Pacing, !turned || now.Pacing.FixedDelay > 0)
}

// behave sets the barge-in behaviour, the level of the voice and the masking of the delayed picture.
func (s *Session) behave(now settings.InForce) {
	s.cover.delayed.Store(now.Media.MaskDelayed)
	h := now.Agent.Hearing
	bargeIn := map[string]speech.BargeIn{
		settings.BargeInTalk: speech.Talk, settings.BargeInDuck: speech.Duck, settings.BargeInWait: speech.Wait,
		settings.BargeInInterrupt: speech.Interrupt,
	}
	s.speech.Behave(bargeIn[h.BargeIn], h.MaxWait, now.Inference.Voice.Gain)
}

// Busy implements command.Room.
func (s steered) Busy() bool { return s.speech.Busy() }

// Repeat implements command.Room.
func (s steered) Repeat(by string) error {
	var latest *comment
	s.locked(func() { latest = s.latest })
	if latest == nil {
		return fmt.Errorf("%w: there is no comment yet", command.ErrNothingTo)
	}
	again := speech.Notice{Text: strings.TrimSpace(latest.Words()), Reason: speech.ReasonAgain, Interrupt: true}
	return s.queueAnnouncement(announcement{Notice: again, by: by, anchor: &latest.cycle.Anchor})
}

// Changed implements command.Room: it publishes the outcomes of instructions and the status, and wakes the looks.
func (s steered) Changed(events []command.OrderEvent) {
	for _, e := range events {
		for _, t := range s.opts.Texts {
			if out, ok := t.(OrderOutput); ok {
				out.Order(e)
			}
		}
	}
	s.Looks.Wake()
	s.publishStatus()
	if s.opts.OnChange != nil {
		s.opts.OnChange()
	}
}

// locked runs f with the lock held.
func (s *Session) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// SetRoom sets why the room is away; "" when it is connected.
func (s *Session) SetRoom(why string) {
	s.locked(func() { s.room = why })
	s.publishStatus()
}
