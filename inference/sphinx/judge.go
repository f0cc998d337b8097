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

// judgement is how well the words of the grammar fit a sound. All scores are those of the grammar less those of free sounds in the
// same frames: 0 is as good as any sequence of sounds.
type judgement struct {
	text string
	// mean is of all frames, words of the frames of words, order of the words behind the wake word, worst of the worst word.
	mean, words, order, worst float64
	// pauses is the sum of the worst pause: words that the grammar does not know are heard as a pause.
	pauses float64
	// longest is the frames of the longest word, pause those of the longest pause.
	longest, pause int
}

const (
	// longestWord is longer than any word of an order: a crowd's noise is heard as "hush" or "come" that lasts for seconds.
	longestWord = 120
	// longestPause is longer than any within or around an order behind a wake word, which ends where its speaker pauses.
	longestPause = 150
)

// good reports whether the text was said, behind a wake word. The limits of both methods are from trials with other sentences than
// those of touchline-bench, seven synthetic voices, without noise and with noise at 15 dB: nearly all orders were above them, and
// at least one score of all other speech was below.
func (j judgement) good() bool {
	return j.text != "" && j.longest <= longestWord && j.pause <= longestPause &&
		j.mean >= -16 && j.words >= -25 && j.order >= -27 && j.worst >= -60 && j.pauses >= -850
}

// goodAddressed reports whether the text was said to the commentator: who pushes to talk says an order.
func (j judgement) goodAddressed() bool {
	return j.text != "" && j.longest <= longestWord && j.mean >= -19 && j.words >= -42 && j.pauses >= -1500
}

// compare judges the words of the grammar by the scores of free sounds in the same frames.
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

// mean is that of scores.
type mean struct {
	sum    float64
	frames int
}

func (m *mean) add(o mean) { m.sum, m.frames = m.sum+o.sum, m.frames+o.frames }

func (m mean) value() float64 { return m.sum / float64(max(1, m.frames)) }
