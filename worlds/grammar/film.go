package grammar

import (
	"slices"

	"touchline/worlds"
)

// Film is the truth of a seed's pictures in order, FPS per second.
type Film struct {
	World World
	Facts []Fact

	moments []moment
}

// moment is a picture that shows something rare.
type moment struct {
	kind string
	at   []int
}

// Sizes of the windows in which rare moments are searched.
const (
	momentPictures = 4
	momentStep     = 3
)

// NewFilm reads a film from its records.
func NewFilm(w World, records []worlds.Truth) *Film {
	f := &Film{World: w, Facts: w.facts(records)}
	for i := momentStep * (momentPictures - 1); i < len(f.Facts); i++ {
		for _, kind := range w.moments(f.Window(i, momentPictures, momentStep)) {
			f.note(kind, i)
		}
	}
	return f
}

func (f *Film) note(kind string, i int) {
	k := slices.IndexFunc(f.moments, func(m moment) bool { return m.kind == kind })
	if k < 0 {
		k = len(f.moments)
		f.moments = append(f.moments, moment{kind: kind})
	}
	f.moments[k].at = append(f.moments[k].at, i)
}

// Points returns where things are in each picture of a film.
func Points(w World, records []worlds.Truth) [][]Point { return w.points(records) }

// Window returns the pictures up to i, step apart.
func (f *Film) Window(i, pictures, step int) Window {
	out := make(Window, pictures)
	for j := range out {
		out[j] = &f.Facts[i-step*(pictures-1-j)]
	}
	return out
}

// Pick draws a picture from lo on. Most draws are uniform, so that the model learns what is rare, but rare moments are frequent enough to
// be learnt.
func (f *Film) Pick(d Dice, lo int) int {
	if len(f.moments) > 0 && d.chance(f.World.orders().momentShare) {
		return max(lo, Pick(d, Pick(d, f.moments).at))
	}
	return d.from(lo, len(f.Facts))
}
