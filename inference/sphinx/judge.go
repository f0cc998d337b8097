package sphinx

import (
	"math"
	"strings"
	"time"

	"touchline/inference"
)

func length(samples int) time.Duration {
	return time.Duration(samples) * time.Second / inference.RecognizerRate
}

// The least scores of an order, below those of free sounds in the same frames: the mean of all frames, and that of the worst
// word. In trials with synthetic voices orders had means above -16, and other speech below -22.
const (
	leastMean  = -18
	leastWorst = -60
)

// judgement is what the grammar makes of a sound, and how well.
type judgement struct {
	text        string
	mean, worst float64
}

func (j judgement) good() bool { return j.text != "" && j.mean >= leastMean && j.worst >= leastWorst }

// compare judges the words of the grammar by the scores of free sounds in the same frames.
func compare(known, free []segment) judgement {
	a, b := spread(known), spread(free)
	n := min(len(a), len(b))
	if n == 0 {
		return judgement{}
	}
	j := judgement{worst: math.Inf(1)}
	var text []string
	sum, frames := 0.0, 0
	for _, s := range known {
		d := 0.0
		for i := s.start; i < min(s.end, n); i++ {
			d += a[i] - b[i]
		}
		sum += d
		frames += s.end - s.start
		if s.silent() {
			continue
		}
		text = append(text, s.text())
		j.worst = min(j.worst, d/float64(max(1, s.end-s.start)))
	}
	j.text, j.mean = strings.Join(text, " "), sum/float64(max(1, frames))
	return j
}
