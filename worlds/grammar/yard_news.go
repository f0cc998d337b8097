package grammar

import (
	"cmp"
	"slices"
	"strings"

	"touchline/worlds/yard"
)

// showing lists the visible events of a window, oldest first.
func showing(w Window) []*News {
	var out []*News
	now := w.now()
	for _, e := range now.events {
		if s, age := shows(e.Kind), now.t-e.at; s.from <= age && age <= s.to && visible(w, e) {
			out = append(out, e)
		}
	}
	return out
}

// visible reports whether a window shows an event within its time.
func visible(w Window, e *News) bool {
	now, first, id := w.now(), w.first(), e.key.id()
	switch {
	case strings.HasPrefix(e.Kind, "parcel"):
		return now.person(id) != nil
	case strings.HasPrefix(e.Kind, "arrive"):
		still := 2.0 // standing is part of coming for this long
		if e.Kind == "arrive_car" {
			still = 4
		}
		p := now.person(id)
		return p != nil && (p.Doing != "standing" || now.t-e.at < still)
	case strings.HasPrefix(e.Kind, "leave"):
		return leaving(w, e)
	case e.Kind == "car_arrive":
		return now.car(id) == "arriving"
	case e.Kind == "car_leave":
		return now.car(id) == "leaving"
	case e.Kind == "dog", e.Kind == "cat":
		return slices.ContainsFunc(now.animals, func(a yard.Animal) bool { return a.ID == id })
	case e.Kind == "lamp_on": // it warms up for 3 s
		return now.lamp == "on" && (first.lamp != "on" || first.t-e.at < 2.8 || 0.2 < now.light && now.light < 0.5)
	case e.Kind == "lamp_fails": // it flickers for 2.5 s
		return now.lamp == "broken" && (first.lamp == "on" || first.t-e.at < 2.3)
	}
	return e.Kind != "rain_start" || now.rain
}

// slowly reports whether an event continues for half a minute.
func slowly(kind string) bool { return kind == "dusk" || kind == "dawn" }

// lingers reports whether an event that is no longer visible may still be reported: twilight continues, and a lamp differs from the last
// comments.
func lingers(now *Fact, e *News, known []newsID) bool {
	age := now.t - e.at
	reported := func(kinds ...string) bool {
		return slices.ContainsFunc(known, func(t newsID) bool { return slices.Contains(kinds, t.kind) })
	}
	switch e.Kind {
	case "dusk", "dawn":
		return shows(e.Kind).to < age && age <= twilightFor && now.twilight == 1+one(e.Kind == "dawn")
	case "lamp_on":
		return 0.3 < age && age < 7.5 && now.lamp == "on" && reported("lamp_fails", "lamp_is_off")
	case "lamp_fails":
		return 0.3 < age && age < 7.5 && now.lamp == "broken" && reported("lamp_on", "lamp_is_on")
	}
	return false
}

// leaving reports whether a window shows a person who leaves.
func leaving(w Window, e *News) bool {
	now, id := w.now(), e.key.id()
	if now.t <= e.at && now.person(id) == nil {
		return false
	}
	if e.Kind == "leave_car" && now.t < e.at+0.1 { // standing beside a car: a person that came to it gets in
		if p := w.first().person(id); p == nil || p.Doing != "going" {
			return false
		}
	}
	return slices.ContainsFunc(w, func(f *Fact) bool { return f.person(id) != nil })
}

// untold lists the events that the last comments have not reported, ordered by their end: visible ones, the departures of persons in
// those comments, and lingering ones. A person in those comments needs no arrival.
func untold(w Window, last *News) []*News {
	now := w.now()
	var known []newsID
	if last != nil {
		known = last.known
	}
	named := func(e *News) bool {
		return slices.ContainsFunc(known, func(t newsID) bool { return t.key == e.key && namesPerson(t.kind) })
	}
	out := showing(w)
	for _, e := range now.events {
		age := now.t - e.at
		gone := strings.HasPrefix(e.Kind, "leave") && 0 < age && age < missed && named(e)
		if (gone || lingers(now, e, known)) && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	out = slices.DeleteFunc(out, func(e *News) bool {
		return slices.Contains(known, e.id()) || strings.HasPrefix(e.Kind, "arrive") && named(e)
	})
	slices.SortStableFunc(out, func(a, b *News) int { return cmp.Compare(a.at+due(a.Kind), b.at+due(b.Kind)) })
	return out
}

// due returns how long after its beginning an event of a kind is visible, in seconds.
func due(kind string) float64 {
	switch {
	case kind == "car_arrive":
		return 4 // driving a short way follows
	case slowly(kind):
		return twilightFor
	}
	return shows(kind).to
}

// pair returns the first event. If it is about a person, it includes another person's event, which would end before the next comment.
func pair(events []*News) *News {
	if len(events) == 0 || !isPerson(events[0].Kind) {
		return firstOf(events)
	}
	n := *events[0]
	for _, e := range events[1:] {
		if isPerson(e.Kind) && e.key != n.key {
			n.also = e
			break
		}
	}
	return &n
}

func firstOf(events []*News) *News {
	if len(events) == 0 {
		return nil
	}
	return events[0]
}

func (*yardWorld) tell(d Dice, w Window, last *News, age float64) *News {
	now := w.now()
	if n := pair(untold(w, last)); n != nil {
		return n
	}
	if n := overlooked(now, last); n != nil {
		return n
	}
	// A report must be likelier than silence, or sampling never chooses it: its probability depends on the picture and on the age of the
	// last comment.
	pause := 4.0
	if len(now.people) > 1 {
		pause = 8 // events follow each other closely
	}
	if last != nil && age < pause {
		return nil
	}
	if n := doing(now); n != nil {
		if last.is(n) {
			return nil
		}
		return n
	}
	if len(now.people)+len(now.animals) > 0 || last != nil && age < 11 {
		return nil
	}
	return filler(d, now)
}

// overlooked reports traces of events that the last comments missed: the lamp is off, or there is a new parcel.
func overlooked(now *Fact, last *News) *News {
	reported := func(kinds ...string) bool {
		return last != nil && slices.ContainsFunc(last.known, func(t newsID) bool { return slices.Contains(kinds, t.kind) })
	}
	n := &News{key: quiet(), at: now.t - 0.5}
	switch {
	case now.lamp == "broken" && now.light < 0.5 && !reported("lamp_fails", "lamp_is_off"):
		return n.as("lamp_is_off")
	case now.parcels > 0 && len(now.people) == 0 && reported("arrive_parcel") && !reported("parcel_left", "empty_parcel"):
		return n.as("empty_parcel")
	}
	return nil
}

// doing reports the action of the newest person in the picture.
func doing(now *Fact) *News {
	newest := slices.SortedFunc(slices.Values(now.people), func(a, b yard.Person) int { return b.ID - a.ID })
	for _, p := range newest {
		if kind := doingKind(p); kind != "" {
			return &News{Kind: kind, key: keyOf(p.ID), at: now.t - 0.5, coat: p.Coat, zone: p.Place}
		}
	}
	return nil
}

// doingKind returns the kind of news for a person's action, "" for none.
func doingKind(p yard.Person) string {
	moves := p.Doing == "coming" || p.Doing == "going"
	switch {
	case p.Doing == "standing" && p.Place == "door":
		return "at_door"
	case p.Doing == "standing" && p.Place == "gate":
		return "at_gate"
	case p.Doing == "standing" && p.Place != "parking": // there it is on its way out of a car, or into it
		return "waits"
	case p.Doing == "coming" && p.Place == "path":
		return "walks_in"
	case p.Doing == "going" && p.Place == "path":
		return "walks_out"
	case p.Doing == "walking", moves && p.Place == "yard":
		return "walks"
	}
	return ""
}

// quiet returns the key of a comment for a quiet moment.
func quiet() key { return key{text: "quiet"} }

// filler returns news for a quiet moment.
func filler(d Dice, now *Fact) *News {
	n := &News{key: quiet(), at: now.t - 0.5}
	kinds := []string{"empty"}
	if parked := now.parked(); len(parked) == 1 {
		kinds, n.car = append(kinds, "empty_car"), parked[0]
	}
	for _, x := range []struct {
		so   bool
		kind string
	}{{now.parcels > 0, "empty_parcel"}, {now.light < 0.2, "night_quiet"}, {now.rain, "rain_yes"}, {now.lamp == "broken", "lamp_is_off"}} {
		if x.so {
			kinds = append(kinds, x.kind)
		}
	}
	n.Kind = Pick(d, kinds)
	return n
}
