package inference

// quietSpan is the length over which Quietest measures, 100 ms.
const quietSpan = RecognizerRate / 10

// Quietest returns the best position for a cut between two samples: at the smallest sample of the quietest 100 ms. Of equal ones it is
// the first. In a shorter sound it is the smallest sample.
func Quietest(sound []float32) int {
	begin, least, sum := 0, 0.0, 0.0
	for i, v := range sound {
		sum += loud(v)
		if i < quietSpan {
			least = sum
			continue
		}
		if sum -= loud(sound[i-quietSpan]); sum < least {
			begin, least = i-quietSpan+1, sum
		}
	}
	at, smallest := 0, -1.0
	for i, v := range sound[begin:min(begin+quietSpan, len(sound))] {
		if v := loud(v); v < smallest || smallest < 0 {
			at, smallest = begin+i, v
		}
	}
	return at
}

// loud is a sample's size in steps of 16 bits: for sound of 16 bits all sums are exact.
func loud(v float32) float64 { return float64(max(v, -v)) * (1 << 15) }

// splitReach is the maximum distance of a cut from its nominal position.
const splitReach = 5 * RecognizerRate

// SplitSound cuts a recording into parts of about most samples, each at the quietest place within 5 s of that length; the last part is
// the rest. most must be positive.
func SplitSound(sound []float32, most int) [][]float32 {
	var parts [][]float32
	for len(sound) > most {
		from := max(most-splitReach, 0)
		at := from + Quietest(sound[from:min(most+splitReach, len(sound))])
		if at == 0 {
			at = most
		}
		parts, sound = append(parts, sound[:at]), sound[at:]
	}
	return append(parts, sound)
}
