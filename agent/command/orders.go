package command

import (
	"slices"
	"time"

	"touchline/agent/prompt"
)

// maxWaiting bounds the instructions that wait; the oldest is dropped.
const maxWaiting = 8

// WaitingOrder is an instruction that takes effect after the hold time of the one in force.
type WaitingOrder struct {
	Instruction string    `json:"instruction"`
	By          string    `json:"by"`
	ActsAt      time.Time `json:"acts_at"` // at the earliest
}

// Order phases.
const (
	OrderWaits   = "waits"   // until the instruction in force has held
	OrderActs    = "acts"    // from now on
	OrderDropped = "dropped" // by a newer one of the same person, or taken back
)

// OrderEvent is the outcome of an instruction, for the people in the room.
type OrderEvent struct {
	WaitingOrder

	Phase string `json:"phase"`
}

// orders holds the waiting instructions, and the outcomes of instructions.
type orders struct {
	hold    time.Duration // of the instruction in force
	began   time.Time     // when the instruction in force began to act
	waiting []WaitingOrder
	events  []OrderEvent
}

// schedule sets when waiting instructions take effect, one hold time apart.
func (o *orders) schedule() {
	for i := range o.waiting {
		o.waiting[i].ActsAt = o.began.Add(time.Duration(i+1) * o.hold)
	}
}

// drop drops the waiting instruction of one person.
func (o *orders) drop(by string) (dropped WaitingOrder, ok bool) {
	i := slices.IndexFunc(o.waiting, func(w WaitingOrder) bool { return w.By == by })
	if i < 0 {
		return WaitingOrder{}, false
	}
	dropped = o.waiting[i]
	o.waiting = slices.Delete(slices.Clone(o.waiting), i, i+1)
	o.schedule()
	o.events = append(o.events, OrderEvent{dropped, OrderDropped})
	return dropped, true
}

// order gives a checked instruction to the session. It reports whether the instruction waits for the hold time of another person's.
func (s *Steering) order(text, by string, now time.Time) (waits bool) {
	held := s.state.Instruction != "" && s.state.Active && by != s.state.InstructionBy && now.Before(s.orders.began.Add(s.orders.hold))
	if !held && !slices.ContainsFunc(s.orders.waiting, func(w WaitingOrder) bool { return w.By != by }) {
		s.orders.drop(by)
		s.actOn(text, by, now)
		return false
	}
	s.orders.drop(by)
	if len(s.orders.waiting) == maxWaiting {
		s.orders.drop(s.orders.waiting[0].By)
	}
	s.orders.waiting = append(slices.Clone(s.orders.waiting), WaitingOrder{Instruction: text, By: by})
	s.orders.schedule()
	s.orders.events = append(s.orders.events, OrderEvent{s.orders.waiting[len(s.orders.waiting)-1], OrderWaits})
	return true
}

// actOn puts an instruction in force.
func (s *Steering) actOn(text, by string, now time.Time) {
	s.state.Instruction, s.state.InstructionBy, s.state.Active, s.orders.began = text, by, true, now
	s.state.InstructionNumber++
	s.room.ActNow(s.now())
	s.orders.events = append(s.orders.events, OrderEvent{WaitingOrder{text, by, now}, OrderActs})
}

// Tick puts the next waiting instruction in force if it is time.
func (s *Steering) Tick(now time.Time) {
	_ = s.do(func() error {
		if len(s.orders.waiting) == 0 || now.Before(s.orders.waiting[0].ActsAt) {
			return ErrNothingTo
		}
		w := s.orders.waiting[0]
		s.orders.waiting = slices.Clone(s.orders.waiting[1:])
		s.remember(func() { s.actOn(w.Instruction, w.By, now) })
		s.orders.schedule()
		return nil
	})
}

// ForgetHeard takes back the instructions of a participant, or of all participants if by is "", as they may have been spoken. Commenting
// goes on without one, and Undo restores none of them.
func (s *Steering) ForgetHeard(by string) {
	gave := func(author string) bool { return prompt.GaveInRoom(author, by) }
	_ = s.do(func() error {
		s.past = slices.DeleteFunc(s.past, func(o order) bool {
			return o.waits != "" || gave(o.before.by) || gave(o.after.by)
		})
		if s.done != nil && s.done.Command == Undo { // its effect quotes an instruction
			s.done = nil
		}
		waiting := len(s.orders.waiting)
		s.orders.waiting = slices.DeleteFunc(slices.Clone(s.orders.waiting), func(w WaitingOrder) bool {
			if gave(w.By) {
				s.orders.events = append(s.orders.events, OrderEvent{WaitingOrder{By: w.By}, OrderDropped})
			}
			return gave(w.By)
		})
		s.orders.schedule()
		if s.state.Instruction != "" && gave(s.state.InstructionBy) {
			s.state.Instruction, s.state.InstructionBy = "", ""
			s.room.Look(s.now())
		} else if len(s.orders.waiting) == waiting {
			return ErrNothingTo
		}
		return nil
	})
}
