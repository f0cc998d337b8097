package grammar

import (
	"slices"

	"touchline/worlds"
	"touchline/worlds/yard"
)

// Things in the pictures of the yard, after the coats and the cars.
const (
	parcelPoint = iota
	carriedPoint
	dogPoint
	catPoint
)

// Tables implements World. Of each coat and car, 0 is out of sight.
func (*yardWorld) Tables() Tables {
	var pictures, doing, where, cars, events []Head
	for _, c := range yard.Coats() {
		pictures = append(pictures, Head{c + " coat", 6})
		doing, where = append(doing, Head{c + " coat does", 7}), append(where, Head{c + " coat is", 6})
	}
	for _, c := range carColours() {
		cars = append(cars, Head{c + " car", 3})
	}
	for _, kind := range eventKinds() {
		events = append(events, Head{kind + " shows", 2})
	}
	return Tables{
		Pictures: append(append(pictures, cars...), []Head{
			{"parcels", 3}, {"dog", 2}, {"cat", 2}, {"lamp", 2}, {"day", 8}, {"rain", 2}, {"twilight", 3},
		}...),
		Texts: slices.Concat(doing, where, cars, []Head{
			{"people", 4}, {"cars", 3}, {"parcels", 3}, {"dog", 2}, {"cat", 2}, {"lamp", 2}, {"night", 2}, {"rain", 2},
		}, events),
		Places: []string{"light", "since rain began", "since rain ended"},
		Points: slices.Concat(yard.Coats(), carColours(), []string{"parcel", "carried", "dog", "cat"}),
	}
}

func (*yardWorld) points(records []worlds.Truth) [][]Point {
	out := make([][]Point, len(records))
	things := len(yard.Coats()) + len(carColours())
	for i, r := range records {
		put := func(b yard.Box, across float64, what int) {
			out[i] = append(out[i], Point{b[0] + float64(across*(b[2]-b[0])), b[1] + float64(0.5*(b[3]-b[1])), what})
		}
		for _, p := range r.Yard.People {
			at := Point{(p.Box[0] + p.Box[2]) / 2, p.Box[1] + float64(0.42*(p.Box[3]-p.Box[1])), slices.Index(yard.Coats(), p.Coat)}
			out[i] = append(out[i], at)
			if p.Parcel {
				put(p.Box, 0.5, things+carriedPoint)
			}
		}
		for _, c := range r.Yard.Cars {
			for _, across := range []float64{0.2, 0.5, 0.8} {
				put(c.Box, across, len(yard.Coats())+slices.Index(carColours(), c.Colour))
			}
		}
		for _, p := range r.Yard.Parcels {
			put(p.Box, 0.5, things+parcelPoint)
		}
		for _, a := range r.Yard.Animals {
			what := dogPoint
			if a.Kind == "cat" {
				what = catPoint
			}
			put(a.Box, 0.5, things+what)
		}
	}
	return out
}

// yardClasses are the classes of a picture.
type yardClasses struct {
	coats, cars                                  []int // place and action of each; 0 if out of sight
	parcels, dog, cat, lamp, day, rain, twilight int
}

func (f *Fact) yardClasses() yardClasses {
	c := yardClasses{
		coats: make([]int, len(yard.Coats())), cars: make([]int, len(carColours())), parcels: min(2, f.parcels), lamp: one(f.lamp == "on"),
		day: min(7, int(f.light*8)), rain: one(f.rain), twilight: f.twilight,
	}
	for _, p := range f.people {
		c.coats[slices.Index(yard.Coats(), p.Coat)] = 1 + slices.Index(yardPlaces(), p.Place)
	}
	for _, x := range f.cars {
		c.cars[slices.Index(carColours(), x.Colour)] = 1 + one(x.Doing != "parked")
	}
	for _, a := range f.animals {
		if a.Kind == "dog" {
			c.dog = 1
		} else {
			c.cat = 1
		}
	}
	return c
}

// PictureTruth implements World.
func (*yardWorld) PictureTruth(f *Fact) (classes []int8, places []float32) {
	c := f.yardClasses()
	all := slices.Concat(c.coats, c.cars, []int{c.parcels, c.dog, c.cat, c.lamp, c.day, c.rain, c.twilight})
	return bytesOf(all...), []float32{float32(f.light), float32(f.rained[0]), float32(f.rained[1])}
}

// TextTruth implements World.
func (*yardWorld) TextTruth(w Window) []int8 {
	now := w.now()
	c := now.yardClasses()
	doing, events := make([]int, len(yard.Coats())), make([]int, len(eventKinds()))
	for _, p := range now.people {
		doing[slices.Index(yard.Coats(), p.Coat)] = 1 + slices.Index(doings(), p.Doing)
	}
	for _, n := range showing(w) {
		events[slices.Index(eventKinds(), n.Kind)] = 1
	}
	return bytesOf(slices.Concat(doing, c.coats, c.cars, []int{
		min(3, len(now.people)), min(2, len(now.cars)), c.parcels, c.dog, c.cat, c.lamp, one(now.night), c.rain,
	}, events)...)
}
