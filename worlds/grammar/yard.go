package grammar

import (
	"slices"
	"time"

	"touchline/worlds"
	"touchline/worlds/yard"
)

// yardFact is the content of one picture of the yard.
type yardFact struct {
	night, rain bool
	lamp        string
	people      []yard.Person
	cars        []yard.Car
	animals     []yard.Animal
	parcels     int
	twilight    int        // 1 at dusk, 2 at dawn
	rained      [2]float64 // duration of the rain, 1 being 12 s, and time since the rain, 1 being 40 s; -9 where it does not apply
	events      []*News    // of 10 s (twilight: twilightFor) and the next second, oldest first; keys have ids of persons, cars and animals
}

// person returns the person with an id, nil if out of sight.
func (f *yardFact) person(id int) *yard.Person {
	for i := range f.people {
		if f.people[i].ID == id {
			return &f.people[i]
		}
	}
	return nil
}

// car returns the activity of the car with an id, "" if out of sight.
func (f *yardFact) car(id int) string {
	for _, c := range f.cars {
		if c.ID == id {
			return c.Doing
		}
	}
	return ""
}

// parked lists the colours of the parked cars.
func (f *yardFact) parked() []string {
	var out []string
	for _, c := range f.cars {
		if c.Doing == "parked" {
			out = append(out, c.Colour)
		}
	}
	return out
}

// span is a time in seconds after an event begins.
type span struct{ from, to float64 }

// eventKinds are the kinds of news that are events, in the order of the tables.
func eventKinds() []string {
	return []string{
		"arrive_gate", "arrive_parcel", "arrive_door", "arrive_car", "leave_gate", "leave_parcel", "leave_door", "leave_car", "parcel_left",
		"parcel_taken", "car_arrive", "car_leave", "dog", "cat", "rain_start", "rain_end", "lamp_fails", "lamp_on", "dusk", "dawn",
	}
}

// shows returns when an event is clearly visible, as long as its person, car or animal is in sight.
func shows(kind string) span {
	switch kind {
	case "arrive_gate", "arrive_parcel":
		return span{0.3, 4.5}
	case "arrive_door":
		return span{0.3, 4}
	case "arrive_car":
		return span{1, 5}
	case "leave_gate", "leave_parcel":
		return span{-0.8, 3}
	case "leave_door":
		return span{-0.3, 3}
	case "leave_car":
		return span{-0.5, 3}
	case "parcel_left", "parcel_taken":
		return span{0.4, 4.5}
	case "car_arrive":
		return span{0.4, 7.5}
	case "car_leave":
		return span{0.3, 7}
	case "rain_start":
		return span{0.5, 7.5}
	case "rain_end":
		return span{0.3, 7.5}
	case "lamp_fails":
		return span{0.3, 4.5}
	case "lamp_on":
		return span{0.2, 6}
	case "dusk", "dawn":
		return span{1.2, 9}
	}
	return span{0.3, 6}
}

// Times of the yard's events, in seconds.
const (
	missed = 7   // after which the absence of a person is no news
	fresh  = 2.5 // after the beginning of an event

	twilightFor = 18 // after dusk or dawn, in which a comment may report it
)

func carColours() []string { return []string{"white", "red", "blue", "black", "silver"} }

func yardPlaces() []string { return []string{"gate", "door", "parking", "path", "yard"} }

// doings are the actions of people.
func doings() []string {
	return []string{"coming", "going", "standing", "walking", "leaving_parcel", "taking_parcel"}
}

// ofPeople are the events about a person, ofDoing the news about a person's actions.
func ofPeople() []string { return eventKinds()[:10] }

func ofDoing() []string {
	return []string{"at_door", "at_gate", "waits", "walks_in", "walks_out", "walks"}
}

// isPerson reports whether a kind of news is an event about a person.
func isPerson(kind string) bool { return slices.Contains(ofPeople(), kind) }

func namesPerson(kind string) bool { return isPerson(kind) || slices.Contains(ofDoing(), kind) }

// colour returns a colour in a language.
func colour(name, language string) string {
	if language == english {
		return name
	}
	switch name {
	case "red":
		return "rojo"
	case "blue":
		return "azul"
	case "green":
		return "verde"
	case "yellow":
		return "amarillo"
	case "white":
		return "blanco"
	case "black":
		return "negro"
	case "orange":
		return "naranja"
	}
	return "plateado"
}

// article returns the English article for a colour.
func article(name string) string {
	if name == "orange" {
		return "an"
	}
	return "a"
}

type yardWorld struct {
	texts  map[string]*wordings
	tables *orderTables
}

// Name implements World.
func (*yardWorld) Name() string { return worlds.Yard }

func (y *yardWorld) wordings(language string) *wordings { return y.texts[language] }

func (y *yardWorld) orders() *orderTables { return y.tables }

// seconds rounds a time as in records.
func seconds(at time.Duration) float64 { return float64(at.Milliseconds()) / 1000 }

func (*yardWorld) facts(records []worlds.Truth) []Fact {
	var events []*News
	for _, r := range records {
		for _, e := range r.Events {
			events = append(events, eventNews(e.Yard))
		}
	}
	out := make([]Fact, len(records))
	for i, r := range records {
		t := seconds(r.At)
		f := &yardFact{
			night: *r.Night, rain: *r.Rain, lamp: r.Yard.Lamp, people: r.Yard.People, cars: r.Yard.Cars, animals: r.Yard.Animals,
			parcels: len(r.Yard.Parcels), rained: [2]float64{-9, -9},
		}
		ages := map[string]float64{} // since the last event of each kind
		for _, e := range events {
			if e.at <= t {
				ages[e.Kind] = t - e.at
			}
			if age := t - e.at; -1 <= age && age <= 10 || slowly(e.Kind) && age <= twilightFor {
				f.events = append(f.events, e)
			}
		}
		f.twilight = twilight(r.Light, ages)
		if age, ok := ages["rain_start"]; ok && f.rain {
			f.rained[0] = min(1, age/12)
		}
		if age, ok := ages["rain_end"]; ok && !f.rain {
			f.rained[1] = min(1, age/40)
		}
		out[i] = Fact{Frame: r.Frame, t: t, light: r.Light, yardFact: f}
	}
	return out
}

// twilight returns 1 at dusk, 2 at dawn, 0 by day and night, and -1 if the film has not shown which it is.
func twilight(light float64, ages map[string]float64) int {
	if light <= 0.03 || light >= 0.97 {
		return 0
	}
	dusk, evening := ages["dusk"]
	dawn, morning := ages["dawn"]
	switch {
	case evening && (!morning || dusk <= dawn):
		return 1
	case morning:
		return 2
	}
	return -1
}

func eventNews(e *yard.Event) *News {
	kind := string(e.Kind)
	if e.Kind == yard.Arrive || e.Kind == yard.Leave {
		switch {
		case e.Parcel && e.Place == "gate":
			kind += "_parcel"
		case e.Place == "gate", e.Place == "door":
			kind += "_" + e.Place
		default:
			kind += "_car"
		}
	}
	return &News{Kind: kind, key: keyOf(e.ID), at: seconds(e.At), coat: e.Coat, car: e.Colour, zone: e.Place}
}
