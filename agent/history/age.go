package history

import "time"

const (
	// steadyTime is how long the clock must be steady after a jump before records are removed by age.
	steadyTime = time.Hour
	// maxStep is the largest jump between two calls, maxGap the largest jump since the newest record of an earlier run.
	// Both are smaller if max_age is short.
	maxStep, maxGap = time.Minute, 24 * time.Hour
)

// ageLimit turns max_age into the time before which records are removed. It does not trust the wall clock after a jump,
// as after a dead clock battery or a VM template, because a jump of a month would remove everything.
type ageLimit struct {
	maxAge  time.Duration // 0: records have no age limit
	wall    time.Time     // of the last call; at first the newest record's, zero if there is none
	elapsed time.Duration // of the last call
	began   bool
	steady  time.Duration // when the clock counts as steady again
}

// before returns the time before which records are removed. The wall clock shows wall at elapsed after the start. ok is
// false while the clock is not trusted. jump is the clock's jump since the last call, 0 for none.
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
