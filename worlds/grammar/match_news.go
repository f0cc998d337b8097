package grammar

import (
	"strings"

	"touchline/worlds/match"
)

func (m *matchWorld) tell(d Dice, w Window, last *News, age float64) *News {
	now, kind := w.now(), kindOf(last)
	if now.is(atFree, atKick, atOut) {
		if oneOf(kind, "none", "level", "state", "lead", "clock", "clock_zero", "clock_score") && age < 4 {
			return nil
		}
		if (kind == now.state || kind == "kick_score") && 2.5 < age && age < 8 && d.chance(0.4) {
			return scoreline(d, now, true) // an order to report during pauses
		}
	}
	if now.state == atGoal {
		return scored(d, now, last, age)
	}
	if a := attempt(w); a != nil {
		if !last.is(a) {
			return a
		}
		if a.Kind == "shot" || age < 2 {
			return nil
		}
	} else if now.attempt != nil && now.live() && now.attempt.Contact < plain && !now.is(atHalf, atFull) {
		return nil // unclear
	}
	switch now.state {
	case atCrowd, atHalf, atFull, atOut:
		if kind == now.state {
			return nil
		}
		return &News{Kind: now.state, team: now.team}
	case atReplay:
		return replayed(last, age)
	case atKick:
		if strings.HasPrefix(kind, "kick") {
			return nil
		}
		return &News{Kind: Pick(d, []string{atKick, atKick, "kick_score"})}
	}
	if light := lighting(w); light != nil && (kind != light.Kind || age > 6) {
		return light
	}
	switch now.state {
	case atFree:
		if kind == atFree || now.since < 0.8 {
			return nil
		}
		return &News{Kind: atFree, team: now.team}
	case atSave:
		return nil
	}
	return play(d, w, last, age)
}

// replayed reports a replay.
func replayed(last *News, age float64) *News {
	kind := kindOf(last)
	switch {
	case strings.HasPrefix(kind, "replay"):
		return nil
	case (isGoal(kind) || kind == "joy") && age < 15:
		return &News{Kind: "replay_goal", team: last.team}
	}
	return &News{Kind: "replay"}
}

// scored reports a goal, or the celebration after it.
func scored(d Dice, now *Fact, last *News, age float64) *News {
	g := now.goal
	team := side(g.Team + 1)
	id := keyOf(g.Team, g.Number) // without the score: films show another one every few seconds
	if last != nil && last.key == id && (isGoal(last.Kind) || last.Kind == "joy") {
		silent := 0.5
		if last.Kind == "joy" {
			silent = 0.9
		}
		if age < 1.5 || d.chance(silent) {
			return nil
		}
		return &News{Kind: "joy", team: team, key: id}
	}
	mine, other := now.score[team.index()], now.score[team.other().index()]
	relation := "more"
	switch {
	case mine == other+1:
		relation = "lead"
	case mine == other:
		relation = "level"
	case mine < other:
		relation = "back"
	}
	n := &News{Kind: Pick(d, []string{"goal", "goal_score", "goal_score", "goal_score", "goal_" + relation}), team: team, key: id}
	if g.Age > 0.7 { // the banner names the player
		n.number = g.Number
	}
	return n
}

// attempt reports a shot in flight, or its outcome once it is clear.
func attempt(w Window) *News {
	now := w.now()
	a := now.attempt
	if a == nil || !now.live() || now.is(atGoal, atHalf, atFull) {
		return nil
	}
	n := &News{Kind: "shot", team: side(a.Team + 1), key: keyOf(a.Team, a.Number, now.shots[0]+now.shots[1])}
	if now.plate {
		n.number = a.Number
	}
	switch {
	case a.Contact < 0:
		if a.Age > 0.2 {
			return n
		}
	case a.Outcome != match.InGoal && plain <= a.Contact && a.Contact <= 2.6:
		n.Kind = string(a.Outcome)
		if a.Outcome == match.Saved {
			n.team = n.team.other()
		}
		return n
	}
	return nil
}

// lighting reports a change of the light between the window's first and last picture.
func lighting(w Window) *News {
	first, now := w.first(), w.now()
	if first.camera != now.camera || !now.live() || now.covered || first.covered {
		return nil
	}
	switch {
	case now.light < first.light-0.2:
		return &News{Kind: "dim"}
	case now.light > first.light+0.2:
		return &News{Kind: "bright"}
	case now.tint == first.tint:
		return nil
	case now.tint == 0:
		return &News{Kind: "white", key: keyOf(now.tint)}
	}
	return &News{Kind: "tint", key: keyOf(now.tint)}
}

// play reports the team with the ball, and the place.
func play(d Dice, w Window, last *News, age float64) *News {
	now, first, kind := w.now(), w.first(), kindOf(last)
	if now.team == neither || now.state == inPlay && now.since < 0.5 {
		return nil
	}
	turn := &News{Kind: "turn", team: now.team, zone: now.stage()}
	if last != nil && isPlayed(kind) && last.team != now.team || last == nil && turned(w) {
		return turn
	}
	if oneOf(kind, "free", "kick_off", "kick_score", "goal_kick", "half_time", "save") && age < 12 {
		return &News{Kind: "on", team: now.team, zone: now.stage()}
	}
	if first.team != neither && first.team != now.team && first.state == inPlay {
		return turn
	}
	if last != nil && tooSoon(now, last, age) {
		return nil
	}
	if d.chance(0.12) {
		return scoreline(d, now, true)
	}
	return &News{Kind: Pick(d, []string{inPlay, now.stage(), now.stage()}), team: now.team, zone: now.stage()}
}

// turned reports whether another team had the ball in the first picture of play.
func turned(w Window) bool {
	for _, f := range w {
		if f.state == inPlay && f.team != neither {
			return f.team != w.now().team
		}
	}
	return false
}

// tooSoon reports whether the last comment is too recent for another one about play.
func tooSoon(now *Fact, last *News, age float64) bool {
	if last.team == neither || !isPlayed(last.Kind) {
		return age < 1.5
	}
	return age < 3 || last.zone == now.stage() && age < 5
}

// scoreline reports the score or the time.
func scoreline(d Dice, now *Fact, clock bool) *News {
	a, b := now.score[0], now.score[1]
	kinds := []string{"lead", "lead", "state"}
	switch {
	case a == 0 && b == 0:
		kinds = []string{"none"}
	case a == b:
		kinds = []string{"level", "state"}
	}
	if clock && now.clock < 60 {
		kinds = append(kinds, "clock_zero")
	} else if clock {
		kinds = append(kinds, "clock", "clock_score")
	}
	return &News{Kind: Pick(d, kinds), team: leader(now), key: keyOf(a, b)}
}

// leader returns the team with more goals.
func leader(now *Fact) side {
	switch a, b := now.score[0], now.score[1]; {
	case a > b:
		return home
	case a < b:
		return away
	}
	return neither
}
