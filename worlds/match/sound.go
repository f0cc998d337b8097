package match

import (
	"math"
	"time"

	"touchline/internal/ticks"
	"touchline/worlds/paint"
)

// SoundRate is the sample rate of the match's sound.
const SoundRate = 48000

// The match's sound, in units of 16-bit samples and samples.
const (
	murmur      = 900.0
	whistleLoud = 5000.0
	whistleLong = SoundRate * 35 / 100
	fadeLong    = SoundRate / 100
	cheerLong   = 5 * SoundRate
	cheerRise   = SoundRate / 4
	groanLong   = 2 * SoundRate
	blowMS      = 550 // from one whistle to the next
)

// Sound generates the match's sound, in one channel: the crowd, which cheers for some seconds after
// a goal and groans after other shots, and the referee's whistle at free kicks, kick-offs, half
// time (twice) and full time (three times). from counts samples since the start. The same arguments
// give the same samples.
func (m *Match) Sound(from int64, pcm []int16) {
	at := func(sample int64) time.Duration { return ticks.Duration(sample, SoundRate) }
	first, last := max(0, at(from)-at(cheerLong)), at(from+int64(len(pcm)))+time.Millisecond
	events := m.Events(first, last)
	blows := m.script.blows(first.Milliseconds(), last.Milliseconds())
	var crowd [3]paint.Noise
	for i := range crowd {
		crowd[i] = paint.Noise{Seed: m.seed, Layer: uint64(7 + i), Step: 24 << i}
	}
	swell := paint.Noise{Seed: m.seed, Layer: 11, Step: SoundRate}
	for i := range pcm {
		n := from + int64(i)
		v := 0.0
		for k := range crowd {
			v += crowd[k].At(n)
		}
		v *= murmur * (1 + 0.4*swell.At(n)) / 2
		for _, e := range events {
			since := n - ticks.Count(e.At, SoundRate)
			switch e.Kind {
			case Goal:
				v *= 1 + 5*hill(since, cheerRise, cheerLong)
			case Save, Post, Wide:
				v *= 1 + 2*hill(since, cheerRise, groanLong)
			default:
			}
		}
		for _, start := range blows {
			// A pea in the whistle makes its tone flutter.
			since := n - start*SoundRate/1000
			t := float64(since) / SoundRate
			v += whistleLoud * hill(since, fadeLong, whistleLong) *
				math.Sin(2*math.Pi*2900*t) * (0.7 + 0.3*math.Sin(2*math.Pi*38*t))
		}
		pcm[i] = int16(max(math.MinInt16, min(math.MaxInt16, v)))
	}
}

// blows lists the whistles between two moments, in ms.
func (s *script) blows(from, to int64) []int64 {
	var out []int64
	for _, w := range s.whistles {
		for i := range int64(w.blows) {
			if at := w.at + i*blowMS; at >= from && at < to {
				out = append(out, at)
			}
		}
	}
	return out
}

// hill rises from 0 to 1 within rise samples, and returns to 0 at the end.
func hill(n, rise, end int64) float64 {
	if n < 0 || n >= end {
		return 0
	}
	return min(1, float64(n)/float64(rise), float64(end-n)/float64(rise))
}
