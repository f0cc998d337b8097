package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/media/window"
	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/match"
	"touchline/worlds/yard"
)

// order is an order or a question that is given once, at a moment of a film, without previous comments.
type order struct {
	at     time.Duration
	kind   string
	text   string
	team   string // of the order, as in claims
	number int
	colour string
	boxed  bool // the pictures have black bars
}

// question reports whether an order always requires an answer.
func (o order) question() bool { return strings.HasPrefix(o.kind, "q_") || o.kind == "score" }

// schedule draws a film's orders: several of each kind, in order of time.
func (c *Command) schedule(v *viewing) {
	dice := rand.New(rand.NewPCG(v.seed, 0x6f7264657273))
	each := func(all int) int { return (all + c.Seeds - 1) / c.Seeds }
	for _, kind := range v.book.Kinds() {
		for range each(c.Orders) {
			v.orders = append(v.orders, c.order(v, dice, kind))
		}
	}
	if c.Letterbox > 0 && v.world.Name() == worlds.Match {
		for _, kind := range []string{"q_score", "q_clock"} {
			for range each(c.Orders) {
				o := c.order(v, dice, kind)
				o.boxed = true
				v.orders = append(v.orders, o)
			}
		}
	}
	slices.SortFunc(v.orders, func(a, b order) int { return int(a.at - b.at) })
}

// inBars marks the kinds of questions about pictures with bars.
const inBars = " in bars"

// order draws one order; half of the orders about events come soon after one.
func (c *Command) order(v *viewing, dice *rand.Rand, kind string) order {
	const margin = 5 * time.Second
	o := order{kind: kind, at: margin + time.Duration(dice.Int64N(int64(v.length-2*margin)))}
	o.colour = anyCoat(dice)
	if e := v.happened(kind, o.colour, margin, v.length-margin); len(e) > 0 && dice.IntN(2) == 0 {
		one := e[dice.IntN(len(e))]
		from, to := plain(one)
		o.at = one.At() + from + time.Duration(dice.Int64N(int64(to-from)))
	}
	truth := v.world.Truth(o.at)
	name := ""
	if truth.Match != nil {
		name = truth.Match.Teams[dice.IntN(2)]
		o.team, o.number = strings.ToLower(name), 1+dice.IntN(11)
	}
	o.text = v.slots.fill(v.book.Order(dice, kind, !c.Trained), name, o)
	return o
}

// anyCoat draws the colour of a coat.
func anyCoat(dice *rand.Rand) string {
	coats := yard.Coats()
	return coats[dice.IntN(len(coats))]
}

// slots returns the words for the names in orders, by language.
type slots struct{ spanish bool }

var (
	spanishTeams = map[string]string{
		"Red": "Rojo", "Blue": "Azul", "Yellow": "Amarillo", "White": "Blanco", "Violet": "Violeta", "Sky": "Celeste", "Orange": "Naranja",
	}
	spanishColours = map[string][2]string{ // singular and plural
		"red": {"rojo", "rojos"}, "blue": {"azul", "azules"}, "green": {"verde", "verdes"}, "yellow": {"amarillo", "amarillos"},
		"white": {"blanco", "blancos"}, "black": {"negro", "negros"}, "orange": {"naranja", "naranjas"},
	}
	numbers = map[bool][]string{
		false: strings.Fields("zero one two three four five six seven eight nine ten eleven"),
		true:  strings.Fields("cero uno dos tres cuatro cinco seis siete ocho nueve diez once"),
	}
)

func (s slots) fill(text, team string, o order) string {
	article, colour, several := "a", o.colour, o.colour
	if o.colour == "orange" {
		article = "an"
	}
	switch {
	case s.spanish:
		team = spanishTeams[team]
		colour, several = spanishColours[o.colour][0], spanishColours[o.colour][1]
	case team == "Sky":
		team = "Sky Blue"
	}
	return strings.NewReplacer(
		"{T}", team, "{t}", strings.ToLower(team), "{n}", numbers[s.spanish][o.number], "{N}", strconv.Itoa(o.number),
		"{c}", colour, "{s}", several, "{a}", article, "{A}", strings.ToUpper(article[:1])+article[1:],
	).Replace(text)
}

// obey gives the orders that are due on the present window.
func (v *viewing) obey(ctx context.Context, at time.Duration) error {
	for len(v.orders) > 0 && v.orders[0].at <= at {
		o := v.orders[0]
		v.orders = v.orders[1:]
		frames := v.window.Select(v.cfg.Agent.Frames, v.cfg.Agent.Stride)
		key := o.kind
		if o.boxed {
			key += inBars
			frames = boxed(frames, v.letterbox)
		}
		prompt := prompt.Look{
			System: v.profile.Prompt, Instruction: o.text, Spoken: true, Change: window.Whole, Frames: look.Pictures(frames),
		}.Prompt(v.cfg.Inference.Config, v.model.Capabilities())
		text, _, err := say(ctx, v.session, prompt)
		if err != nil {
			return err
		}
		right := v.follows(o, text, at)
		s := v.followed[key]
		s.Count(right)
		if !right {
			v.disobeyed = append(v.disobeyed, fmt.Sprintf("seed %d, %.1f s: %s: %s -> %s", v.seed, at.Seconds(), key, o.text, text))
		}
		v.followed[key] = s
	}
	return nil
}

// follows reports whether an answer follows the order truthfully.
func (v *viewing) follows(o order, text string, at time.Duration) bool {
	if claims.Silent(text) {
		return v.maySilent(o, at)
	}
	all := claims.Parse(text, v.language, v.world.Name())
	place := map[string]string{"q_gate": "gate", "q_door": "door"}[o.kind]
	for i, c := range all {
		if place != "" && c.Place == "" {
			all[i].Place = place
			if c.Kind == claims.Empty {
				all[i].Kind = claims.Nobody
			}
		}
	}
	verdicts := claims.Judge(all, v.world, at)
	has := func(kinds ...claims.Kind) bool {
		return slices.ContainsFunc(verdicts, func(x claims.Verdict) bool { return slices.Contains(kinds, x.Claim.Kind) })
	}
	for _, x := range verdicts {
		if x.Judged && !x.True {
			return false
		}
	}
	switch o.kind {
	case "quiet":
		return false
	case "cannot":
		return has(claims.Cannot)
	case "short":
		const short = 10 // words
		return len(strings.Fields(text)) <= short && !has(claims.Cannot)
	case "all", "boil", "calm":
		return !has(claims.Cannot)
	case "nodog":
		return !has(claims.Dog, claims.Cannot)
	case "nocat":
		return !has(claims.Cat, claims.Cannot)
	case "team", "player":
		return !has(claims.Cannot) && v.aboutOnly(o, verdicts)
	case "goals": // or the result of a goal
		told := len(v.happened(o.kind, "", at-goalNews, at)) > 0 && has(v.topics["q_score"].news...)
		return told || has(v.topics[o.kind].news...)
	case "coat":
		other := func(x claims.Verdict) bool { return x.Claim.Colour != "" && x.Claim.Colour != o.colour }
		return has(v.topics[o.kind].news...) && !slices.ContainsFunc(verdicts, other)
	case "q_coat":
		there := claims.Judge([]claims.Claim{{Kind: claims.Person, Colour: o.colour}}, v.world, at)[0].True
		return has(v.topics[o.kind].news...) || has(claims.Cannot) && !there
	case "q_shots":
		return has(claims.ShotsCount) || has(claims.Cannot) && v.world.Truth(at).Match.Plate == ""
	case "q_ball", "q_way":
		return has(v.topics[o.kind].news...) || !v.played(at)
	}
	return has(v.topics[o.kind].news...)
}

// aboutOnly reports whether all claims are about the order's team, or its player.
func (v *viewing) aboutOnly(o order, verdicts []claims.Verdict) bool {
	for _, x := range verdicts {
		c := x.Claim
		about := c.Team
		if c.Kind == claims.Save && c.Other != "" && c.Team == "" {
			about = c.Other
		}
		if about != "" && about != o.team && (c.Other == "" || c.Other != o.team) {
			return false
		}
		if o.kind == "player" && c.Number >= 0 && c.Number != o.number {
			return false
		}
	}
	return len(verdicts) > 0
}

// played reports whether a team had the ball.
func (v *viewing) played(at time.Duration) bool {
	t := v.world.Truth(at).Match
	return t.Live && t.Possession != nil &&
		slices.Contains([]match.Phase{match.Play, match.AtFreeKick, match.AfterSave, match.AtGoalKick}, t.Phase)
}

// maySilent reports whether silence is correct.
func (v *viewing) maySilent(o order, at time.Duration) bool {
	switch {
	case o.question(), o.kind == "cannot":
		return false
	case o.kind == "ball":
		return !v.played(at)
	case o.kind == "danger":
		return !v.played(at) || !claims.InBox(v.world.Truth(at).Match)
	}
	return !slices.ContainsFunc(v.happened(o.kind, o.colour, at-plainMost, at+plainMost), func(e worlds.Event) bool {
		from, to := plain(e)
		return e.At()+from <= at && at <= e.At()+to
	})
}

// plainMost bounds the results of plain, before and after the beginning of an event.
const plainMost = 3 * time.Second

// plain returns the interval after an event's beginning in which an order for it needs a report: while a look shows it clearly. A look
// shows a change only if it has pictures from before it.
func plain(e worlds.Event) (from, to time.Duration) {
	const ms = time.Millisecond
	switch e.Kind() {
	case string(match.Dim), string(match.Brighten), string(match.Tint): // within 0.6 s
		return 500 * ms, 700 * ms
	case string(match.FreeKick): // all stand, and the referee's arm is up
		return time.Second, 2 * time.Second
	case string(yard.LampOn): // it warms up for 3 s
		return 400 * ms, 1500 * ms
	case string(yard.LampFails): // it flickers for 2.5 s
		return 600 * ms, 2000 * ms
	case string(yard.Dusk), string(yard.Dawn): // slow
		return 1500 * ms, 2500 * ms
	case string(yard.Arrive):
		if e.Yard.Place == "parking" { // at first, getting out of a car looks like getting in
			return time.Second, 2 * time.Second
		}
	case string(yard.Leave): // then the person is gone
		return -300 * ms, 400 * ms
	}
	return 600 * ms, 1600 * ms
}

// goalNews is how long a goal is news.
const goalNews = 20 * time.Second

// shown returns the truth of a look's pictures, the newest first.
func (v *viewing) shown(at time.Duration) (out []worlds.Truth) {
	apart := time.Duration(float64(v.cfg.Agent.Stride) / v.cfg.Media.CaptureFPS * float64(time.Second))
	for range v.cfg.Agent.Frames {
		out = append(out, v.world.Truth(max(0, at)))
		at -= apart
	}
	return out
}

// addOrders adds the results of a film's orders.
func (r *Result) addOrders(v *viewing) {
	if r.Orders == nil {
		r.Orders = map[string]claims.Share{}
	}
	for kind, s := range v.followed {
		r.Orders[kind] = r.Orders[kind].Plus(s)
	}
	r.Disobeyed = append(r.Disobeyed, v.disobeyed...)
}
