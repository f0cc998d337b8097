package agent

import (
	"slices"
	"time"
)

// maxWaiting bounds the instructions that wait; the oldest is dropped.
const maxWaiting = 8

// WaitingOrder is an instruction that acts when the one in force has held.
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

// OrderEvent is what became of an instruction, for the people in the room.
type OrderEvent struct {
	WaitingOrder

	Phase string `json:"phase"`
}

// OrderOutput is an optional interface of a TextOutput: it receives what becomes of each instruction. It must not block.
type OrderOutput interface {
	Order(e OrderEvent)
}

// orderLocked gives a checked instruction to the session. It reports whether the instruction waits: another person's has
// not held yet.
func (s *Session) orderLocked(text, by string, now time.Time) (waits bool) {
	held := s.instruction != "" && s.active && by != s.instructionBy && now.Before(s.orderedAt.Add(s.live.Agent.OrderHold))
	if !held && !slices.ContainsFunc(s.waiting, func(w WaitingOrder) bool { return w.By != by }) {
		s.dropWaitingLocked(by)
		s.actOnLocked(text, by, now)
		return false
	}
	s.dropWaitingLocked(by)
	if len(s.waiting) == maxWaiting {
		s.dropWaitingLocked(s.waiting[0].By)
	}
	s.waiting = append(slices.Clone(s.waiting), WaitingOrder{Instruction: text, By: by})
	s.scheduleLocked()
	s.orders = append(s.orders, OrderEvent{s.waiting[len(s.waiting)-1], OrderWaits})
	return true
}

// scheduleLocked sets when waiting instructions act: each after the one before has held.
func (s *Session) scheduleLocked() {
	for i := range s.waiting {
		s.waiting[i].ActsAt = s.orderedAt.Add(time.Duration(i+1) * s.live.Agent.OrderHold)
	}
}

// actOnLocked makes an instruction the one in force.
func (s *Session) actOnLocked(text, by string, now time.Time) {
	s.instruction, s.instructionBy, s.active, s.orderedAt = text, by, true, now
	s.actNowLocked(errReplaced)
	s.orders = append(s.orders, OrderEvent{WaitingOrder{text, by, now}, OrderActs})
}

// dropWaitingLocked drops the waiting instruction of one person.
func (s *Session) dropWaitingLocked(by string) (dropped WaitingOrder, ok bool) {
	i := slices.IndexFunc(s.waiting, func(w WaitingOrder) bool { return w.By == by })
	if i < 0 {
		return WaitingOrder{}, false
	}
	dropped = s.waiting[i]
	s.waiting = slices.Delete(slices.Clone(s.waiting), i, i+1)
	s.scheduleLocked()
	s.orders = append(s.orders, OrderEvent{dropped, OrderDropped})
	return dropped, true
}

func (s *Session) dropAllWaitingLocked() {
	for len(s.waiting) > 0 {
		s.dropWaitingLocked(s.waiting[0].By)
	}
}

// takeOrders lets the next waiting instruction act if it is time.
func (s *Session) takeOrders(now time.Time) {
	acted := false
	s.locked(func() {
		if len(s.waiting) == 0 || now.Before(s.waiting[0].ActsAt) {
			return
		}
		w := s.waiting[0]
		s.waiting = slices.Clone(s.waiting[1:])
		s.rememberLocked(func() { s.actOnLocked(w.Instruction, w.By, now) })
		s.scheduleLocked()
		acted = true
	})
	if acted {
		s.nudge()
	}
}

// publishOrders tells the outputs what became of instructions.
func (s *Session) publishOrders(events []OrderEvent) {
	for _, e := range events {
		for _, t := range s.opts.Texts {
			if out, ok := t.(OrderOutput); ok {
				out.Order(e)
			}
		}
	}
}
