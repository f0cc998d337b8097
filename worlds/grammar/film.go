package grammar

import "touchline/worlds"

// Film is the truth of a seed's pictures in order, FPS per second.
type Film struct {
	World World
	Facts []Fact

	rare    []string         // kinds of rare moments, in their order
	moments map[string][]int // the pictures that show them
}

// Sizes of the windows in which rare moments are searched.
const (
	momentPictures = 4
	momentStep     = 3
)

// NewFilm reads a film from its records.
func NewFilm(w World, records []worlds.Truth) *Film {
	f := &Film{World: w, Facts: w.facts(records), moments: map[string][]int{}}
	for i := momentStep * (momentPictures - 1); i < len(f.Facts); i++ {
		for _, kind := range w.moments(f.Window(i, momentPictures, momentStep)) {
			if f.moments[kind] == nil {
				f.rare = append(f.rare, kind)
			}
			f.moments[kind] = append(f.moments[kind], i)
		}
	}
	return f
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
	if len(f.rare) > 0 && d.chance(f.World.orders().momentShare) {
		return max(lo, Pick(d, f.moments[Pick(d, f.rare)]))
	}
	return d.from(lo, len(f.Facts))
}
