package claims

import (
	"slices"
	"time"

	"touchline/worlds"
	"touchline/worlds/yard"
)

// stays is how long after an arrival a comment may still say that the person is there.
const stays = 5 * time.Second

// twilightFor is the duration of dusk and dawn.
const twilightFor = 30 * time.Second

// tellsYard reports whether a claim reports an event of the yard.
func (m *moment) tellsYard(c Claim, e worlds.Event) bool {
	x := e.Yard
	if x == nil {
		return false
	}
	switch c.Kind {
	case Arrive, Leave, ParcelLeft, ParcelTaken:
		return string(x.Kind) == c.Kind && (c.Colour == "" || c.Colour == x.Coat) &&
			(c.Place == "" || c.Place == "yard" || c.Place == x.Place)
	case CarArrive, CarLeave:
		return string(x.Kind) == c.Kind && (c.Colour == "" || c.Colour == x.Colour)
	case Animal:
		return x.Kind == yard.Dog || x.Kind == yard.Cat
	case Carries:
		taken := x.Kind == yard.ParcelTaken || (x.Kind == yard.Arrive || x.Kind == yard.Leave) && x.Parcel
		return taken && (c.Colour == "" || c.Colour == x.Coat)
	case ParcelThere:
		return x.Kind == yard.ParcelLeft
	case Person: // a person who has just arrived there
		came := x.Kind == yard.Arrive && c.Colour == x.Coat && (c.Place == "" || c.Place == "yard" || c.Place == x.Place)
		return came && m.at-x.At <= stays
	case Car:
		return x.Kind == yard.CarArrive && c.Colour != "" && c.Colour == x.Colour
	case Rain:
		return x.Kind == yard.RainStart
	case Dry:
		return x.Kind == yard.RainEnd
	case LampLit:
		return x.Kind == yard.LampOn
	case NoLit:
		return x.Kind == yard.LampFails
	case Dog, Cat, RainStart, RainEnd, LampFails, LampOn, Dusk, Dawn:
		return string(x.Kind) == c.Kind
	}
	return false
}

// holdsYard reports whether a claim is true of a picture.
func (m *moment) holdsYard(c Claim, t worlds.Truth) bool {
	x := t.Yard
	switch c.Kind {
	case Arrive, Leave, ParcelLeft, ParcelTaken, Carries, Person, People, Nobody, Empty:
		return holdsPeople(c, x)
	case ParcelThere:
		return len(x.Parcels) > 0 || slices.ContainsFunc(x.People, func(p yard.Person) bool { return p.Parcel })
	case ParcelNone:
		return len(x.Parcels) == 0
	case CarArrive, CarLeave, Car, Cars, CarsNone:
		return holdsCars(c, x)
	case Dog, Cat, Animal:
		return slices.ContainsFunc(x.Animals, func(a yard.Animal) bool { return c.Kind == Animal || a.Kind == c.Kind })
	case Colour:
		return holdsPeople(Claim{Kind: Person, Colour: c.Colour}, x) || holdsCars(Claim{Kind: Car, Colour: c.Colour}, x)
	case Rain:
		return *t.Rain
	case Dry:
		return !*t.Rain
	case LampLit:
		return x.Lamp == "on"
	case NoLit:
		return x.Lamp != "on"
	case Night: // in the twilight, both are accepted
		return t.Light < 0.9
	case Day:
		return t.Light > 0.1
	}
	return false
}

func holdsPeople(c Claim, x *yard.Truth) bool {
	is := func(more func(yard.Person) bool) bool {
		return slices.ContainsFunc(x.People, func(p yard.Person) bool { return (c.Colour == "" || c.Colour == p.Coat) && more(p) })
	}
	there := func(p yard.Person) bool { return c.Place == "" || c.Place == "yard" || c.Place == p.Place }
	switch c.Kind {
	case Arrive:
		return is(func(p yard.Person) bool { return p.Doing == "coming" && (c.Place != "door" || p.Place == "door") })
	case Leave:
		return is(func(p yard.Person) bool { return p.Doing == "going" && c.Place != "parking" })
	case ParcelLeft:
		return is(func(p yard.Person) bool { return p.Doing == "leaving_parcel" })
	case ParcelTaken:
		return is(func(p yard.Person) bool { return p.Doing == "taking_parcel" })
	case Carries:
		return is(func(p yard.Person) bool { return p.Parcel })
	case People:
		return len(x.People) == max(0, c.Count)
	case Nobody:
		return !slices.ContainsFunc(x.People, there)
	case Empty:
		return len(x.People) == 0
	}
	return is(there)
}

func holdsCars(c Claim, x *yard.Truth) bool {
	is := func(doing string) bool {
		return slices.ContainsFunc(x.Cars, func(k yard.Car) bool {
			return (c.Colour == "" || c.Colour == k.Colour) && (doing == "" || doing == k.Doing)
		})
	}
	switch c.Kind {
	case CarArrive:
		return is("arriving")
	case CarLeave:
		return is("leaving")
	case Cars:
		return len(x.Cars) == c.Count
	case CarsNone:
		return len(x.Cars) == 0
	}
	return is("")
}
