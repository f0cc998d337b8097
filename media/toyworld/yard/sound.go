package yard

import (
	"math"
	"time"

	"touchline/media/toyworld/paint"
)

// SoundRate is the number of samples of the yard's sound in a second.
const SoundRate = 48000

// The yard's sound, in units of 16-bit samples.
const (
	windLoud   = 380.0
	engineLoud = 900.0
	barkLoud   = 5200.0
	barks      = 3
)

// Sound makes the yard's sound, in one channel: a little wind, the engine of a
// car that drives, and a dog's bark. from counts samples since the start. The
// same samples come out whatever was asked before.
func (y *Yard) Sound(from int64, pcm []int16) {
	at := func(sample int64) time.Duration {
		return time.Duration(float64(sample) / SoundRate * float64(time.Second))
	}
	events := y.Events(max(0, at(from)-driveMS*time.Millisecond), at(from+int64(len(pcm)))+time.Millisecond)
	wind := [2]lattice{{seed: y.seed, layer: 21, step: 60}, {seed: y.seed, layer: 22, step: 190}}
	gust, rumble := lattice{seed: y.seed, layer: 23, step: SoundRate}, lattice{seed: y.seed, layer: 24, step: 320}
	for i := range pcm {
		n := from + int64(i)
		v := windLoud * (wind[0].at(n) + 2*wind[1].at(n)) * (0.55 + 0.45*gust.at(n))
		for _, e := range events {
			since := float64(n)/SoundRate - e.At.Seconds()
			switch e.Kind {
			case CarArrive, CarLeave:
				loud := engineLoud * hill(since, 0.6, float64(driveMS)/1000)
				v += loud * (math.Sin(2*math.Pi*62*since) + 0.6*math.Sin(2*math.Pi*93*since) + 0.8*rumble.at(n))
			case Dog:
				for k := range barks {
					t := since - 0.5 - 0.42*float64(k)
					v += barkLoud * hill(t, 0.015, 0.16) * (math.Sin(2*math.Pi*(520-900*t)*t) + 0.5*wind[0].at(n))
				}
			default:
			}
		}
		pcm[i] = int16(max(math.MinInt16, min(math.MaxInt16, v)))
	}
}

// hill goes from 0 to 1 within rise seconds, and back to 0 at the end.
func hill(t, rise, end float64) float64 {
	if t < 0 || t >= end {
		return 0
	}
	return min(1, t/rise, (end-t)/rise)
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
	return l.left + (l.right-l.left)*float64(n-point*l.step)/float64(l.step)
}
