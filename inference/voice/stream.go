package voice

import (
	"slices"
	"time"

	"touchline/inference"
)

const (
	// usualPace is the speech for one unit of weight before any was measured: 14 letters a second.
	usualPace = time.Second / 14
	// leastStep is the shortest sound that is passed on, but for the last of a sentence.
	leastStep = 120 * time.Millisecond
)

// stream passes the sound of a sentence on while it arrives. It removes the silence around it, and places the words by their
// letters: at the pace of earlier sentences, as the end is not known yet.
type stream struct {
	tokens []token
	after  time.Duration // silence behind the sentence
	pace   time.Duration
	emit   func(inference.Chunk) bool
	rate   int // set before push

	buf     []int16
	heard   bool
	next    int           // token that has no time yet
	at      time.Duration // of the sound that was passed on
	weights []float64     // of all tokens up to each one
	spoken  time.Duration // length without the silence behind it
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

// measured returns the pace of the whole sentence; 0 if it is not known.
func (s *stream) measured() time.Duration {
	if total := s.weights[len(s.tokens)]; total > 0 {
		return time.Duration(float64(s.spoken-leadKept) / total)
	}
	return 0
}

// push takes samples and reports whether more are wanted.
func (s *stream) push(pcm []int16) bool {
	s.buf = append(s.buf, pcm...)
	kept := int(leadKept * time.Duration(s.rate) / time.Second)
	if !s.heard {
		first := slices.IndexFunc(s.buf, loud)
		from := max(0, first-kept)
		if first < 0 {
			from = max(0, len(s.buf)-kept)
		}
		s.buf = slices.Delete(s.buf, 0, from)
		s.heard = first >= 0
	}
	if !s.heard {
		return true
	}
	last := len(s.buf)
	for last > 0 && !loud(s.buf[last-1]) {
		last--
	}
	if duration(last, s.rate) < leastStep {
		return true
	}
	return s.pass(last, false)
}

// finish passes on what is left, with the words that have no time yet.
func (s *stream) finish() {
	if !s.heard {
		return
	}
	last := len(s.buf)
	for last > 0 && !loud(s.buf[last-1]) {
		last--
	}
	s.spoken = s.at + duration(last, s.rate)
	end := last + int(s.after*time.Duration(s.rate)/time.Second)
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
