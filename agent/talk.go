package agent

import (
	"time"

	"touchline/pacing"
)

// talk is what a talkativeness changes.
type talk struct {
	// factor of pacing.min_interval, pacing.pause_after and change_threshold; pause and
	// floor follow.
	factor float64
	pause  time.Duration // added to pause_after
	floor  float64       // the least change_threshold
	longer int           // steps from the usual length of a comment
}

// talkOf returns what a talkativeness from 1 to 5 changes. docs/instructions.md has the table.
func talkOf(talkativeness int) talk {
	switch talkativeness {
	case 1:
		return talk{factor: 4, pause: 10 * time.Second, floor: 6, longer: -2}
	case 2:
		return talk{factor: 2, pause: 3 * time.Second, floor: 2, longer: -1}
	case 4:
		return talk{factor: 0.5, longer: 1}
	case 5:
		return talk{factor: 0.2, longer: 2}
	}
	return talk{factor: 1}
}

// talkLocked returns what the talkativeness in force changes.
func (s *Session) talkLocked() talk { return talkOf(s.live.Agent.Talkativeness) }

// paceLocked returns the pace with the talkativeness.
func (s *Session) paceLocked() pacing.Config {
	t, pace := s.talkLocked(), s.live.Pacing
	pace.MinInterval = time.Duration(float64(pace.MinInterval) * t.factor)
	pace.PauseAfter = time.Duration(float64(pace.PauseAfter)*t.factor) + t.pause
	return pace
}

// thresholdLocked returns the change below which a cycle is skipped, with the talkativeness.
func (s *Session) thresholdLocked() float64 {
	t := s.talkLocked()
	return max(s.live.Agent.ChangeThreshold*t.factor, t.floor)
}
