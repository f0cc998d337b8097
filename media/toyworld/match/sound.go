package match

import (
	"math"
	"time"

	"touchline/media"
	"touchline/media/toyworld/paint"
)

// SoundRate is the number of samples of the match's sound in a second.
const SoundRate = 48000

// The match's sound, in units of 16-bit samples and samples.
const (
	murmur      = 900.0
	whistleLoud = 5000.0
	whistleLong = SoundRate * 35 / 100
	fadeLong    = SoundRate / 100
	cheerLong   = 5 * SoundRate
	cheerRise   = SoundRate / 4
)

// Sound makes the match's sound, in one channel: the crowd, which cheers for
// some seconds after a goal, and the referee's whistle when play stops and goes
// on. from counts samples since the start. The same samples come out whatever
// was asked before.
func (m *Match) Sound(from int64, pcm []int16) {
	at := func(sample int64) time.Duration { return media.TicksToDuration(sample, SoundRate) }
	events := m.Events(max(0, at(from)-at(cheerLong)), at(from+int64(len(pcm)))+time.Millisecond)
	var crowd [3]lattice
	for i := range crowd {
		crowd[i] = lattice{seed: m.seed, layer: uint64(7 + i), step: 24 << i} //nolint:gosec // 0 to 2
	}
	swell := lattice{seed: m.seed, layer: 11, step: SoundRate}
	for i := range pcm {
		n := from + int64(i)
		v := 0.0
		for k := range crowd {
			v += crowd[k].at(n)
		}
		v *= murmur * (1 + 0.4*swell.at(n)) / 2
		for _, e := range events {
			since := n - int64(e.At*SoundRate/time.Second)
			switch e.Kind {
			case Goal:
				v *= 1 + 5*hill(since, cheerRise, cheerLong)
			case StillStart, StillEnd:
				// A pea in the whistle makes its tone flutter.
				t := float64(since) / SoundRate
				v += whistleLoud * hill(since, fadeLong, whistleLong) *
					math.Sin(2*math.Pi*2900*t) * (0.7 + 0.3*math.Sin(2*math.Pi*38*t))
			default:
			}
		}
		pcm[i] = int16(max(math.MinInt16, min(math.MaxInt16, v)))
	}
}

// hill goes from 0 to 1 within rise samples, and back to 0 at the end.
func hill(n, rise, end int64) float64 {
	if n < 0 || n >= end {
		return 0
	}
	return min(1, float64(n)/float64(rise), float64(end-n)/float64(rise))
}

// lattice is noise without what is above the rate of its points: random values
// every step samples, with straight lines between them.
type lattice struct {
	seed, layer uint64
	step        int64
	known       bool
	point       int64
	left, right float64
}

func (l *lattice) at(n int64) float64 {
	point := n / l.step
	if !l.known || point != l.point {
		value := func(p int64) float64 { return 2*paint.Chance(l.seed, l.layer, uint64(p)) - 1 } //nolint:gosec // any number will do
		l.known, l.point, l.left, l.right = true, point, value(point), value(point+1)
	}
	part := float64(n-point*l.step) / float64(l.step)
	return l.left + (l.right-l.left)*part
}
