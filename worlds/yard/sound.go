package yard

import (
	"math"
	"time"

	"touchline/worlds/paint"
)

// SoundRate is the sample rate of the yard's sound.
const SoundRate = 48000

// The yard's sound, in units of 16-bit samples.
const (
	windLoud   = 380.0
	engineLoud = 900.0
	barkLoud   = 5200.0
	barks      = 3
)

// Sound generates the yard's sound, in one channel: a little wind, the engine of a moving car, and
// a dog's bark. from counts samples since the start. The same arguments give the same samples.
func (y *Yard) Sound(from int64, pcm []int16) {
	at := func(sample int64) time.Duration {
		return time.Duration(float64(sample) / SoundRate * float64(time.Second))
	}
	events := y.Events(max(0, at(from)-driveMS*time.Millisecond), at(from+int64(len(pcm)))+time.Millisecond)
	wind := [2]paint.Noise{{Seed: y.seed, Layer: 21, Step: 60}, {Seed: y.seed, Layer: 22, Step: 190}}
	gust := paint.Noise{Seed: y.seed, Layer: 23, Step: SoundRate}
	rumble := paint.Noise{Seed: y.seed, Layer: 24, Step: 320}
	for i := range pcm {
		n := from + int64(i)
		v := windLoud * (wind[0].At(n) + 2*wind[1].At(n)) * (0.55 + 0.45*gust.At(n))
		for _, e := range events {
			since := float64(n)/SoundRate - e.At.Seconds()
			switch e.Kind {
			case CarArrive, CarLeave:
				loud := engineLoud * hill(since, 0.6, float64(driveMS)/1000)
				v += loud * (math.Sin(2*math.Pi*62*since) + 0.6*math.Sin(2*math.Pi*93*since) + 0.8*rumble.At(n))
			case Dog:
				for k := range barks {
					t := since - 0.5 - 0.42*float64(k)
					v += barkLoud * hill(t, 0.015, 0.16) * (math.Sin(2*math.Pi*(520-900*t)*t) + 0.5*wind[0].At(n))
				}
			default:
			}
		}
		pcm[i] = int16(max(math.MinInt16, min(math.MaxInt16, v)))
	}
}

// hill rises from 0 to 1 within rise seconds, and returns to 0 at the end.
func hill(t, rise, end float64) float64 {
	if t < 0 || t >= end {
		return 0
	}
	return min(1, t/rise, (end-t)/rise)
}
