package mel

import "math"

func speakerKind() kind {
	const size, points = 400, 512
	k := kind{
		size: size, hop: 160, points: points, window: make([]float64, size), emphasis: 0.97,
		floor: 0x1p-23, log: 1, // the smallest step of a float32 at 1
	}
	for i := range k.window {
		k.window[i] = math.Pow(0.5-0.5*math.Cos(2*math.Pi*float64(i)/(size-1)), 0.85) // Povey's
	}
	mel := func(hz float64) float64 { return 1127 * math.Log1p(hz/700) }
	low, high := mel(20), mel(Rate/2)
	edge := func(i int) float64 { return low + (high-low)*float64(i)/(SpeakerBins+1) }
	for b := range SpeakerBins {
		// The last frequency, half the rate, is in no band.
		k.bands = append(k.bands, triangle(points/2, edge(b), edge(b+1), edge(b+2), 1, func(i int) float64 {
			return mel(float64(i) * Rate / points)
		}))
	}
	return k
}

func speechKind() kind {
	return kind{
		size: 400, hop: 160, points: 400, pad: 200, window: hann(400),
		bands: slaney(SpeechBins, 400, Rate), floor: 1e-10, log: 1 / math.Ln10,
	}
}

func promptKind() kind {
	return kind{
		size: 1920, hop: 480, points: 1920, pad: 720, window: hann(1920), root: 1e-9,
		bands: slaney(PromptBins, 1920, promptRate), floor: 1e-5, log: 1,
	}
}

// hann returns the periodic Hann window.
func hann(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/float64(n))
	}
	return w
}

// slaney returns bands of equal width on Slaney's scale from 0 to 8000 Hz: linear to 1000 Hz, then
// logarithmic. Each has the same area.
func slaney(bins, points, rate int) []band {
	const knee, perHz = 1000, 3.0 / 200
	step := math.Log(6.4) / 27
	top := knee*perHz + math.Log(8000.0/knee)/step
	edge := func(i int) float64 {
		m := top * float64(i) / float64(bins+1)
		if m < knee*perHz {
			return m / perHz
		}
		return knee * math.Exp(step*(m-knee*perHz))
	}
	bands := make([]band, bins)
	for b := range bands {
		left, right := edge(b), edge(b+2)
		bands[b] = triangle(points/2+1, left, edge(b+1), right, 2/(right-left), func(i int) float64 {
			return float64(i) * float64(rate) / float64(points)
		})
	}
	return bands
}

// triangle returns a band that rises from left to height at its middle and falls to right, over the
// first n frequencies; place returns the position of a frequency.
func triangle(n int, left, middle, right, height float64, place func(int) float64) band {
	var b band
	for i := range n {
		x := place(i)
		w := height * min((x-left)/(middle-left), (right-x)/(right-middle))
		if w <= 0 {
			continue
		}
		if b.weight == nil {
			b.first = i
		}
		b.weight = append(b.weight, w)
	}
	return b
}

// SpeechFilters returns the bands of Speech as [201,SpeechBins], for the conformance check.
func SpeechFilters() []float32 {
	k := speechKind()
	dense := make([]float32, (k.points/2+1)*SpeechBins)
	for b, band := range k.bands {
		for i, w := range band.weight {
			dense[(band.first+i)*SpeechBins+b] = float32(w)
		}
	}
	return dense
}
