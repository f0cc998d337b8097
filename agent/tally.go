package agent

import (
	"slices"
	"time"

	"touchline/agent/look"
)

// alignedMemory is the number of alignment errors kept for the p95.
const alignedMemory = 100

// tally counts what became of cycles and announcements.
type tally struct {
	outcomes map[string]uint64
	late     uint64
	aligned  []time.Duration // recent alignment errors, oldest first
}

func (t *tally) count(r look.Record) {
	t.outcomes[r.Outcome]++
	if r.Late {
		t.late++
	}
}

// align adds the alignment error of a comment.
func (t *tally) align(off time.Duration) {
	if len(t.aligned) == alignedMemory {
		t.aligned = slices.Delete(t.aligned, 0, 1)
	}
	t.aligned = append(t.aligned, off)
}

// alignment returns the last alignment error and the p95 in seconds, -1 before the first.
func (t *tally) alignment() (last, p95 float64) {
	n := len(t.aligned)
	if n == 0 {
		return -1, -1
	}
	sorted := slices.Sorted(slices.Values(t.aligned))
	return t.aligned[n-1].Seconds(), sorted[min(n-1, (n*95+99)/100-1)].Seconds()
}
