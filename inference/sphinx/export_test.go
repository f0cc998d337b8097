package sphinx

import "errors"

// Segments returns the words of a line of results and their ends.
func Segments(line string) (words []string, ends []int, err error) {
	list, err := parseSegments(line)
	for _, s := range list {
		words, ends = append(words, s.text()), append(ends, s.end)
	}
	spread(list)
	compare(list, list, nil)
	return words, ends, err
}

// OneSlot lets one process run at a time; before the first.
func OneSlot(r *Recognizer) { r.slots = make(chan struct{}, 1) }

// Grammar is grammar.
func Grammar(wake, orders []string, addressed, polite bool) string {
	return grammar(wake, orders, addressed, polite)
}

// British is british.
func British(sounds string) string { return british(sounds) }

// ReduceNoise is reduceNoise.
func ReduceNoise(sound []float32) []float32 { return reduceNoise(sound) }

// Samples is samples.
func Samples(sound []float32) []byte { return samples(sound) }

// Judge judges a line of results by that of free sounds, behind the wake word "hey touchline" and addressed.
func Judge(known, free string) (good, addressed bool, err error) {
	a, err1 := parseSegments(known)
	b, err2 := parseSegments(free)
	j := compare(a, b, []string{DefaultWake})
	return j.good(), j.goodAddressed(), errors.Join(err1, err2)
}
