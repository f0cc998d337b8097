package grammar

import (
	"slices"
	"strconv"
	"strings"

	"touchline/worlds/match"
)

// matchOrders are the tables of the match's orders.
func matchOrders() *orderTables {
	list := strings.Fields
	return &orderTables{
		filters: map[string][]string{
			"goals": goalKinds(), "shots": append(list("shot save post wide"), goalKinds()...), "keepers": list("save"),
			"lights": list("dim bright tint white"), "crowd": list("crowd"), "replays": list("replay replay_goal"),
			"restarts": list("free goal_kick kick_off kick_score half_time full_time"), "danger": list("box"), "team": nil, "player": nil,
			"dim": list("dim"), "bright": list("bright"), "free": list("free"), "half_time": list("half_time"),
			"kick_off": list("kick_off kick_score"),
		},
		weights: map[string]int{
			"goals": 4, "score": 3, "ball": 3, "team": 3, "q_score": 4, "q_leads": 5, "q_goals": 5, "q_clock": 5, "q_ball": 4, "cannot": 3,
			"q_shots": 3, "q_way": 2, "q_teams": 2, "restarts": 2,
		},
		near:        split("goals shots keepers", "lights dim bright", "crowd replays", "restarts free half_time kick_off"),
		elsewhere:   list("goals q_score q_leads q_goals q_clock q_ball q_shots shots keepers replays score ball team"),
		rules:       list("goals shots keepers lights crowd replays restarts dim bright free half_time kick_off"),
		momentShare: 0.25,
	}
}

// questions maps the orders that require an answer to the answer's kind.
func questions() map[string]string {
	return map[string]string{
		"q_score": "state", "q_leads": "lead", "q_goals": "goals_count", "q_clock": "clock", "q_half": "half", "q_ball": "ball",
		"q_teams": "teams", "q_way": "way", "q_shots": "shots_count",
	}
}

// order draws the team and the player, often ones that play in the window.
func (m *matchWorld) order(d Dice, kind string, a asking) Order {
	o := Order{Kind: kind, team: side(1 + d.IntN(2)), number: d.from(1, 12)}
	var teams []string
	if a.window == nil {
		teams = sample(d, teamNames(), 2)
	} else {
		now := a.window.now()
		if x := now.attempt; kind == "player" && x != nil && d.chance(0.7) {
			o.team, o.number = side(x.Team+1), x.Number
		}
		teams = now.teams[:]
	}
	team := teamName(teams[o.team.index()], a.language)
	o.Text = strings.NewReplacer(
		"{T}", team, "{t}", strings.ToLower(team), "{n}", number(o.number, a.language), "{N}", strconv.Itoa(o.number),
	).Replace(a.text(d, m.wordings(a.language), kind))
	return o
}

func (m *matchWorld) follow(d Dice, o Order, w Window, last *News, age float64) *News {
	now, kind := w.now(), kindOf(last)
	if o.Kind == "score" {
		if oneOf(kind, "state", "lead", "level", "none") && age < 55 {
			return nil
		}
		return scoreline(d, now, false)
	}
	if _, asked := m.questions[o.Kind]; asked || o.Kind == "ball" {
		n := m.answer(d, o.Kind, now)
		if n == nil || last.is(n) && (n.Kind != "ball" && n.Kind != "way" || last.team == n.team) {
			return nil
		}
		return n
	}
	var fresh *News
	if o.Kind == "shots" {
		fresh = m.Holds(d, o, w)
	} else {
		fresh = m.passing(d, o, w)
	}
	if fresh == nil || last != nil && m.stale(o, fresh, last, age) {
		return nil
	}
	return fresh
}

// stale reports whether the last comment under an order reported news, or is too recent.
func (*matchWorld) stale(o Order, fresh, last *News, age float64) bool {
	again := 9.0
	if o.Kind == "danger" {
		again = 3
	}
	same, none := fresh.Kind == last.Kind, fresh.key == key{}
	switch {
	case same && !none && fresh.key == last.key,
		isGoal(last.Kind) && isGoal(fresh.Kind) && last.key == fresh.key,
		same && none && age < again:
		return true
	}
	return o.Kind == "team" && age < 3 && isPlayed(fresh.Kind)
}

// passing returns the first news of a window that an order allows.
func (m *matchWorld) passing(d Dice, o Order, w Window) *News {
	now := w.now()
	found := []*News{attempt(w), lighting(w)}
	if now.state == inPlay && now.team != neither && now.since >= 0.5 && now.live() && !now.covered {
		kind := "box"
		if now.stage() != "box" {
			kind = Pick(d, []string{now.stage(), inPlay})
		}
		found = append(found, &News{Kind: kind, team: now.team, zone: now.stage()})
	}
	if now.state != inPlay && (now.state != atFree || now.since >= 0.8) {
		found = slices.Insert(found, 0, m.tell(d, w, nil, long))
	}
	for _, n := range found {
		if n != nil && m.passes(o, n) {
			return n
		}
	}
	return nil
}

// long is the age of a comment that was never made.
const long = 99

// passes reports whether an order allows news.
func (m *matchWorld) passes(o Order, n *News) bool {
	switch o.Kind {
	case "team":
		return n.team == o.team && n.team != neither && !oneOf(n.Kind, "crowd", "replay", "replay_goal")
	case "player":
		shooter := n.team
		if n.Kind == "save" && n.team != neither {
			shooter = n.team.other()
		}
		return n.number > 0 && n.number == o.number && shooter == o.team
	}
	return slices.Contains(m.tables.filters[o.Kind], n.Kind)
}

// answer returns the answer to a question, and the content that the order "ball" follows.
func (m *matchWorld) answer(d Dice, kind string, now *Fact) *News {
	n := &News{Kind: m.questions[kind], key: key{text: kind, count: 2, numbers: [3]int{now.score[0], now.score[1]}}}
	score := keyOf(now.score[0], now.score[1])
	switch kind {
	case "q_ball", "ball", "q_way":
		return m.onBall(d, kind, now)
	case "q_leads":
		n = &News{Kind: "lead", team: leader(now), key: score}
		if n.team == neither && now.score[0] == 0 {
			n.Kind = "none"
		} else if n.team == neither {
			n.Kind = "level"
		}
	case "q_score":
		return scoreline(d, now, false)
	case "q_goals":
		if now.score == [2]int{} {
			n.Kind = "goals_none"
		}
	case "q_clock":
		n.key = keyOf(now.clock / 60)
		if now.clock < 60 {
			n.Kind = "clock_zero"
		}
	case "q_half":
		n.key = keyOf(now.half)
		switch {
		case now.is(atHalf, atFull):
			n.Kind = now.state
		case now.half >= 2:
			n.Kind = "half2"
		}
	case "q_shots":
		if !now.plate {
			return &News{Kind: cannotOrder, key: keyOf(0)}
		}
		n.team, n.key = home, keyOf(now.shots[0], now.shots[1])
	}
	return n
}

// onBall reports which team has the ball, or where play goes.
func (m *matchWorld) onBall(d Dice, kind string, now *Fact) *News {
	follows := kind == "ball"
	switch {
	case now.state == atCrowd && follows:
		return nil
	case now.state == atCrowd:
		return &News{Kind: "noball"}
	case now.team == neither, !now.live(), !now.is(inPlay, atFree, atSave, atOut), follows && now.state == inPlay && now.since < 0.5:
		if follows {
			return nil
		}
		if n := m.tell(d, Window{now}, nil, long); n != nil {
			return n
		}
		return &News{Kind: "state", key: keyOf(now.score[0], now.score[1])}
	}
	n := &News{Kind: "ball", team: now.team, key: keyOf(now.team.index())}
	if kind == "q_way" && now.way != match.None {
		n.Kind = "way"
	}
	return n
}

// Holds implements World. A shot also holds while its outcome is not clear.
func (m *matchWorld) Holds(d Dice, o Order, w Window) *News {
	if n := m.passing(d, o, w); n != nil {
		return n
	}
	now, a := w.now(), w.now().attempt
	if a == nil || o.Kind != "shots" || !now.live() || now.is(atHalf, atFull) || a.Age <= 0.2 || a.Contact > 2.6 {
		return nil
	}
	n := &News{Kind: "shot", team: side(a.Team + 1)}
	if now.plate {
		n.number = a.Number
	}
	return n
}

// unclear is always false: in the match, pictures decide.
func (*matchWorld) unclear(Order, Window) bool { return false }

func (*matchWorld) moments(w Window) []string {
	var out []string
	if now := w.now(); now.state != inPlay {
		out = append(out, now.state)
	}
	if n := attempt(w); n != nil {
		out = append(out, n.Kind)
	}
	if lighting(w) != nil {
		out = append(out, "light")
	}
	return out
}

func (*matchWorld) style(d Dice, profile string, n *News) string {
	big := isGoal(n.Kind) || oneOf(n.Kind, "joy", "save", "post", "wide", "shot", "crowd")
	weights := []int{9, 1, 0}
	switch {
	case profile == "sports" && big:
		weights = []int{1, 5, 5}
	case profile == "sports":
		weights = []int{5, 5, 1}
	case profile == "default" && big:
		weights = []int{3, 6, 2}
	case profile == "default":
		weights = []int{6, 4, 0}
	case big:
		weights = []int{7, 3, 0}
	}
	return Weighted(d, []string{calm, lively, boil}, weights)
}
