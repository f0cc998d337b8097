package grammar

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"touchline/agent/prompt"
)

// alerts draws a look for alert rules, with their numbers; some may hold. Many resemble a rule that holds, so that the model
// must learn the difference.
func (g *Grammar) alerts(d Dice, s Setting, world World, w Window) Text {
	wanted := Pick(d, []int{1, 1, 2, 3, 3, 4, 6, 8})
	orders := rules(d, world, w, s.Language, wanted)
	d.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	all := numbers(d, wanted)
	if d.chance(0.2) {
		never := g.never(d, world, s.Language)
		orders[d.IntN(len(orders))] = never
	}
	t := Text{System: s.System}
	var fired []Fired
	var asked []prompt.Rule
	for k, o := range orders {
		asked = append(asked, prompt.Rule{Number: all[k], When: o.Text})
		var n *News
		if o.Kind != "" {
			n = world.Holds(d, o, w)
		}
		t.Asked = append(t.Asked, Asked{slices.Index(g.kinds, o.Kind), one(n != nil)})
		if n != nil {
			reason := world.Word(d, w, n, Voice{s.Language, calm}, 8, "")
			fired = append(fired, Fired{all[k], reason})
		}
	}
	t.Text, t.Answer = prompt.RulesText(asked), FiredText(fired...)
	return t
}

// rules draws distinct rules for a window in which it is clear whether they hold.
func rules(d Dice, world World, w Window, language string, wanted int) []Order {
	tables := world.orders()
	alone := d.chance(0.4) // the similar rules, without the one that holds
	near := 0.4
	if alone {
		wanted, near = wanted+1, 0.9
	}
	var out []Order
	for len(out) < wanted {
		kinds := tables.rules
		if len(out) > 0 && d.chance(near) {
			kinds = tables.near[slices.IndexFunc(tables.near, func(all []string) bool { return slices.Contains(all, out[0].Kind) })]
		}
		a := asking{language: language, window: w, rule: true}
		o := world.order(d, Pick(d, kinds), a)
		if len(out) == 0 && d.chance(0.6) { // most rules hold rarely
			for range 12 {
				if world.Holds(d, o, w) != nil {
					break
				}
				o = world.order(d, Pick(d, tables.rules), a)
			}
		}
		if !slices.ContainsFunc(out, func(r Order) bool { return r.Text == o.Text }) && !world.unclear(o, w) {
			out = append(out, o)
		}
	}
	if alone {
		return out[1:]
	}
	return out
}

// numbers draws the numbers of rules, in order; there may be gaps.
func numbers(d Dice, wanted int) []int {
	most := max(wanted, Pick(d, []int{wanted, 9, 16}))
	all := make([]int, most)
	for i := range all {
		all[i] = i + 1
	}
	return slices.Sorted(slices.Values(sample(d, all, wanted)))
}

// never draws a rule that never holds: about the other world, or about an event that neither has.
func (g *Grammar) never(d Dice, world World, language string) Order {
	a := asking{language: language, rule: true}
	other := g.elsewhere(world)
	var o Order
	if d.chance(0.5) {
		o = world.order(d, cannotOrder, a)
	} else {
		tables := other.orders()
		kinds := slices.DeleteFunc(slices.Clone(tables.elsewhere), func(kind string) bool { return !slices.Contains(tables.rules, kind) })
		o = other.order(d, Pick(d, kinds), a)
	}
	o.Kind = ""
	return o
}

// Fired is the number of a rule that holds.
type Fired struct {
	Rule   int    `json:"rule"`
	Reason string `json:"reason"`
}

// FiredText returns the answer to a look for alert rules, in one line.
func FiredText(fired ...Fired) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(struct {
		Fired []Fired `json:"fired"`
	}{append([]Fired{}, fired...)}); err != nil {
		panic(err) // numbers and texts can be written
	}
	return strings.TrimSuffix(b.String(), "\n")
}
