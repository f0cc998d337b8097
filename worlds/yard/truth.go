package yard

import (
	"iter"
	"math"
	"slices"
	"sort"
	"time"
)

// Kind is a kind of event.
type Kind string

// The kinds of events. Each is visible in the picture.
const (
	// Arrive: a person comes through the gate, out of the house, or out of a car.
	Arrive Kind = "arrive"
	// Leave: a person goes out of the gate, into the house, or into a car.
	Leave       Kind = "leave"
	ParcelLeft  Kind = "parcel_left"
	ParcelTaken Kind = "parcel_taken"
	CarArrive   Kind = "car_arrive"
	CarLeave    Kind = "car_leave"
	Dog         Kind = "dog"
	Cat         Kind = "cat"
	RainStart   Kind = "rain_start"
	RainEnd     Kind = "rain_end"
	// LampFails: the lamp goes out at night. LampOn: it comes on in the evening, or again.
	LampFails Kind = "lamp_fails"
	LampOn    Kind = "lamp_on"
	Dusk      Kind = "dusk"
	Dawn      Kind = "dawn"
)

// Kinds returns all kinds of events.
func Kinds() []Kind {
	return []Kind{
		Arrive, Leave, ParcelLeft, ParcelTaken, CarArrive, CarLeave, Dog, Cat, RainStart, RainEnd, LampFails, LampOn, Dusk, Dawn,
	}
}

// Event is an event of the yard.
type Event struct {
	// At is when it becomes visible, since the start.
	At   time.Duration `json:"-"`
	Kind Kind          `json:"kind"`
	// ID identifies the person, car or animal, as in Truth; 0 for none.
	ID int `json:"id,omitempty"`
	// Coat of the person, Colour of the car, Animal: "dog" or "cat".
	Coat   string `json:"coat,omitempty"`
	Colour string `json:"colour,omitempty"`
	Animal string `json:"animal,omitempty"`
	// Place is where it happens: gate, door, parking, wall or yard; "" means everywhere.
	Place string `json:"place,omitempty"`
	// Parcel means that the person carries one.
	Parcel bool `json:"parcel,omitempty"`
	// Text describes the event in plain words.
	Text string `json:"text"`
}

// Box is a rectangle: left, top, right and bottom as fractions of the
// picture's width and height from the top left corner, cut at its edges.
type Box [4]float64

// Person is a person in the picture.
type Person struct {
	ID   int    `json:"id"`
	Coat string `json:"coat"`
	Box  Box    `json:"box"`
	// Place is gate, door, parking, path or yard.
	Place string `json:"place"`
	// Doing is coming, going, standing, walking, leaving_parcel or taking_parcel.
	Doing string `json:"doing"`
	// Parcel means that the person carries one.
	Parcel bool `json:"parcel"`
}

// Parcel is a parcel on the ground.
type Parcel struct {
	ID    int    `json:"id"`
	Box   Box    `json:"box"`
	Place string `json:"place"`
}

// Car is a car in the picture.
type Car struct {
	ID     int    `json:"id"`
	Colour string `json:"colour"`
	Box    Box    `json:"box"`
	// Doing is arriving, parked or leaving.
	Doing string `json:"doing"`
}

// Animal is an animal in the picture.
type Animal struct {
	ID int `json:"id"`
	// Kind is dog or cat.
	Kind   string `json:"kind"`
	Box    Box    `json:"box"`
	Moving bool   `json:"moving"`
}

// Truth is the content of the picture at a moment.
type Truth struct {
	People  []Person `json:"people"`
	Parcels []Parcel `json:"parcels"`
	Cars    []Car    `json:"cars"`
	Animals []Animal `json:"animals"`
	// Lamp is on, off or broken.
	Lamp string `json:"lamp"`
	// Gate and Door are open or closed.
	Gate string `json:"gate"`
	Door string `json:"door"`
	// Clock is the date and time in the picture.
	Clock string `json:"clock"`
}

// Weather is the light and the weather of a moment.
type Weather struct {
	// Light is the daylight: 1 at noon, 0 at night.
	Light float64
	// Night means that it is more dark than light. Rain means that drops fall.
	Night, Rain bool
}

// Weather returns the weather of a moment.
func (y *Yard) Weather(at time.Duration) Weather {
	t := max(0, at.Milliseconds())
	y.weather.until(t)
	now := y.weather.at(t)
	return Weather{Light: round(float64(now.day)/daySteps, 3), Night: now.night, Rain: y.weather.raining(t)}
}

// Events lists the events in [from, to), in order.
func (y *Yard) Events(from, to time.Duration) []Event {
	t := max(0, to.Milliseconds())
	y.script.until(t)
	y.weather.until(t)
	var out []Event
	within := func(events []Event) {
		for _, e := range events {
			if e.At >= max(0, from) && e.At < to {
				out = append(out, e)
			}
		}
	}
	within(y.weather.events)
	acts := y.script.acts
	first := sort.Search(len(acts), func(i int) bool { return acts[i].start+longestMS >= from.Milliseconds() })
	for _, a := range acts[first:] {
		within(a.events)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].At < out[j].At })
	return out
}

// Truth returns the content of the picture at a moment.
func (y *Yard) Truth(at time.Duration) Truth {
	t := max(0, at.Milliseconds())
	y.script.until(t)
	y.weather.until(t)
	out := Truth{
		People: []Person{}, Parcels: []Parcel{}, Cars: []Car{}, Animals: []Animal{},
		Lamp: y.weather.at(t).lamp, Gate: state(y.gateOpen(t)), Door: state(y.doorOpen(t)),
		Clock: y.shows(max(0, at)).Format(time.DateTime),
	}
	for p, q := range y.people(t) {
		if q.y > wallY && q.x > seenX || q.inCar() {
			continue // behind the wall, or in the car
		}
		out.People = append(out.People, Person{
			ID: p.id, Coat: Coats()[p.look.coat], Place: place(q.x, q.y), Doing: q.doing, Parcel: q.parcel,
			Box: y.frame(q.x, q.y, 0, 0.23*personTall, personTall*q.size),
		})
	}
	for _, p := range y.lying(t) {
		out.Parcels = append(out.Parcels, Parcel{ID: p.id, Box: y.frame(spotX(p.spot), spotY, 0, parcelWide/2, parcelTall), Place: placeDoor})
	}
	for c, q := range y.vehicles(t) {
		seen, _ := c.passes()
		if t < c.arrive+seen || t >= c.leave+driveMS-seen {
			continue // behind the wall
		}
		out.Cars = append(out.Cars, Car{ID: c.id, Colour: carNames()[c.colour], Box: y.carBox(q), Doing: q.doing})
	}
	for b, q := range y.beasts(t) {
		half, tall, z := 0.8, 1.0, 0.0
		if b.kind == "cat" {
			half, tall = 0.5, 0.8
		}
		if b.wall {
			z = wallH
		}
		if box := y.frame(q.x, q.y, z, half, tall); box[2]-box[0] > 0.01 && (!b.wall || q.x < houseX) {
			out.Animals = append(out.Animals, Animal{ID: b.id, Kind: b.kind, Box: box, Moving: q.moving})
		}
	}
	return out
}

// seenX returns the right limit of the visible part of a person in the street through the gate.
const seenX = gateX1 - 0.04

func state(open float64) string {
	if open > 0.2 {
		return "open"
	}
	return "closed"
}

// frame returns the box around something at a place.
func (y *Yard) frame(x, d, z, half, tall float64) Box {
	px, py, m := y.project(x, d, z)
	return y.cut(px-half*m, py-tall*m, px+half*m, py)
}

// cut returns a box of pixels, cut at the picture's edges.
func (y *Yard) cut(x0, y0, x1, y1 float64) Box {
	w, h := float64(y.width), float64(y.height)
	in := func(v float64) float64 { return round(max(0, min(1, v)), 4) }
	return Box{in(x0 / w), in(y0 / h), in(x1 / w), in(y1 / h)}
}

func (y *Yard) carBox(p carPose) Box {
	x0, y0, x1, y1 := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	b := body{stage: &stage{yard: y}, p: p}
	for _, l := range []float64{-carHalf, carHalf} {
		for _, w := range []float64{-carWide, carWide} {
			q := b.at(l, w, 0)
			roof := b.at(l*0.5, w*0.8, cabin().up)
			u, v := y.point(q[0], q[1], 0), y.point(roof[0], roof[1], roof[2])
			x0, y0, x1, y1 = min(x0, u.X), min(y0, v.Y), max(x1, u.X), max(y1, u.Y)
		}
	}
	return y.cut(x0, y0, x1, y1)
}

// people lists the people present at a moment.
func (y *Yard) people(t int64) iter.Seq2[*person, pose] {
	return func(yield func(*person, pose) bool) {
		for _, a := range y.script.recent(t) {
			for _, p := range a.people {
				if q, ok := locate(p.way, t); ok && !yield(p, q) {
					return
				}
			}
		}
	}
}

// beasts lists the animals at a moment.
func (y *Yard) beasts(t int64) iter.Seq2[*animal, pose] {
	return func(yield func(*animal, pose) bool) {
		for _, a := range y.script.recent(t) {
			for _, b := range a.animals {
				if q, ok := locate(b.way, t); ok && !yield(b, q) {
					return
				}
			}
		}
	}
}

// vehicles lists the cars at a moment.
func (y *Yard) vehicles(t int64) iter.Seq2[*car, carPose] {
	return func(yield func(*car, carPose) bool) {
		for _, c := range y.script.current(t).cars {
			if q, ok := c.at(t); ok && !yield(c, q) {
				return
			}
		}
	}
}

// lying lists the parcels on the ground at a moment.
func (y *Yard) lying(t int64) []*parcel {
	out := slices.Clone(y.script.current(t).parcels)
	return slices.DeleteFunc(out, func(p *parcel) bool { return !p.holds(t) })
}

// How long gate and door need to open, in milliseconds.
const gateMS, doorMS = 1300, 500

func (y *Yard) gateOpen(t int64) float64 {
	k := 0.0
	for _, a := range y.script.around(t) {
		k = max(k, opening(a.gate, t, gateMS))
	}
	return k
}

func (y *Yard) doorOpen(t int64) float64 {
	k := 0.0
	for _, a := range y.script.around(t) {
		k = max(k, opening(a.door, t, doorMS))
	}
	return k
}

// around lists the acts whose gate or door may be open at a time.
func (s *script) around(t int64) []*act { return s.recent(t + 2*gateLag) }

// round rounds to a number of decimals, for short records.
func round(v float64, decimals int) float64 {
	k := math.Pow10(decimals)
	return math.Round(v*k) / k
}
