package yard

import "math"

// The yard in metres: x along the wall, y away from the camera, z up.
const (
	wallY, wallH       = 9.0, 2.4
	gateX0, gateX1     = 1.0, 5.2
	houseX, houseY     = 11.2, 7.7
	doorX0, doorX1     = 13.4, 15.0
	doorH              = 2.35
	doorX              = (doorX0 + doorX1) / 2
	walkX              = 4.45 // where people pass the gate, and to both sides of it
	driveX             = 2.8  // where cars pass it
	bayY               = 2.5
	bays               = 2
	spots              = 2
	trackY             = 6.95 // of animals: parked cars hide nearer ones
	lampX, lampY       = 9.0, 5.75
	lampZ              = 3.7
	crossX             = 11.0 // between the bays
	carHalf, carWide   = 2.05, 0.88
	driverBack         = 0.2           // the driver's door is this far behind the middle
	outside            = carWide + 0.1 // of the car, so that they hide it
	besideCar          = 1.35          // and people stand this far from it
	driveMS            = 8200
	doorSlack, gateLag = 900, 1700
)

func bayX(bay int) float64   { return []float64{8.35, 13.6}[bay] }
func laneY(bay int) float64  { return []float64{3.9, 4.6}[bay] }
func spotX(spot int) float64 { return []float64{12.75, 15.75}[spot] }

const spotY = 7.3

// walker builds a person's way, step by step.
type walker struct {
	s     *script
	a     *act
	p     *person
	at    point
	speed float64 // m/s
	pathY float64 // where on the path they walk
	gateX float64 // where they pass the gate
}

func (s *script) walker(a *act, l look, t int64, x, y float64) *walker {
	p := &person{id: s.id(), look: l}
	a.people = append(a.people, p)
	w := &walker{s: s, a: a, p: p, speed: s.real(1.15, 1.6), pathY: s.real(6.45, 7.0), gateX: walkX + s.real(-0.3, 0.3)}
	w.at = point{t: t, x: x, y: y, size: 1}
	return w
}

// to walks in a straight line.
func (w *walker) to(x, y float64, doing string) *walker {
	w.at.doing = doing
	w.p.way = append(w.p.way, w.at)
	w.at.t += max(60, int64(math.Hypot(x-w.at.x, y-w.at.y)/w.speed*1000))
	w.at.x, w.at.y = x, y
	return w
}

// wait stays for a while.
func (w *walker) wait(length int64, doing string) {
	w.at.doing = doing
	w.p.way = append(w.p.way, w.at)
	w.at.t += length
}

// done ends the way.
func (w *walker) done() { w.p.way = append(w.p.way, w.at) }

func (w *walker) event(kind Kind, place, text string) {
	name := "a person in " + article(Coats()[w.p.look.coat]) + " coat "
	w.s.event(w.a, Event{
		At: ms(w.at.t), Kind: kind, ID: w.p.id, Coat: Coats()[w.p.look.coat], Place: place, Parcel: w.at.parcel, Text: name + text,
	})
}

// fromGate comes in from the street.
func (s *script) fromGate(a *act, l look, t int64, carries bool) *walker {
	w := s.walker(a, l, t, 6.9, 10.05)
	w.at.parcel = carries
	w.to(5.15, 10.05, coming)
	with := ""
	if carries {
		with = " with a parcel"
	}
	w.event(Arrive, placeGate, "comes through the gate"+with)
	w.to(w.gateX, 9.7, coming).to(w.gateX, 9, coming)
	w.a.gate = append(w.a.gate, period{t - gateLag, w.at.t + doorSlack})
	w.to(w.gateX, 8.1, coming)
	return w
}

// toGate goes out to the street.
func (w *walker) toGate() {
	w.to(5.4, w.pathY, going).to(w.gateX, 8.1, going)
	opens := w.at.t - gateLag
	w.to(w.gateX, 9, going)
	w.event(Leave, placeGate, "leaves through the gate")
	w.to(w.gateX, 9.7, going).to(5.15, 10.05, going)
	w.a.gate = append(w.a.gate, period{opens, w.at.t + doorSlack/2})
	w.to(6.9, 10.05, going).done()
}

// fromDoor comes out of the house.
func (s *script) fromDoor(a *act, t int64, doing string) *walker {
	w := s.walker(a, s.resident(t), t+doorSlack, doorX, houseY+1)
	w.event(Arrive, placeDoor, "comes out of the house")
	w.to(doorX, houseY, doing)
	w.a.door = append(w.a.door, period{t, w.at.t + doorSlack})
	w.to(doorX, 7.2, doing)
	return w
}

// toDoor goes into the house.
func (w *walker) toDoor(doing string) {
	w.to(doorX, 7.2, doing)
	opens := w.at.t - doorSlack
	w.to(doorX, houseY, doing)
	w.event(Leave, placeDoor, "goes into the house")
	w.to(doorX, houseY+1, doing)
	w.a.door = append(w.a.door, period{opens, w.at.t + doorSlack})
	w.done()
	w.s.inside = append(w.s.inside, guest{w.p.look, w.at.t + 4000})
}

func (w *walker) alongTo(x float64, doing string) *walker { return w.to(x, w.pathY, doing) }

// visitor comes and goes in.
func (s *script) visitor(a *act) {
	w := s.fromGate(a, s.somebody(), a.start, false).alongTo(5.4, coming)
	if s.rng.IntN(5) < 2 {
		w.alongTo(s.real(7, 11), coming).wait(s.between(4000, 9000), standing)
	}
	w.alongTo(13.6, coming).toDoor(coming)
}

// outing is a person who leaves the house.
func (s *script) outing(a *act) {
	w := s.fromDoor(a, a.start, going).alongTo(13.6, going)
	if s.rng.IntN(5) < 2 {
		w.alongTo(s.real(7, 11), going).wait(s.between(4000, 9000), standing)
	}
	w.toGate()
}

// delivery brings a parcel to the door.
func (s *script) delivery(a *act) {
	w := s.fromGate(a, s.somebody(), a.start, true).alongTo(5.4, coming)
	w.leaveParcel(s.freeSpot(a.start))
	w.toGate()
}

// leaveParcel walks to the door and puts the parcel down.
func (w *walker) leaveParcel(spot int) {
	x := spotX(spot) - 0.62
	w.alongTo(x-0.4, coming).to(x, spotY-0.2, coming)
	w.wait(700, leavingParcel)
	w.event(ParcelLeft, placeDoor, "leaves a parcel at the door")
	w.at.parcel = false
	w.s.parcels = append(w.s.parcels, &parcel{id: w.s.id(), spot: spot, period: period{w.at.t, forever}})
	w.wait(700, leavingParcel)
	if w.s.rng.IntN(2) == 0 {
		w.wait(w.s.between(1500, 4000), standing) // rings the bell
	}
}

// takeParcel walks to a parcel and picks it up.
func (w *walker) takeParcel(p *parcel, doing string) {
	x := spotX(p.spot) - 0.62
	w.to(x, spotY-0.2, doing)
	w.wait(700, takingParcel)
	w.event(ParcelTaken, placeDoor, "takes the parcel from the door")
	w.at.parcel = true
	p.end = w.at.t
	w.wait(700, takingParcel)
}

// collection takes a parcel away, into the house or out of the gate.
func (s *script) collection(a *act) {
	p := s.oldParcel(a.start)
	if s.home(a.start) && s.rng.IntN(2) == 0 {
		w := s.fromDoor(a, a.start, walking)
		w.takeParcel(p, walking)
		w.toDoor(walking)
		return
	}
	w := s.fromGate(a, s.somebody(), a.start, false).alongTo(5.4, coming)
	w.alongTo(spotX(p.spot)-1, coming)
	w.takeParcel(p, coming)
	w.toGate()
}

// pause is a person who comes, waits and leaves.
func (s *script) pause(a *act) {
	w := s.fromGate(a, s.somebody(), a.start, false).alongTo(5.4, coming)
	w.alongTo(s.real(6.5, 8.5), coming).wait(s.between(4000, 9000), standing)
	if s.rng.IntN(2) == 0 {
		w.alongTo(s.real(9.8, 12), walking).wait(s.between(4000, 8000), standing)
	}
	w.toGate()
}

// arrival is a car that parks and a person who gets out.
func (s *script) arrival(a *act, bay int) {
	colours := s.rng.Perm(len(carNames()))
	for _, c := range s.cars {
		if c.colour == colours[0] {
			colours[0] = colours[1]
		}
	}
	c := &car{id: s.id(), colour: colours[0], bay: bay, arrive: a.start, leave: forever}
	s.cars = append(s.cars, c)
	name := carNames()[c.colour]
	seen, inside := c.passes()
	s.event(a, Event{
		At: ms(a.start + seen), Kind: CarArrive, ID: c.id, Colour: name, Place: placeGate,
		Text: article(name) + " car drives in through the gate",
	})
	a.gate = append(a.gate, period{a.start + seen - gateLag, a.start + inside})
	a.end = a.start + driveMS
	opens := a.start + driveMS + s.between(900, 2500)
	out := opens + 700
	w := s.walker(a, s.somebody(), out, bayX(bay)-driverBack, bayY)
	w.at.size = 0.6
	w.at.parcel = s.rng.IntN(3) == 0 && s.freeSpot(a.start) >= 0
	carries := w.at.parcel
	w.at.parcel = false
	w.to(bayX(bay)-driverBack, bayY-outside, coming)
	w.at.size = 0.9
	w.event(Arrive, placeParking, "gets out of the "+name+" car")
	w.to(bayX(bay)-driverBack, bayY-besideCar, coming)
	w.at.size, w.at.parcel = 1, carries
	w.wait(900, standing)
	c.doors = append(c.doors, period{opens, w.at.t})
	if s.rng.IntN(3) == 0 {
		w.wait(s.between(2000, 6000), standing)
	}
	switch {
	case carries:
		w.cross(bay, true, coming)
		w.leaveParcel(s.freeSpot(a.start))
		w.toGate()
	case len(s.inside) < maxInside && s.rng.IntN(3) > 0:
		w.cross(bay, true, coming).toDoor(coming)
	default:
		w.cross(bay, false, going).toGate()
	}
}

// departure is a person who gets into a car and drives off.
func (s *script) departure(a *act, c *car) {
	name := carNames()[c.colour]
	var w *walker
	if s.home(a.start) && s.rng.IntN(4) > 0 {
		w = s.fromDoor(a, a.start, going)
		w.alongTo(crossX, going).to(crossX, bayY-besideCar, going)
	} else {
		w = s.fromGate(a, s.somebody(), a.start, false).alongTo(5.4, coming)
		x := crossing(c.bay, false)
		w.alongTo(x, coming).to(x, bayY-besideCar, coming)
	}
	w.to(bayX(c.bay)-driverBack, bayY-besideCar, going)
	opens := w.at.t
	w.wait(900, standing)
	w.event(Leave, placeParking, "gets into the "+name+" car")
	w.to(bayX(c.bay)-driverBack, bayY-outside, going)
	w.at.size = 0.9
	w.to(bayX(c.bay)-driverBack, bayY, going)
	w.at.size = 0.6
	w.done()
	c.doors = append(c.doors, period{opens, w.at.t + 500})
	c.leave = w.at.t + s.between(2000, 4500)
	s.event(a, Event{
		At: ms(c.leave), Kind: CarLeave, ID: c.id, Colour: name, Place: placeParking,
		Text: article(name) + " car drives off",
	})
	seen, inside := c.passes()
	a.gate = append(a.gate, period{c.leave + driveMS - inside - gateLag, c.leave + driveMS - seen})
	a.end = c.leave + driveMS
}

// crossing returns where people cross the lane.
func crossing(bay int, house bool) float64 {
	if bay == 0 && !house {
		return 5.8
	}
	return crossX
}

// cross goes from a car to the path.
func (w *walker) cross(bay int, house bool, doing string) *walker {
	x := crossing(bay, house)
	return w.to(x, bayY-besideCar, doing).to(x, w.pathY, doing)
}

// dog runs through the picture and may stop to sniff.
func (s *script) dog(a *act) {
	y := 0.3
	if s.rng.IntN(2) == 0 {
		y = trackY
	}
	d := &animal{id: s.id(), kind: "dog", fur: s.rng.IntN(len(furs("dog")))}
	s.beast(a, d, y, s.real(4, 5.2), 1, "a dog runs through the yard")
	a.animals = append(a.animals, d)
}

// cat strolls across the yard or along the wall and sits down on its way.
func (s *script) cat(a *act) {
	c := &animal{id: s.id(), kind: "cat", fur: s.rng.IntN(len(furs("cat"))), wall: s.rng.IntN(2) == 0}
	a.animals = append(a.animals, c)
	if !c.wall {
		s.beast(a, c, trackY, s.real(1.5, 1.9), 2, "a cat strolls through the yard")
		return
	}
	from := houseX + 0.9 // behind the corner of the house
	sit, t, speed := s.real(5.9, 8.3), a.start, s.real(0.9, 1.2)
	add := func(x float64, doing string) {
		if n := len(c.way); n > 0 {
			t += int64(math.Abs(x-c.way[n-1].x) / speed * 1000)
		}
		c.way = append(c.way, point{t: t, x: x, y: wallY, doing: doing, size: 1})
	}
	add(from, walking)
	add(houseX-0.2, walking)
	s.event(a, Event{At: ms(t), Kind: Cat, ID: c.id, Animal: "cat", Place: placeWall, Text: "a cat walks along the wall"})
	add(sit, standing)
	t += s.between(9000, 20_000)
	add(sit, walking)
	add(from, walking)
	a.end = t
}

// beast crosses the picture from one side to the other.
func (s *script) beast(a *act, b *animal, y, speed float64, pauses int, text string) {
	left, right := pictureEdges(y)
	from, to := left-0.8, right+0.8
	if s.rng.IntN(2) == 0 {
		from, to = to, from
	}
	t, x := a.start, from
	add := func(to float64, doing string) {
		t += int64(math.Abs(to-x) / speed * 1000)
		x = to
		b.way = append(b.way, point{t: t, x: x, y: y, doing: doing, size: 1})
	}
	add(from, walking)
	kind := Dog
	if b.kind == "cat" {
		kind = Cat
	}
	shows := t + int64(500/speed)
	s.event(a, Event{At: ms(shows), Kind: kind, ID: b.id, Animal: b.kind, Place: placeYard, Text: text})
	for i := range pauses {
		if s.rng.IntN(2) == 0 {
			continue
		}
		k := (float64(i) + s.real(0.3, 0.9)) / float64(pauses+1)
		add(from+(to-from)*k, standing)
		t += s.between(1500, 4000)
		add(x, walking)
	}
	add(to, walking)
	a.end = t
}
