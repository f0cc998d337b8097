package grammar

import (
	"slices"

	"touchline/worlds"
	"touchline/worlds/match"
)

// Things in the pictures of the match, after the teams' shirts.
const (
	keeperPoint = iota
	refereePoint
	signalPoint
)

// Tables implements World.
func (*matchWorld) Tables() Tables {
	shots := []Head{{"shots0 tens", 10}, {"shots0", 10}, {"shots1 tens", 10}, {"shots1", 10}}
	return Tables{
		Pictures: append([]Head{
			{"state", 10},
			{"camera", 6},
			{"team", 3},
			{"s0", 10},
			{"s1", 10},
			{"m10", 10},
			{"m1", 10},
			{"kit0", 7},
			{"kit1", 7},
			{"dim", 2},
			{"tint", 4},
			{"zone", 4},
			{"attempt", 6},
			{"number", 12},
			{"signal", 2},
		}, shots...),
		Texts: append([]Head{
			{"state", 10},
			{"team", 3},
			{"kit", 8},
			{"s0", 10},
			{"s1", 10},
			{"lead", 3},
			{"m10", 10},
			{"m1", 10},
			{"light", 5},
			{"attempt", 6},
			{"turned", 2},
			{"zone", 4},
			{"still", 2},
			{"number", 12},
			{"signal", 2},
			{"moved", 3},
			{"moved along", 3},
		}, shots...),
		Places: []string{"ball x", "ball y", "pitch x", "pitch y", "flow"},
		Points: append(slices.Clone(teamNames()), "keeper", "referee", "signal"),
	}
}

func (*matchWorld) points(records []worlds.Truth) [][]Point {
	out := make([][]Point, len(records))
	var kits []int
	for i, r := range records {
		m := r.Match
		if i == 0 {
			kits = kitsOf(m)
		}
		for k, at := range m.Torsos {
			out[i] = append(out[i], Point{at[0], at[1], kits[k]})
		}
		if m.Referee != nil {
			out[i] = append(out[i], Point{m.Referee[0], m.Referee[1], len(teamNames()) + refereePoint})
		}
		if m.Signal != nil {
			out[i] = append(out[i], Point{m.Signal[0], m.Signal[1], len(teamNames()) + signalPoint})
		}
	}
	return out
}

// kitsOf returns the shirts of all players, as indices of the table of points.
func kitsOf(m *match.Truth) []int {
	var out []int
	for _, team := range m.Teams {
		out = append(out, len(teamNames())+keeperPoint)
		for range 10 {
			out = append(out, slices.Index(teamNames(), fullName(team)))
		}
	}
	return out
}

// matchClasses are the classes of a picture, in the table's order.
type matchClasses struct {
	state, camera, team, score0, score1, tens, minute, kit0, kit1, dim, tint, stage, attempt, number, signal int

	shots [4]int // digits of each team's shots
}

// list returns the classes in the table's order.
func (c matchClasses) list() []int8 {
	return bytesOf(c.state, c.camera, c.team, c.score0, c.score1, c.tens, c.minute, c.kit0, c.kit1, c.dim, c.tint, c.stage, c.attempt,
		c.number, c.signal, c.shots[0], c.shots[1], c.shots[2], c.shots[3])
}

// bytesOf converts small classes to bytes.
func bytesOf(classes ...int) []int8 {
	out := make([]int8, len(classes))
	for i, c := range classes {
		out[i] = int8(c)
	}
	return out
}

// one converts true to 1 and false to 0.
func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// teamShows reports whether the picture shows which team has the ball.
func (f *matchFact) teamShows() bool {
	return f.team != neither && (f.live() && f.is(inPlay, atFree, atOut, atSave) || f.state == atReplay)
}

// classes returns the classes of a picture; -1 where it has none.
func (f *Fact) classes() matchClasses {
	minute := f.clock / 60 % 100
	c := matchClasses{
		state: slices.Index(states(), f.state), camera: int(f.camera), team: -1, score0: f.score[0], score1: f.score[1],
		tens: minute / 10, minute: minute % 10, kit0: slices.Index(teamNames(), f.teams[0]), kit1: slices.Index(teamNames(), f.teams[1]),
		dim: one(f.light < 0.9), tint: f.tint, stage: -1, signal: one(f.signal), shots: [4]int{-1, -1, -1, -1},
	}
	if f.plate {
		a, b := f.shots[0]%100, f.shots[1]%100
		c.shots = [4]int{a / 10, a % 10, b / 10, b % 10}
	}
	if f.teamShows() {
		c.team, c.stage = int(f.team), slices.Index(stages(), f.stage())
	} else if f.state == atCrowd {
		c.team = 0
	}
	if a := f.attempt; a != nil && f.live() && a.Contact < 2.6 {
		c.attempt = 1
		if a.Contact >= 0 {
			c.attempt = 2 + slices.Index(outcomes(), a.Outcome)
		}
	}
	switch { // of the graphics
	case f.state == atGoal && f.goal != nil && f.goal.Age > 0.7:
		c.number = f.goal.Number
	case f.attempt != nil && f.plate:
		c.number = f.attempt.Number
	}
	return c
}

// PictureTruth implements World.
func (*matchWorld) PictureTruth(f *Fact) (classes []int8, places []float32) {
	places = []float32{-9, -9, -9, -9, -9}
	if b := f.ball; b != nil && !f.covered && 0 < b[0] && b[0] < 1 && 0 < b[1] && b[1] < 1 {
		places[0], places[1] = float32(b[0]), float32(b[1])
	}
	if f.teamShows() {
		places[2], places[3] = float32(f.pitch[0]/105), float32(f.pitch[1]/68)
	}
	if f.state == inPlay {
		places[4] = float32(f.flow)
	}
	return f.classes().list(), places
}

// TextTruth implements World.
func (*matchWorld) TextTruth(w Window) []int8 {
	now, first := w.now(), w.first()
	c := now.classes()
	kit := -1
	switch c.team {
	case 0:
		kit = len(teamNames())
	case 1:
		kit = c.kit0
	case 2:
		kit = c.kit1
	}
	light := 0
	if n := lighting(w); n != nil {
		light = 1 + slices.Index([]string{"dim", "bright", "tint", "white"}, n.Kind)
	}
	turned := -1
	if first.team != neither && now.team != neither && now.state == inPlay {
		turned = one(first.team != now.team)
	}
	moved, along := movement(first, now)
	return bytesOf(c.state, c.team, kit, c.score0, c.score1, int(leader(now)), c.tens, c.minute, light, c.attempt, turned, c.stage,
		one(now.still), c.number, c.signal, moved, along, c.shots[0], c.shots[1], c.shots[2], c.shots[3])
}

// movement returns how far the ball moved and whether to the left or to the right; -1 across a cut.
func movement(first, now *Fact) (moved, along int) {
	if !first.live() || !now.live() || first.camera != now.camera || now.covered || first.covered {
		return -1, -1
	}
	dx, dy := now.pitch[0]-first.pitch[0], now.pitch[1]-first.pitch[1]
	far := float64(dx*dx) + float64(dy*dy)
	moved = one(far > 0.25) + one(far > 9)
	switch {
	case dx >= 0.5:
		along = 2
	case dx <= -0.5:
		along = 1
	}
	return moved, along
}
