package settings

import (
	"time"

	"touchline/pacing"
)

// verbosity holds the changes of a level of Config.Verbosity.
type verbosity struct {
	// factor of pacing.min_interval, pacing.pause_after and change_threshold; pause and
	// floor follow.
	factor float64
	pause  time.Duration // added to pause_after
	floor  float64       // the least change_threshold
	longer int           // steps from the usual length of a comment
}

// verbosity returns what the verbosity in force changes. docs/instructions.md has the table.
func (f InForce) verbosity() verbosity {
	switch f.Agent.Verbosity {
	case 1:
		return verbosity{factor: 4, pause: 10 * time.Second, floor: 6, longer: -2}
	case 2:
		return verbosity{factor: 2, pause: 3 * time.Second, floor: 2, longer: -1}
	case 4:
		return verbosity{factor: 0.5, longer: 1}
	case 5:
		return verbosity{factor: 0.2, longer: 2}
	}
	return verbosity{factor: 1}
}

// Pace returns the pace, with the verbosity.
func (f InForce) Pace() pacing.Config {
	v, pace := f.verbosity(), f.Pacing
	pace.MinInterval = time.Duration(float64(pace.MinInterval) * v.factor)
	pace.PauseAfter = time.Duration(float64(pace.PauseAfter)*v.factor) + v.pause
	return pace
}

// Threshold returns the change below which a cycle is skipped, with the verbosity.
func (f InForce) Threshold() float64 {
	v := f.verbosity()
	return max(f.Agent.ChangeThreshold*v.factor, v.floor)
}

// Longer returns how many steps a comment is longer than usual; shorter if negative.
func (f InForce) Longer() int { return f.verbosity().longer }
