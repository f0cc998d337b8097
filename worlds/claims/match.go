package claims

import (
	"slices"
	"strings"

	"touchline/worlds"
	"touchline/worlds/match"
)

// team returns the index of a team by its shirt colour, false if it does not play. Sky is a light blue: if no other blue team plays,
// "blue" also means Sky.
func team(name string, m *match.Truth) (int, bool) {
	for i, n := range m.Teams {
		if strings.EqualFold(n, name) {
			return i, true
		}
	}
	if name == "blue" {
		return team("sky", m)
	}
	return -1, false
}

// sides returns the teams of a claim. acts is -1 if the claim names no team. ok is false if one of the teams does not play.
func sides(c Claim, m *match.Truth) (acts int, ok bool) {
	acts, other, ok := -1, -1, true
	if c.Team != "" {
		acts, ok = team(c.Team, m)
	}
	if c.Other != "" && ok {
		other, ok = team(c.Other, m)
	}
	switch {
	case acts >= 0 && acts == other:
		return acts, false
	case acts < 0 && other >= 0:
		acts = 1 - other
	}
	return acts, ok
}

// fits reports whether a claim's team and shirt number match a player.
func fits(c Claim, acts int, p match.Player) bool {
	return (acts < 0 || acts == p.Team) && (c.Number < 0 || c.Number == p.Number)
}

// tellsMatch reports whether a claim reports an event of the match.
func (m *moment) tellsMatch(c Claim, e worlds.Event) bool {
	x := e.Match
	acts, ok := sides(c, m.now.Match)
	if !ok || x == nil {
		return false
	}
	var p match.Player
	if x.Team != nil {
		p = match.Player{Team: *x.Team, Number: x.Number}
	}
	switch c.Kind {
	case Goal, Joy:
		return x.Kind == match.Goal && fits(c, acts, p)
	case Score, Lead, Level: // the result of a goal
		return x.Kind == match.Goal && m.any(func(t worlds.Truth) bool { return m.holdsMatch(c, t) })
	case Shot:
		return x.Kind == match.ShotAtGoal && fits(c, acts, p)
	case Post:
		return x.Kind == match.Post && fits(c, acts, p)
	case Wide:
		return x.Kind == match.Wide && fits(c, acts, p)
	case Save:
		return x.Kind == match.Save && fitsSave(c, m.now.Match, p)
	case KickOff:
		return x.Kind == match.KickOff && (acts < 0 || acts == p.Team)
	case FreeKick:
		return x.Kind == match.FreeKick && (acts < 0 || acts == p.Team)
	case Still: // an interruption of play
		return x.Kind == match.FreeKick
	case Cut:
		return x.Kind == match.Cut && c.Place == ""
	case Flash:
		return x.Kind == match.Goal
	case Banner:
		return slices.Contains([]match.Kind{match.Goal, match.HalfTime, match.FullTime, match.Save, match.Post, match.Wide}, x.Kind)
	case HalfTime, FullTime, Crowd, Replay, Dim:
		return string(x.Kind) == c.Kind
	case Turn, Ball, Way, Own, Mid, Final, Box:
		// The team must still have the ball, and be there: see heldBy and zone.
		return x.Kind == match.Turn && acts >= 0 && acts == p.Team &&
			m.any(func(t worlds.Truth) bool { return m.holdsMatch(c, t) })
	case Bright:
		return x.Kind == match.Brighten
	case Tint:
		return x.Kind == match.Tint && x.Tint == tintOf(c.Colour)
	case White:
		return x.Kind == match.Tint && x.Tint == "white"
	}
	return false
}

// fitsSave compares a claim about a save with the shooter: its team is the goalkeeper's, its other team and shirt number are the
// shooter's.
func fitsSave(c Claim, m *match.Truth, shooter match.Player) bool {
	acts, _ := sides(c, m)
	return (acts < 0 || acts == 1-shooter.Team) && (c.Number < 0 || c.Number == shooter.Number || c.Number == 1)
}

func tintOf(colour string) string {
	if colour == "sky" {
		return "blue"
	}
	return colour
}

// still is the mean speed of the players, in picture widths per second, below which they count as standing.
const still = 0.02

// holdsMatch reports whether a claim is true of a picture.
func (m *moment) holdsMatch(c Claim, t worlds.Truth) bool {
	x := t.Match
	acts, ok := sides(c, x)
	if !ok {
		return false
	}
	switch c.Kind {
	case Score, Lead, Trail, Level, None, Count, ShotsCount:
		return holdsScore(c, x, acts)
	case Clock, ClockLeft, ClockZero, Half, Half2:
		return holdsClock(c, x)
	case Shot, Save, Post, Wide:
		return holdsAttempt(c, x, acts)
	case Joy:
		return x.Phase == match.Celebration && (acts < 0 || acts == x.Goal.Team)
	case KickOff:
		return x.Phase == match.AtKickOff && (acts < 0 || x.Possession != nil && *x.Possession == acts)
	case FreeKick:
		return x.Phase == match.AtFreeKick && (acts < 0 || *x.Possession == acts)
	case GoalKick:
		return x.Phase == match.AtGoalKick && (acts < 0 || *x.Possession == acts)
	case HalfTime:
		return x.Phase == match.AtHalfTime
	case FullTime:
		return x.Phase == match.AtFullTime
	case Crowd:
		return x.Camera == match.ShotCrowd
	case Replay:
		return !x.Live
	case Still:
		return x.Phase != match.Play || x.Speed < still
	case Cut:
		name, _ := x.Camera.MarshalText()
		return string(name) == c.Place
	case Ball, Turn, Own, Mid, Final, Box, Way:
		return heldBy(c, x, acts) && zone(c.Kind, x)
	case Dim:
		return t.Light < 0.95
	case Bright:
		return t.Light > m.film.Truth(max(0, t.At-5*step)).Light
	case Tint:
		return t.Tint == tintOf(c.Colour)
	case White:
		return t.Tint == "white"
	case Banner:
		return x.Banner || x.Plate != ""
	case Teams:
		return true // both play
	}
	return false
}

func holdsScore(c Claim, x *match.Truth, acts int) bool {
	a, b := x.Score[0], x.Score[1]
	if c.Kind == Trail && acts >= 0 {
		acts = 1 - acts
	}
	if acts == 1 {
		a, b = b, a
	}
	switch c.Kind {
	case Level:
		return a == b
	case None:
		return a == 0 && b == 0
	case Count:
		return acts < 0 && c.Count == a+b || acts >= 0 && c.Count == a
	case ShotsCount:
		i := max(0, acts)
		return c.Count == x.Shots[i] && (c.More < 0 || c.More == x.Shots[1-i])
	case Score:
		if c.Count >= 0 {
			return c.Count == a && c.More == b
		}
		return c.Score == [2]int{a, b} || acts < 0 && c.Score == [2]int{max(a, b), min(a, b)}
	}
	ahead := a > b || acts < 0 && a != b // Lead and Trail
	switch {
	case c.Score[0] >= 0: // in any order
		return ahead && max(c.Score[0], c.Score[1]) == max(a, b) && min(c.Score[0], c.Score[1]) == min(a, b)
	case c.Count >= 0:
		return ahead && c.Count == a-b
	}
	return ahead
}

// holdsClock compares a claimed time with the clock on the board.
func holdsClock(c Claim, x *match.Truth) bool {
	const slack = 10 // s: the board runs ten times as fast as the world
	switch c.Kind {
	case Half:
		return x.Half == 1
	case Half2:
		return x.Half == 2
	case ClockZero:
		return x.Clock < 60+slack
	case ClockLeft:
		left := 45*60*x.Half - x.Clock
		return left/60 == c.Count || (left+59)/60 == c.Count
	}
	if c.More >= 0 {
		d := c.Count*60 + c.More - x.Clock
		return d <= slack && d >= -slack
	}
	minute := x.Clock / 60
	switch {
	case strings.Contains(c.Text, " th"): // the third minute begins at 2:00, but many read 3:10 that way
		return c.Count == minute || c.Count == minute+1
	case roughly(c.Text):
		return c.Count >= minute-1 && c.Count <= minute+1
	}
	return c.Count == minute
}

// roughly reports whether a number is approximate.
func roughly(text string) bool {
	return slices.ContainsFunc(strings.Fields(text), func(w string) bool {
		return slices.Contains([]string{"around", "about", "nearly", "almost", "casi", "unos"}, w)
	})
}

func holdsAttempt(c Claim, x *match.Truth, acts int) bool {
	a := x.Attempt
	if a == nil {
		return false
	}
	const before = -0.1 // s: the ball has almost arrived
	switch c.Kind {
	case Shot:
		return fits(c, acts, a.Player)
	case Save:
		return a.Outcome == match.Saved && a.Contact > before && fitsSave(c, x, a.Player)
	case Post:
		return a.Outcome == match.AtPost && a.Contact > before && fits(c, acts, a.Player)
	}
	return a.Outcome == match.WideOfIt && a.Contact > before && fits(c, acts, a.Player)
}

// heldBy reports whether the claim's team has the ball and plays in the claim's direction.
func heldBy(c Claim, x *match.Truth, acts int) bool {
	if c.Kind == Way && acts < 0 {
		return x.Direction == c.Way || x.Flow == c.Way
	}
	if c.Kind == Ball && acts < 0 && c.Number < 0 { // play goes on
		return x.Phase == match.Play || x.Phase == match.AtKickOff
	}
	switch x.Phase {
	case match.Play, match.AtFreeKick, match.AfterSave, match.AtGoalKick:
	case match.AtKickOff, match.Celebration, match.AtHalfTime, match.AtFullTime:
		return false
	}
	if x.Possession == nil || acts >= 0 && acts != *x.Possession || c.Way != match.None && c.Way != attacks(x) {
		return false
	}
	if c.Number < 0 {
		return true
	}
	who := []int{}
	switch {
	case x.Carrier != nil:
		who = append(who, x.Carrier.Number)
	case x.Pass != nil:
		who = append(who, x.Pass.From, x.Pass.To)
	}
	if x.Attempt != nil {
		who = append(who, x.Attempt.Number)
	}
	return slices.Contains(who, c.Number)
}

// attacks returns the side that the team with the ball attacks; team 0 plays to the right.
func attacks(x *match.Truth) match.Direction {
	if x.Direction == match.None && x.Possession != nil {
		return match.Direction(1 - 2**x.Possession)
	}
	return x.Direction
}

// InBox reports whether play is clearly near the goal.
func InBox(x *match.Truth) bool {
	const plain = 15 // m: tolerance beyond the limits of a claim
	y := *x
	y.Pitch[0] -= plain * float64(attacks(x))
	return x.Since > 1 && zone(Box, &y)
}

// zone reports whether play is in the zone of a kind of claim, in metres from the goal of the team with the ball.
func zone(k Kind, x *match.Truth) bool {
	at := x.Pitch[0]
	if attacks(x) == match.Left {
		at = 105 - at
	}
	switch k {
	case Own:
		return at <= 54
	case Mid:
		return at >= 34 && at <= 72
	case Final:
		return at >= 50
	case Box:
		return at >= 66
	}
	return true
}
