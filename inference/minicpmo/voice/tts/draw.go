// Package tts is the schedule of the model's own voice, without its networks: it
// draws audio codes from rows of logits, cuts a turn's codes into the windows that
// become sound, and places the words of the text in that sound, for many turns at
// once.
//
// A code is 40 ms of speech. The package follows MiniCPM-o 4.5's
// TTSStreamingGenerator and the Token2wav of minicpmo-utils 1.0.5. A Talker works
// on the goroutine that owns the device, a Sounder on its own.
package tts

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNotFinite is returned for a row with a logit that is NaN or +Inf.
var ErrNotFinite = errors.New("the voice's output is not finite")

// Settings of the draws.
type Settings struct {
	// Temperature divides the logits.
	Temperature float64
	// TopP is the total probability of the codes to draw from, then TopK their
	// number; at least Keep of them are kept.
	TopP       float64
	TopK, Keep int
	// Penalty, to the power of how often a code is among the last Past ones, divides
	// its logit if that is positive, and multiplies it otherwise.
	Penalty float64
	Past    int
}

// Official returns the settings of the official code.
func Official() Settings {
	return Settings{Temperature: 0.8, TopP: 0.85, TopK: 25, Keep: 3, Penalty: 1.05, Past: 16}
}

// BestCodes is the number of largest logits that Best needs: penalties of Past
// codes can push as many below the TopK, and no more.
const BestCodes = 64

// Row is a device's summary of a row of logits.
type Row struct {
	// Logits and IDs are the largest logits and their codes, largest first.
	Logits []float32
	IDs    []int64
	// Prob is the probability of the first of them, of all codes, at the temperature.
	Prob float32
	// Past are the logits of the last codes of the turn, in their order.
	Past []float32
}

// Sampler draws codes. It holds only scratch memory and is not safe for concurrent use.
type Sampler struct {
	set     Settings
	row     []float32
	best    []candidate
	past    []candidate // distinct codes of the past with their logits
	penalty []float32   // by how often a code is among the past
}

type candidate struct {
	code  int32
	logit float32 // at the temperature
	prob  float32
}

// New returns a sampler.
func New(set Settings) *Sampler {
	s := &Sampler{set: set, best: make([]candidate, 0, BestCodes)}
	for count := range set.Past + 1 {
		s.penalty = append(s.penalty, float32(math.Pow(set.Penalty, float64(count))))
	}
	return s
}

// Full draws from a whole row. history are the codes of the turn so far; the first
// of a turn is drawn from all codes. The draw adds up the probabilities in the
// order of the codes and chooses the first whose sum exceeds u times the total.
func (s *Sampler) Full(logits []float32, history []int32, u float64) (int32, error) {
	t := float32(s.set.Temperature)
	s.row = slices.Grow(s.row[:0], len(logits))[:len(logits)]
	top := float32(math.Inf(-1))
	for i, v := range logits {
		if !(v <= math.MaxFloat32) {
			return 0, ErrNotFinite
		}
		s.row[i] = v / t
		top = max(top, s.row[i])
	}
	if math.IsInf(float64(top), -1) {
		return 0, ErrNotFinite
	}
	if len(history) == 0 {
		return s.first(top, u), nil
	}
	s.distinct(history, func(_ int, code int32) (float32, bool) {
		if int(code) >= len(logits) {
			return 0, false
		}
		return s.row[code], true
	})
	var total float64
	for _, c := range s.past {
		s.row[c.code] = c.logit
	}
	for _, v := range s.row {
		total += math.Exp(float64(v - top))
	}
	s.largest()
	return s.draw(top, total, u), nil
}

// Best is Full from the largest logits of a row. It chooses the same code, up to
// the rounding of Row.Prob. It cannot draw the first code of a turn.
func (s *Sampler) Best(r Row, history []int32, u float64) (int32, error) {
	past := history[max(0, len(history)-s.set.Past):]
	switch {
	case len(past) == 0:
		return 0, errors.New("draw a code: the first one of a turn needs the whole row")
	case len(r.Logits) != len(r.IDs) || len(r.Logits) < min(BestCodes, s.set.TopK+s.set.Past):
		return 0, fmt.Errorf("draw a code: expected %d largest logits with their codes, has %d and %d", BestCodes, len(r.Logits), len(r.IDs))
	case len(r.Past) < len(past):
		return 0, fmt.Errorf("draw a code: expected the logits of the last %d codes, has %d", len(past), len(r.Past))
	case !(r.Prob > 0) || !(r.Logits[0] <= math.MaxFloat32):
		return 0, ErrNotFinite
	}
	t := float32(s.set.Temperature)
	top := r.Logits[0] / t
	total := 1 / float64(r.Prob) // relative to the largest
	last := r.Past[len(r.Past)-len(past):]
	s.distinct(past, func(i int, _ int32) (float32, bool) {
		v := last[i] / t
		total -= math.Exp(float64(v - top))
		return v, true
	})
	s.best = s.best[:0]
	for i, id := range r.IDs {
		if !slices.ContainsFunc(s.past, func(c candidate) bool { return int64(c.code) == id }) {
			s.best = append(s.best, candidate{code: int32(id), logit: r.Logits[i] / t}) //nolint:gosec // an index of the row
		}
	}
	for _, c := range s.past {
		total += math.Exp(float64(c.logit - top))
		s.best = append(s.best, c)
	}
	return s.draw(top, total, u), nil
}

// first draws from a whole row at the temperature.
func (s *Sampler) first(top float32, u float64) int32 {
	var total, sum float64
	for _, v := range s.row {
		total += math.Exp(float64(v - top))
	}
	for i, v := range s.row {
		if sum += math.Exp(float64(v-top)) / total; sum > u {
			return int32(i)
		}
	}
	return int32(len(s.row) - 1) //nolint:gosec // an index of the row
}

// distinct fills s.past with the distinct codes among the last ones, penalised.
// logit returns the logit of the i-th of them at the temperature, once for each code.
func (s *Sampler) distinct(history []int32, logit func(i int, code int32) (float32, bool)) {
	past := history[max(0, len(history)-s.set.Past):]
	s.past = s.past[:0]
	for i, code := range past {
		if slices.Contains(past[:i], code) {
			continue
		}
		v, ok := logit(i, code)
		if !ok {
			continue
		}
		count := 1
		for _, c := range past[i+1:] {
			if c == code {
				count++
			}
		}
		p := s.penalty[count]
		if v < 0 {
			v *= p
		} else {
			v /= p
		}
		s.past = append(s.past, candidate{code: code, logit: v})
	}
}

// largest fills s.best with the largest values of the row.
func (s *Sampler) largest() {
	s.best = s.best[:0]
	for i, v := range s.row {
		n := len(s.best)
		if n == BestCodes && v <= s.best[n-1].logit {
			continue
		}
		if n < BestCodes {
			s.best = append(s.best, candidate{})
			n++
		}
		j := n - 1
		for ; j > 0 && s.best[j-1].logit < v; j-- {
			s.best[j] = s.best[j-1]
		}
		s.best[j] = candidate{code: int32(i), logit: v}
	}
}

// draw limits s.best to top-p, then top-k, and draws one. total is the sum of all
// codes' exponentials relative to top.
func (s *Sampler) draw(top float32, total, u float64) int32 {
	order(s.best, func(a, b candidate) bool { return a.logit > b.logit || a.logit == b.logit && a.code < b.code })
	n, before := 0, 0.0
	for ; n < len(s.best) && (n < s.set.Keep || 1-before > 1-s.set.TopP); n++ {
		before += math.Exp(float64(s.best[n].logit-top)) / total
	}
	if k := max(s.set.TopK, s.set.Keep); k < n {
		for least := s.best[k-1].logit; k < n && s.best[k].logit == least; {
			k++
		}
		n = k
	}
	kept := s.best[:n]
	total = 0
	for i := range kept {
		total += math.Exp(float64(kept[i].logit - kept[0].logit))
	}
	for i := range kept {
		kept[i].prob = float32(math.Exp(float64(kept[i].logit-kept[0].logit)) / total)
	}
	order(kept, func(a, b candidate) bool { return a.code < b.code })
	return pick(kept, u)
}

// order sorts a few candidates by insertion. Most are in order already: a draw from the best takes 4.2 us, with slices.SortFunc 8.0.
func order(of []candidate, before func(a, b candidate) bool) {
	for i := 1; i < len(of); i++ {
		c, j := of[i], i
		for ; j > 0 && before(c, of[j-1]); j-- {
			of[j] = of[j-1]
		}
		of[j] = c
	}
}

// pick draws one of the candidates, which are in the order of their codes.
func pick(kept []candidate, u float64) int32 {
	var total, sum float64
	for _, c := range kept {
		total += float64(c.prob)
	}
	for _, c := range kept {
		if sum += float64(c.prob); sum > u*total {
			return c.code
		}
	}
	return kept[len(kept)-1].code
}
