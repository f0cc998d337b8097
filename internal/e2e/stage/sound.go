package stage

import (
	"math"
	"time"
)

// The test sound: a constant hum, and a beep of another pitch each second, with the picture whose number is a multiple of the frame rate.
const (
	humPitch, beepPitch = 300, 1200 // Hz
	humLevel, beepLevel = 3000, 12000
	beepLength          = sampleRate / 10
	beepAudible         = 1500 // amplitude
)

// testSound fills pcm with the test sound, from sample number from on.
func testSound(from int64, pcm []int16) {
	for i := range pcm {
		n := from + int64(i)
		v := humLevel * math.Sin(2*math.Pi*humPitch*float64(n%sampleRate)/sampleRate)
		if n%sampleRate < beepLength {
			v += beepLevel * math.Sin(2*math.Pi*beepPitch*float64(n%sampleRate)/sampleRate)
		}
		pcm[i] = int16(v)
	}
}

// Noise is 10 ms of the camera's sound at a viewer: the amplitude of the beep.
type Noise struct {
	At   time.Time
	Beep float64
}

func (v *Viewer) hearCamera(at time.Time, block []int16) {
	n := Noise{At: at, Beep: amplitude(block, beepPitch)}
	v.mu.Lock()
	v.camera = append(v.camera, n)
	v.mu.Unlock()
}

// amplitude of one frequency, by Goertzel's algorithm.
func amplitude(pcm []int16, hz float64) float64 {
	c := 2 * math.Cos(2*math.Pi*hz/sampleRate)
	var s1, s2 float64
	for _, v := range pcm {
		s1, s2 = float64(v)+c*s1-s2, s1
	}
	return math.Sqrt(max(0, s1*s1+s2*s2-c*s1*s2)) * 2 / float64(len(pcm))
}

// BeepOffsets returns the delay of each beep after its picture, whose number is a multiple of fps.
func BeepOffsets(seen Seen, fps uint32) []time.Duration {
	var out []time.Duration
	var last time.Time
	i := 0
	for _, n := range seen.Camera {
		if n.Beep < beepAudible {
			continue
		}
		if n.At.Sub(last) > quietBefore {
			// The picture of this beep is at most half a second away.
			for i < len(seen.Pictures) && seen.Pictures[i].At.Before(n.At.Add(-time.Second/2)) {
				i++
			}
			for _, p := range seen.Pictures[i:] {
				if p.Read && p.Counter%fps == 0 {
					if off := n.At.Sub(p.At); off.Abs() < time.Second/2 {
						out = append(out, off)
					}
					break
				}
			}
		}
		last = n.At
	}
	return out
}
