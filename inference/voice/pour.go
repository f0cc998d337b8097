package voice

import (
	"slices"
	"time"

	"touchline/inference"
)

const (
	// usualPace is the speech for one unit of weight before any was measured: 14 letters a second.
	usualPace = time.Second / 14
	// leastPour is the shortest sound that is passed on, but for the last of a sentence.
	leastPour = 120 * time.Millisecond
)

// pour passes the sound of a sentence on while it arrives. It removes the silence around it, and places the words by their
// letters: at the pace of earlier sentences, as the end is not known yet.
type pour struct {
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

func newPour(tokens []token, after, pace time.Duration, emit func(inference.Chunk) bool) *pour {
	p := &pour{tokens: tokens, after: after, pace: pace, emit: emit, weights: make([]float64, len(tokens)+1)}
	for i, t := range tokens {
		p.weights[i+1] = p.weights[i]
		if t.sounds() {
			p.weights[i+1] += weight(t.spoken)
		}
	}
	return p
}

// length returns the length of the sound so far.
func (p *pour) length() time.Duration { return p.at + duration(len(p.buf), p.rate) }

// measured returns the pace of the whole sentence; 0 if it is not known.
func (p *pour) measured() time.Duration {
	if total := p.weights[len(p.tokens)]; total > 0 {
		return time.Duration(float64(p.spoken-leadKept) / total)
	}
	return 0
}

// push takes samples and reports whether more are wanted.
func (p *pour) push(pcm []int16) bool {
	p.buf = append(p.buf, pcm...)
	kept := int(leadKept * time.Duration(p.rate) / time.Second)
	if !p.heard {
		first := slices.IndexFunc(p.buf, loud)
		from := max(0, first-kept)
		if first < 0 {
			from = max(0, len(p.buf)-kept)
		}
		p.buf = slices.Delete(p.buf, 0, from)
		p.heard = first >= 0
	}
	if !p.heard {
		return true
	}
	last := len(p.buf)
	for last > 0 && !loud(p.buf[last-1]) {
		last--
	}
	if duration(last, p.rate) < leastPour {
		return true
	}
	return p.pass(last, false)
}

// finish passes on what is left, with the words that have no time yet.
func (p *pour) finish() {
	if !p.heard {
		return
	}
	last := len(p.buf)
	for last > 0 && !loud(p.buf[last-1]) {
		last--
	}
	p.spoken = p.at + duration(last, p.rate)
	end := last + int(p.after*time.Duration(p.rate)/time.Second)
	p.buf = slices.Grow(p.buf, max(0, end-len(p.buf)))
	for len(p.buf) < end {
		p.buf = append(p.buf, 0)
	}
	p.pass(end, true)
}

// pass emits the first n samples.
func (p *pour) pass(n int, last bool) bool {
	c := inference.Chunk{Audio: slices.Clone(p.buf[:n]), AudioRate: p.rate}
	p.buf = slices.Delete(p.buf, 0, n)
	from, to := p.at, p.at+duration(n, p.rate)
	p.at = to
	place := func(i int) time.Duration {
		return min(max(leadKept+time.Duration(p.weights[i]*float64(p.pace))-from, 0), to-from)
	}
	for p.next < len(p.tokens) && (last || leadKept+time.Duration(p.weights[p.next]*float64(p.pace)) < to) {
		i := p.next
		c.Words = append(c.Words, inference.WordTime{Text: p.tokens[i].text, Start: place(i), End: place(i + 1)})
		p.next++
	}
	return p.emit(c)
}

// loud reports whether a sample is above -50 dBFS.
func loud(v int16) bool { return v >= level || v <= -level }
