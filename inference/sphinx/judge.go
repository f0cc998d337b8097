package sphinx

import (
	"math"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/ticks"
)

func length(samples int) time.Duration {
	return ticks.Duration(int64(samples), inference.RecognizerRate)
}

// judgement is how well the words of the grammar fit a sound. Each score is the grammar's minus the score of free phones in the same
// frames: with 0, no other sequence of phones fits better.
type judgement struct {
	text string
	// mean is over all frames, words over the frames of words, order over the words after the wake word, worst over the worst word.
	mean, words, order, worst float64
	// pauses is the sum over the worst pause: unknown words are recognized as a pause.
	pauses float64
	// longest and pause are the frames of the longest word and of the longest pause.
	longest, pause int
}

const (
	// longestWord is longer than any word of an order: the noise of a crowd is recognized as a "hush" or "come" of several seconds.
	longestWord = 120
	// longestPause is longer than any pause within an order.
	longestPause = 150
)

// good reports whether an order after a wake word counts. The limits of good and goodAddressed are from trials with seven synthetic
// voices, without noise and with noise at 15 dB, and with other sentences than touchline-bench has: nearly all orders were above
// all limits, and all other speech was below at least one.
func (j judgement) good() bool {
	return j.text != "" && j.longest <= longestWord && j.pause <= longestPause &&
		j.mean >= -16 && j.words >= -25 && j.order >= -27 && j.worst >= -60 && j.pauses >= -850
}

// goodAddressed reports whether an order without a wake word counts, with push-to-talk.
func (j judgement) goodAddressed() bool {
	return j.text != "" && j.longest <= longestWord && j.mean >= -19 && j.words >= -42 && j.pauses >= -1500
}

// compare judges the words of the grammar by the scores of free phones in the same frames.
func compare(known, free []segment, wake []string) judgement {
	a, b := spread(known), spread(free)
	n := min(len(a), len(b))
	if n == 0 {
		return judgement{}
	}
	var text []string
	for _, s := range known {
		if !s.silent() {
			text = append(text, s.text())
		}
	}
	j := judgement{text: strings.Join(text, " "), worst: math.Inf(1)}
	first := 0 // word of the order
	for _, w := range wake {
		if w += " "; strings.HasPrefix(j.text+" ", w) {
			first = max(first, len(strings.Fields(w)))
		}
	}
	var all, words, order mean
	spoke := 0 // the end of the last word
	for _, s := range known {
		part := mean{frames: s.end - s.start}
		for i := s.start; i < min(s.end, n); i++ {
			part.sum += a[i] - b[i]
		}
		all.add(part)
		if s.silent() {
			j.pauses = min(j.pauses, part.sum)
			j.pause = max(j.pause, s.end-spoke)
			continue
		}
		spoke, j.longest = s.end, max(j.longest, part.frames)
		words.add(part)
		if first--; first < 0 {
			order.add(part)
		}
		j.worst = min(j.worst, part.value())
	}
	j.mean, j.words, j.order = all.value(), words.value(), order.value()
	return j
}

type mean struct {
	sum    float64
	frames int
}

func (m *mean) add(o mean) { m.sum, m.frames = m.sum+o.sum, m.frames+o.frames }

func (m mean) value() float64 { return m.sum / float64(max(1, m.frames)) }
