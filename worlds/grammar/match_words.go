package grammar

import (
	"strconv"

	"touchline/worlds/match"
)

// values fill the templates; a slot without a value in the pictures has none.
func (*matchWorld) values(f *matchFact, n *News, way match.Direction, language string) values {
	var teams, score [2]string
	for i := range teams {
		teams[i], score[i] = teamName(f.teams[i], language), goals(f.score[i], language)
	}
	tint, none, ways, things := tints()[f.tint], "none", [2]string{"left", "right"}, noun{"goal", "goals", "no goals"}
	if language == spanish {
		tint, none, ways, things = spanishTints()[f.tint], "ninguno", [2]string{"izquierda", "derecha"}, noun{"gol", "goles", "ningún gol"}
	}
	out := values{
		"st": teams[0] + " " + score[0] + ", " + teams[1] + " " + score[1], "hl": result(f.score, language),
		"m": strconv.Itoa(f.clock / 60 % 100), "c": tint, "0": teams[0], "1": teams[1],
		"k": things.counted(f.score[0]+f.score[1], language),
	}
	if n.team != neither {
		mine, other := n.team.index(), n.team.other().index()
		out["T"], out["O"] = teams[mine], teams[other]
		switch way {
		case match.Left:
			out["w"] = ways[0]
		case match.Right:
			out["w"] = ways[1]
		case match.None:
		}
		if n.Kind == "shots_count" {
			out["k"], out["j"] = digitsOr(f.shots[mine], none), digitsOr(f.shots[other], none)
		}
	}
	if n.number > 0 {
		out["n"] = number(n.number, language)
	}
	return out
}

// digitsOr returns a number in digits, or a word for none.
func digitsOr(n int, none string) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// Word implements World.
func (m *matchWorld) Word(d Dice, w Window, n *News, v Voice, limit int, avoid string) string {
	now, texts, way := w.now(), m.wordings(v.Language), w.now().way
	if isGoal(n.Kind) && now.goal != nil && now.state == atGoal {
		way = match.Left
		if now.pitch[0] > 52 {
			way = match.Right
		}
	}
	if n.Kind == "goal" && limit < 10 {
		n = n.as("goal_score")
	}
	fill := m.values(now.matchFact, n, way, v.Language)
	text := texts.say(d, n.Kind, v.Register, fill, limit, avoid)
	if n.Kind == "goal" { // a goal is always reported with the score
		return text + " " + capitals(fill["hl"]+Pick(d, []string{".", "!"}))
	}
	if limit < 18 || d.chance(0.65) {
		return text
	}
	more := besides(d, now, n)
	if more == nil {
		return text
	}
	return text + " " + texts.say(d, more.Kind, v.Register, m.values(now.matchFact, more, way, v.Language), 8, "")
}

// besides returns the content of a second sentence.
func besides(d Dice, now *Fact, n *News) *News {
	switch {
	case isGoal(n.Kind) && now.goal != nil && now.goal.Age > 0.8:
		return &News{Kind: "joy", team: n.team}
	case isPlayed(n.Kind) && n.Kind != "shot":
		if d.chance(0.35) {
			return scoreline(d, now, true)
		}
		if n.Kind != now.stage() {
			return &News{Kind: now.stage(), team: n.team}
		}
	case oneOf(n.Kind, "save", "post", "wide", "free", "crowd", "replay_goal"):
		return scoreline(d, now, false)
	}
	return nil
}
