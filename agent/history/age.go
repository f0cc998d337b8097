package history

import "time"

const (
	// steadyTime is how long the clock must be steady after a jump before records are removed by age.
	steadyTime = time.Hour
	// maxStep is the largest jump between two calls, maxGap that since the newest record of an
	// earlier run; both are smaller where records are kept for a short time.
	maxStep, maxGap = time.Minute, 24 * time.Hour
)

// ageLimit turns max_age into the time before which records are removed. It does not trust a wall
// clock after a jump, as of a dead clock battery or a VM template: a jump of a month would remove everything.
type ageLimit struct {
	maxAge  time.Duration // 0: records have no age limit
	wall    time.Time     // of the last call; at first the newest record's, zero if there is none
	elapsed time.Duration // of the last call
	began   bool
	steady  time.Duration // when the clock counts as steady again
}

// before returns the time before which records are removed, for a clock that shows wall
// at elapsed after the start. ok is false while the clock is not trusted. jump is the
// jump of the clock since the last call, 0 for none.
func (a *ageLimit) before(wall time.Time, elapsed time.Duration) (before time.Time, jump time.Duration, ok bool) {
	if a.maxAge <= 0 {
		return time.Time{}, 0, false
	}
	tolerance := min(maxStep, a.maxAge/10)
	if !a.began {
		a.began = true
		tolerance = min(maxGap, a.maxAge)
		if a.wall.IsZero() {
			a.wall = wall
		}
	}
	moved := wall.Round(0).Sub(a.wall.Round(0)) - (elapsed - a.elapsed)
	a.wall, a.elapsed = wall, elapsed
	if moved.Abs() > tolerance {
		jump = moved
		a.steady = elapsed + min(steadyTime, a.maxAge)
	}
	return wall.Add(-a.maxAge), jump, elapsed >= a.steady
}
