package judge

import (
	"slices"
	"time"

	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/match"
	"touchline/worlds/yard"
)

// topic is the subject of an order, a question or an alert rule.
type topic struct {
	// news are the claims that an order allows, or that answer a question.
	news []claims.Kind
	// events are the kinds whose occurrence is news.
	events []string
	// holds reports whether a picture shows the topic; nil if only events count.
	holds func(worlds.Truth) bool
}

// topics returns the topics of a world by kinds of orders in package words. Styles have none.
func topics(world string) map[string]topic {
	if world == worlds.Yard {
		return yardTopics()
	}
	return matchTopics()
}

func matchTopics() map[string]topic {
	play := []claims.Kind{
		claims.Ball, claims.Turn, claims.Own, claims.Mid, claims.Final, claims.Box, claims.Way, claims.FreeKick, claims.GoalKick, claims.Save,
	}
	score := []claims.Kind{claims.Score, claims.Lead, claims.Trail, claims.Level, claims.None}
	count := append([]claims.Kind{claims.Count}, score...)
	phase := func(all ...match.Phase) func(worlds.Truth) bool {
		return func(t worlds.Truth) bool { return slices.Contains(all, t.Match.Phase) }
	}
	attempt := func(t worlds.Truth) bool { return t.Match.Attempt != nil }
	return map[string]topic{
		"goals": {
			news: []claims.Kind{claims.Goal, claims.Joy}, events: []string{"goal"},
			holds: func(t worlds.Truth) bool { return t.Match.Goal != nil && t.Match.Goal.Age < 12 },
		},
		"shots": {
			news:   []claims.Kind{claims.Shot, claims.Save, claims.Post, claims.Wide, claims.Goal},
			events: []string{"shot"},
			holds:  attempt,
		},
		"keepers": {news: []claims.Kind{claims.Save}, events: []string{"save"}, holds: phase(match.AfterSave)},
		"lights":  {news: []claims.Kind{claims.Dim, claims.Bright, claims.Tint, claims.White}, events: []string{"dim", "brighten", "tint"}},
		"crowd": {
			news:   []claims.Kind{claims.Crowd},
			events: []string{"crowd"},
			holds:  func(t worlds.Truth) bool { return t.Match.Camera == match.ShotCrowd },
		},
		"replays": {
			news:   []claims.Kind{claims.Replay},
			events: []string{"replay"},
			holds:  func(t worlds.Truth) bool { return !t.Match.Live },
		},
		"restarts": {
			news:   []claims.Kind{claims.FreeKick, claims.GoalKick, claims.KickOff, claims.HalfTime, claims.FullTime, claims.Still},
			events: []string{"free_kick", "half_time", "full_time"},
			holds:  func(t worlds.Truth) bool { return t.Match.Phase != match.Play },
		},
		"dim":       {news: []claims.Kind{claims.Dim}, events: []string{"dim"}},
		"bright":    {news: []claims.Kind{claims.Bright}, events: []string{"brighten"}},
		"free":      {news: []claims.Kind{claims.FreeKick}, events: []string{"free_kick"}, holds: phase(match.AtFreeKick)},
		"half_time": {news: []claims.Kind{claims.HalfTime}, events: []string{"half_time"}, holds: phase(match.AtHalfTime)},
		"kick_off":  {news: []claims.Kind{claims.KickOff}, events: []string{"still"}, holds: phase(match.AtKickOff)},
		"danger":    {news: []claims.Kind{claims.Box, claims.Final, claims.Shot, claims.Save, claims.Post, claims.Wide, claims.Goal}},
		"team":      {}, "player": {},
		"ball": {news: play}, "score": {news: score},
		"q_score": {news: score}, "q_leads": {news: score}, "q_goals": {news: count},
		"q_clock": {news: []claims.Kind{claims.Clock, claims.ClockZero, claims.ClockLeft}},
		"q_half":  {news: []claims.Kind{claims.Half, claims.Half2, claims.HalfTime, claims.FullTime}},
		"q_ball":  {news: play}, "q_way": {news: play},
		"q_teams": {news: []claims.Kind{claims.Teams, claims.Score}},
		"q_shots": {news: []claims.Kind{claims.ShotsCount}},
	}
}

func yardTopics() map[string]topic {
	person := func(is func(yard.Person) bool) func(worlds.Truth) bool {
		return func(t worlds.Truth) bool { return slices.ContainsFunc(t.Yard.People, is) }
	}
	at := func(place string) func(worlds.Truth) bool {
		return person(func(p yard.Person) bool { return p.Place == place })
	}
	people := []claims.Kind{
		claims.Arrive, claims.Leave, claims.Person, claims.People, claims.Nobody, claims.Empty, claims.Carries, claims.ParcelLeft,
		claims.ParcelTaken, claims.Colour,
	}
	parcels := []claims.Kind{claims.ParcelLeft, claims.ParcelTaken, claims.Carries, claims.ParcelThere, claims.ParcelNone}
	cars := []claims.Kind{claims.CarArrive, claims.CarLeave, claims.Car, claims.Cars, claims.CarsNone, claims.Colour}
	animals := []claims.Kind{claims.Dog, claims.Cat, claims.Animal}
	light := []claims.Kind{claims.LampFails, claims.LampOn, claims.LampLit, claims.NoLit, claims.Dusk, claims.Dawn, claims.Night, claims.Day}
	rain := []claims.Kind{claims.RainStart, claims.RainEnd, claims.Rain, claims.Dry}
	driving := func(t worlds.Truth) bool {
		return slices.ContainsFunc(t.Yard.Cars, func(c yard.Car) bool { return c.Doing != "parked" })
	}
	out := map[string]topic{
		"people": {news: people, events: []string{"arrive", "leave"}, holds: person(func(yard.Person) bool { return true })},
		"coming": {news: people, events: []string{"arrive"}, holds: person(func(p yard.Person) bool { return p.Doing == "coming" })},
		"going":  {news: people, events: []string{"leave"}, holds: person(func(p yard.Person) bool { return p.Doing == "going" })},
		"coat":   {news: people, events: []string{"arrive"}},
		"parcels": {
			news: parcels, events: []string{"parcel_left", "parcel_taken"},
			holds: func(t worlds.Truth) bool {
				return len(t.Yard.Parcels) > 0 || person(func(p yard.Person) bool { return p.Parcel })(t)
			},
		},
		"cars": {
			news:   append(cars, claims.Arrive, claims.Leave),
			events: []string{"car_arrive", "car_leave"},
			holds:  func(t worlds.Truth) bool { return len(t.Yard.Cars) > 0 },
		},
		"animals": {
			news:   animals,
			events: []string{"dog", "cat"},
			holds:  func(t worlds.Truth) bool { return len(t.Yard.Animals) > 0 },
		},
		"door": {
			news:   append(people, parcels...),
			events: []string{"arrive", "leave", "parcel_left", "parcel_taken"},
			holds:  at("door"),
		},
		"gate": {
			news:   append(people, claims.CarArrive, claims.CarLeave, claims.Car),
			events: []string{"arrive", "leave"},
			holds:  func(t worlds.Truth) bool { return at("gate")(t) || driving(t) }, // words for the gate may mean people only
		},
		"light":  {news: light, events: []string{"lamp_fails", "lamp_on", "dusk", "dawn"}},
		"rain":   {news: rain, events: []string{"rain_start", "rain_end"}, holds: func(t worlds.Truth) bool { return *t.Rain }},
		"q_gate": {news: people}, "q_door": {news: people}, "q_people": {news: people}, "q_coat": {news: people},
		"q_cars": {news: cars}, "q_car": {news: cars}, "q_parcel": {news: parcels},
		"q_lamp": {news: light}, "q_rain": {news: rain}, "q_night": {news: light}, "q_animal": {news: animals},
	}
	addEvents(out)
	return out
}

// addEvents adds the topics of rules about one kind of event of the yard.
func addEvents(out map[string]topic) {
	for _, kind := range yard.Kinds() {
		if _, known := out[string(kind)]; !known {
			x := topic{news: append(tellers(out, kind), string(kind)), events: []string{string(kind)}}
			if doing := map[yard.Kind]string{yard.CarArrive: "arriving", yard.CarLeave: "leaving"}[kind]; doing != "" {
				x.holds = func(t worlds.Truth) bool {
					return slices.ContainsFunc(t.Yard.Cars, func(c yard.Car) bool { return c.Doing == doing })
				}
			}
			out[string(kind)] = x
		}
	}
}

// tellers returns the claims that report an event of the yard, by topic.
func tellers(topics map[string]topic, kind yard.Kind) (out []claims.Kind) {
	for _, name := range []string{"parcels", "cars", "animals", "light", "rain"} {
		if slices.Contains(topics[name].events, string(kind)) {
			out = append(out, topics[name].news...)
		}
	}
	return out
}

// happened lists the events of a topic in an interval that the live picture shows; colour selects the coat of the topic "coat".
func (v *viewing) happened(kind, colour string, from, to time.Duration) (out []worlds.Event) {
	t := v.topics[kind]
	for _, e := range v.world.Events(max(0, from), to) {
		switch {
		case !slices.Contains(t.events, e.Kind()):
		case kind == "kick_off" && v.world.Truth(e.At()).Match.Phase != match.AtKickOff:
		case kind == "coat" && e.Yard.Coat != colour, (kind == "door" || kind == "gate") && e.Yard.Place != kind:
		case e.Match != nil && e.Match.Kind != match.Crowd && e.Match.Kind != match.Replay && !v.world.Truth(e.At()).Match.Live:
		default:
			out = append(out, e)
		}
	}
	return out
}
