package grammar

import (
	"slices"
	"strings"

	"touchline/worlds/yard"
)

// yardOrders are the tables of the yard's orders.
func yardOrders() *orderTables {
	list, persons := strings.Fields, slices.Concat(ofPeople(), ofDoing())
	t := &orderTables{
		filters: map[string][]string{
			"people": persons, "coming": ofPeople()[:4], "going": ofPeople()[4:8], "coat": persons,
			"parcels": list("parcel_left parcel_taken arrive_parcel leave_parcel"), "cars": list("car_arrive car_leave"),
			"animals": list("dog cat"), "door": list("arrive_door leave_door parcel_left parcel_taken at_door"),
			"gate":  list("arrive_gate arrive_parcel leave_gate leave_parcel car_arrive car_leave at_gate"),
			"light": list("lamp_fails lamp_on dusk dawn"), "rain": list("rain_start rain_end"),
		},
		weights: map[string]int{"people": 3, "coat": 5, "nodog": 3, "q_gate": 4, "q_people": 4, "q_coat": 4, "q_car": 3, "cannot": 3},
		near: split("people coming going coat door gate", "parcels parcel_left parcel_taken", "cars car_arrive car_leave", "animals dog cat",
			"rain rain_start rain_end", "light lamp_fails lamp_on dusk dawn"),
		elsewhere:   list("parcels cars gate door coat q_gate q_door q_cars q_car q_parcel q_coat q_animal animals"),
		rules:       list("people coming going coat parcels cars animals door gate light rain"),
		borrowed:    []string{boil},
		momentShare: 0.5,
	}
	for _, kind := range eventKinds()[len(ofPeople())-2:] { // rules about one kind of event
		t.filters[kind] = []string{kind}
		t.rules = append(t.rules, kind)
	}
	return t
}

// order draws the coat, often one in the window.
func (y *yardWorld) order(d Dice, kind string, a asking) Order {
	var here []yard.Person
	if a.window != nil {
		here = a.window.now().people
	}
	var coat string
	if len(here) > 0 && d.chance(0.6) {
		coat = Pick(d, here).Coat
	} else {
		coat = Pick(d, yard.Coats())
	}
	name := colour(coat, a.language)
	text := strings.NewReplacer("{c}", name, "{a}", article(name), "{s}", several(name, a.language)).
		Replace(a.text(d, y.wordings(a.language), kind))
	return Order{Kind: kind, Text: text, Coat: coat}
}

// several returns the plural form of a colour.
func several(colour, language string) string {
	switch {
	case language == english:
		return colour
	case strings.ContainsAny(colour[len(colour)-1:], "aeo"):
		return colour + "s"
	}
	return colour + "es"
}

func (y *yardWorld) follow(d Dice, o Order, w Window, last *News, age float64) *News {
	if animal, ok := strings.CutPrefix(o.Kind, "no"); ok && (animal == "dog" || animal == "cat") {
		n := y.tell(d, w, last, age)
		if kindOf(n) == animal {
			return nil
		}
		return n
	}
	if strings.HasPrefix(o.Kind, "q_") {
		n := y.answer(o, w.now())
		if last.is(n) {
			return nil
		}
		return n
	}
	events := slices.DeleteFunc(untold(w, last), func(e *News) bool { return !y.passes(o, e) })
	if n := pair(events); n != nil {
		return n
	}
	n := doing(w.now())
	if n == nil || !y.passes(o, n) || last != nil && (age < 4 || last.is(n)) {
		return nil
	}
	return n
}

// passes reports whether an order allows news.
func (y *yardWorld) passes(o Order, n *News) bool {
	return slices.Contains(y.tables.filters[o.Kind], n.Kind) && (o.Kind != "coat" || n.coat == o.Coat)
}

// answer returns the answer to a question.
func (*yardWorld) answer(o Order, now *Fact) *News {
	parked := slices.Sorted(slices.Values(now.parked()))
	switch {
	case o.Kind == "q_gate":
		return personAt(now, "gate")
	case o.Kind == "q_door":
		return personAt(now, "door")
	case o.Kind == "q_people" && len(now.people) > 0:
		return &News{Kind: "people_count", key: keyOf(len(now.people))}
	case o.Kind == "q_people":
		return &News{Kind: "nobody", key: keyOf(0)}
	case o.Kind == "q_car" && len(parked) == 1:
		return &News{Kind: "car_colour", key: key{text: parked[0]}, car: parked[0]}
	case (o.Kind == "q_car" || o.Kind == "q_cars") && len(now.cars) > 0:
		return &News{Kind: "cars_count", key: keyOf(len(now.cars))}
	case o.Kind == "q_car", o.Kind == "q_cars":
		return &News{Kind: "cars_none", key: keyOf(0)}
	case o.Kind == "q_coat":
		return wearer(now, o.Coat)
	case o.Kind == "q_animal" && len(now.animals) > 0:
		return &News{Kind: "animal_yes_" + now.animals[0].Kind}
	case o.Kind == "q_animal":
		return &News{Kind: "animal_no"}
	}
	return yesNo(o.Kind, now)
}

// yesNo returns the answer to a yes-or-no question.
func yesNo(kind string, now *Fact) *News {
	answers := map[string]struct {
		so      bool
		yes, no string
	}{
		"q_parcel": {now.parcels > 0, "parcel_yes", "parcel_no"}, "q_lamp": {now.lamp == "on", "lamp_is_on", "lamp_is_off"},
		"q_rain": {now.rain, "rain_yes", "rain_no"}, "q_night": {now.night, "night_yes", "day_yes"},
	}
	if a := answers[kind]; a.so {
		return &News{Kind: a.yes}
	}
	return &News{Kind: answers[kind].no}
}

func personAt(now *Fact, place string) *News {
	for _, p := range now.people {
		if p.Place == place {
			return &News{Kind: "who_" + place, key: keyOf(p.ID), coat: p.Coat}
		}
	}
	return &News{Kind: "nobody_" + place}
}

// wearer reports where the person with a coat is.
func wearer(now *Fact, coat string) *News {
	for _, p := range now.people {
		if p.Coat == coat {
			return &News{Kind: "coat_where_" + p.Place, key: key{text: p.Place}, coat: coat}
		}
	}
	return &News{Kind: cannotOrder}
}

// Holds implements World: an event, or a person in sight if the rule is about persons.
func (y *yardWorld) Holds(_ Dice, o Order, w Window) *News {
	now := w.now()
	for _, p := range now.people {
		if o.Kind == "people" || o.Kind == p.Place || o.Kind == "coat" && p.Coat == o.Coat {
			return y.seen(w, p)
		}
	}
	if o.Kind == "animals" {
		if len(now.animals) > 0 {
			return &News{Kind: "animal_yes_" + now.animals[0].Kind}
		}
		return nil
	}
	for _, n := range showing(w) {
		if y.passes(o, n) {
			return n
		}
	}
	return nil
}

// seen returns the news about a person in sight: an event, or the place.
func (*yardWorld) seen(w Window, p yard.Person) *News {
	for _, n := range showing(w) {
		if n.key == keyOf(p.ID) {
			return n
		}
	}
	n := &News{Kind: "walks", coat: p.Coat}
	if p.Place == "door" || p.Place == "gate" {
		n.Kind = "who_" + p.Place
	}
	return n
}

// unclear reports whether a rule is about an event of the last seconds or the next: only its first seconds are clear. For a car that
// passes the gate, the rule's words decide whether it is news of the gate.
func (y *yardWorld) unclear(o Order, w Window) bool {
	now := w.now()
	if o.Kind == "gate" && slices.ContainsFunc(now.events, func(n *News) bool { return strings.HasPrefix(n.Kind, "car") }) {
		return true
	}
	if oneOf(o.Kind, "people", "coat", "door", "gate", "animals") {
		return false // presence decides
	}
	unclear := false
	for _, n := range now.events {
		if !y.passes(o, n) {
			continue
		}
		if age := now.t - n.at - shows(n.Kind).from; 0.1 <= age && age < fresh {
			return false
		}
		unclear = true
	}
	return unclear
}

// moments lists an event twice if it has just begun, and once more if it is about one of several people.
func (*yardWorld) moments(w Window) []string {
	var out, begun []string
	now := w.now()
	for _, n := range showing(w) {
		out = append(out, n.Kind)
		if now.t-n.at < shows(n.Kind).from+fresh/2 {
			begun = append(begun, n.Kind+" now")
		}
		if isPerson(n.Kind) && slices.ContainsFunc(now.people, func(p yard.Person) bool { return p.ID != n.key.id() }) {
			begun = append(begun, n.Kind+" in company")
		}
	}
	out = append(out, begun...)
	if len(now.people) > 0 {
		out = append(out, "someone")
	}
	if len(now.people) > 1 {
		out = append(out, "both")
	}
	if 0.1 < now.light && now.light < 0.9 {
		out = append(out, "twilight")
	}
	return out
}

func (*yardWorld) style(d Dice, profile string, _ *News) string {
	weights := []int{7, 3, 0}
	switch profile {
	case "sports":
		weights = []int{2, 5, 4}
	case "default":
		weights = []int{5, 5, 1}
	case "security":
		weights = []int{9, 1, 0}
	}
	return Weighted(d, []string{calm, lively, boil}, weights)
}
