package voice

import (
	"slices"
	"time"

	"touchline/inference"
	"touchline/internal/ticks"
)

const (
	// usualPace is the first estimate of the speech for one unit of weight: 14 letters a second.
	usualPace = time.Second / 14
	// leastStep is the shortest piece of sound, except the last of a sentence.
	leastStep = 120 * time.Millisecond
)

// stream emits the sound of a sentence while it arrives. It removes the silence around it, and places the words by their letters at the
// pace of earlier sentences, since the end is not known yet.
type stream struct {
	tokens []token
	after  time.Duration // silence after the sentence
	pace   time.Duration
	emit   func(inference.Chunk) bool
	rate   int // set before push

	buf     []int16
	sounds  bool          // the silence at the start has ended
	next    int           // the first token without a time
	at      time.Duration // length of the emitted sound
	weights []float64     // cumulated over the tokens
	spoken  time.Duration // length without the silence at the end
}

func newStream(tokens []token, after, pace time.Duration, emit func(inference.Chunk) bool) *stream {
	s := &stream{tokens: tokens, after: after, pace: pace, emit: emit, weights: make([]float64, len(tokens)+1)}
	for i, t := range tokens {
		s.weights[i+1] = s.weights[i]
		if t.sounds() {
			s.weights[i+1] += weight(t.spoken)
		}
	}
	return s
}

// length returns the length of the sound so far.
func (s *stream) length() time.Duration { return s.at + duration(len(s.buf), s.rate) }

// measured returns the pace of the whole sentence; 0 if unknown.
func (s *stream) measured() time.Duration {
	if total := s.weights[len(s.tokens)]; total > 0 {
		return time.Duration(float64(s.spoken-leadKept) / total)
	}
	return 0
}

// push adds samples and reports whether emit wants more.
func (s *stream) push(pcm []int16) bool {
	s.buf = append(s.buf, pcm...)
	kept := int(ticks.Count(leadKept, int64(s.rate)))
	if !s.sounds {
		first := slices.IndexFunc(s.buf, loud)
		from := max(0, first-kept)
		if first < 0 {
			from = max(0, len(s.buf)-kept)
		}
		s.buf = slices.Delete(s.buf, 0, from)
		s.sounds = first >= 0
	}
	if !s.sounds {
		return true
	}
	last := s.end()
	if duration(last, s.rate) < leastStep {
		return true
	}
	return s.pass(last, false)
}

// end returns the length of the held samples without the silence at their end.
func (s *stream) end() int {
	last := len(s.buf)
	for last > 0 && !loud(s.buf[last-1]) {
		last--
	}
	return last
}

// finish emits the rest, with the words without a time.
func (s *stream) finish() {
	if !s.sounds {
		return
	}
	last := s.end()
	s.spoken = s.at + duration(last, s.rate)
	end := last + int(ticks.Count(s.after, int64(s.rate)))
	s.buf = slices.Grow(s.buf, max(0, end-len(s.buf)))
	for len(s.buf) < end {
		s.buf = append(s.buf, 0)
	}
	s.pass(end, true)
}

// pass emits the first n samples.
func (s *stream) pass(n int, last bool) bool {
	c := inference.Chunk{Audio: slices.Clone(s.buf[:n]), AudioRate: s.rate}
	s.buf = slices.Delete(s.buf, 0, n)
	from, to := s.at, s.at+duration(n, s.rate)
	s.at = to
	place := func(i int) time.Duration {
		return min(max(leadKept+time.Duration(s.weights[i]*float64(s.pace))-from, 0), to-from)
	}
	for s.next < len(s.tokens) && (last || leadKept+time.Duration(s.weights[s.next]*float64(s.pace)) < to) {
		i := s.next
		c.Words = append(c.Words, inference.WordTime{Text: s.tokens[i].text, Start: place(i), End: place(i + 1)})
		s.next++
	}
	return s.emit(c)
}

// loud reports whether a sample is above -50 dBFS.
func loud(v int16) bool { return v >= level || v <= -level }
