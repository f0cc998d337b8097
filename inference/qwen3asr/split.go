package qwen3asr

import "touchline/inference"

const (
	rate        = inference.RecognizerRate
	leastSound  = rate / 2  // shorter sound is padded with silence
	cutSearch   = 5 * rate  // on both sides of the longest part
	quietWindow = rate / 10 // in which a cut must be
)

// split returns the ends of the parts of a sound, which are cut where it is quiet: at most search before or
// after most samples, which must be more than that.
func split(sound []float32, most, search int) []int {
	var ends []int
	start := 0
	for len(sound)-start > most {
		start = quietest(sound, start, start+most, search)
		ends = append(ends, start)
	}
	return append(ends, len(sound))
}

// quietest returns the place within search of cut, and after start, to cut: the lowest sample of the quietest tenth
// of a second.
func quietest(sound []float32, start, cut, search int) int {
	left, right := max(start, cut-search), min(len(sound), cut+search)
	if right-left <= quietWindow {
		return max(cut, start+1)
	}
	near := sound[left:right]
	sum := 0.0
	for _, v := range near[:quietWindow] {
		sum += size(v)
	}
	best, at := sum, 0
	for i := range len(near) - quietWindow {
		sum += size(near[i+quietWindow]) - size(near[i])
		if sum < best {
			best, at = sum, i+1
		}
	}
	low := at
	for i := at; i < at+quietWindow; i++ {
		if size(near[i]) < size(near[low]) {
			low = i
		}
	}
	return max(left+low, start+1)
}

func size(v float32) float64 {
	if v < 0 {
		return float64(-v)
	}
	return float64(v)
}

// padded returns the sound with silence after it if it is shorter than the model takes.
func padded(sound []float32) []float32 {
	if len(sound) >= leastSound {
		return sound
	}
	return append(make([]float32, 0, leastSound), sound...)[:leastSound]
}
