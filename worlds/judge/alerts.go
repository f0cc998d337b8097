package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/worlds"
	"touchline/worlds/claims"
)

const (
	alertEvery = 600 * time.Millisecond // between two looks with rules
	rulesFor   = 30 * time.Second       // for which a look has the same rules
	rulesOnce  = 3                      // in a look
	alertShows = 600 * time.Millisecond // after an event, until it is clearly visible
	alertEarly = time.Second            // before an event that shows before it begins, from when a rule may fire for it
	alertNews  = 9 * time.Second        // after an event, for which a rule may fire
)

// Alerts counts the results of the alert rules.
type Alerts struct {
	Looks int `json:"looks"`
	// Broken counts answers that are not JSON of the right form.
	Broken int `json:"broken"`
	// Fired counts the events of active rules, and how often the rule fired within two looks.
	Fired claims.Share            `json:"fired"`
	Kinds map[string]claims.Share `json:"kinds"`
	// False counts rules that fired without a cause.
	False    int      `json:"false"`
	Examples []string `json:"examples"`
}

// rule is an active alert rule.
type rule struct {
	prompt.Rule

	kind, colour string
	fired        time.Duration // time of the last firing; negative for never
}

// due is an event for which a rule should fire in one of the next two looks.
type due struct {
	event worlds.Event
	rule  rule
	looks int
}

// alerts asks for the alert rules of one film.
type alerts struct {
	Alerts

	dice    *rand.Rand
	kinds   []string
	heldOut bool // with wordings that nano was not trained on
	rules   []rule
	until   time.Duration // when other rules become active
	next    time.Duration
	last    time.Duration // the time up to which events were recorded
	due     []due
}

func (c *Command) newAlerts(v *viewing) *alerts {
	a := &alerts{Alerts: Alerts{Kinds: map[string]claims.Share{}}, heldOut: !c.Trained}
	a.dice = rand.New(rand.NewPCG(v.seed, 0x616c65727473))
	for kind, t := range v.topics {
		if len(t.events) > 0 && v.book.Rule(a.dice, kind, a.heldOut) != "" {
			a.kinds = append(a.kinds, kind)
		}
	}
	slices.Sort(a.kinds)
	return a
}

// alert makes a look with rules when one is due.
func (v *viewing) alert(ctx context.Context, at time.Duration) error {
	a := v.alerts
	if a == nil || at < a.next {
		return nil
	}
	a.next = at + alertEvery
	if at >= a.until {
		v.newRules(at)
	}
	for _, r := range a.rules {
		for _, e := range v.happened(r.kind, r.colour, max(a.last, a.until-rulesFor), at-alertShows) {
			v.expect(due{event: e, rule: r}, at)
		}
	}
	a.last = at - alertShows
	look := prompt.Look{System: v.profile.Prompt, Frames: look.Pictures(v.window.Select(v.cfg.Agent.Frames, v.cfg.Agent.Stride))}
	for _, r := range a.rules {
		look.Rules = append(look.Rules, r.Rule)
	}
	prompt := look.Prompt(v.cfg.Inference.Config, v.model.Capabilities())
	text, _, err := say(ctx, v.session, prompt)
	if err != nil {
		return err
	}
	a.Looks++
	fired, ok := alert.ReadAnswer(text)
	if !ok {
		a.Broken++
		a.note(v, at, "no JSON: %s", text)
	}
	var numbers []int
	for _, f := range fired {
		numbers = append(numbers, f.Rule)
	}
	v.settle(numbers, at)
	return nil
}

// newRules activates other rules.
func (v *viewing) newRules(at time.Duration) {
	a := v.alerts
	a.until, a.rules, a.due, a.last = at+rulesFor, nil, nil, at
	some := a.dice.Perm(len(a.kinds))
	for i, k := range some[:min(rulesOnce, len(some))] {
		o := order{kind: a.kinds[k], colour: anyCoat(a.dice)}
		when := v.slots.fill(v.book.Rule(a.dice, o.kind, a.heldOut), "", o)
		a.rules = append(a.rules, rule{Rule: prompt.Rule{Number: i + 1, When: when}, kind: o.kind, colour: o.colour, fired: -alertNews})
	}
}

// expect records that a rule should fire for an event, unless it fired just before.
func (v *viewing) expect(d due, at time.Duration) {
	if d.rule.fired >= d.event.At()-alertEarly {
		v.count(d, true, at)
		return
	}
	v.alerts.due = append(v.alerts.due, d)
}

// count counts an event for which a rule fired, or not.
func (v *viewing) count(d due, right bool, at time.Duration) {
	a := v.alerts
	a.Fired.Count(right)
	s := a.Kinds[d.rule.kind]
	s.Count(right)
	a.Kinds[d.rule.kind] = s
	if !right {
		a.note(v, at, "missed: %s (%s)", d.rule.When, d.event.Text())
	}
}

// settle counts fired rules and missed events.
func (v *viewing) settle(fired []int, at time.Duration) {
	a := v.alerts
	kept := a.due[:0]
	for _, d := range a.due {
		d.looks++
		switch {
		case slices.Contains(fired, d.rule.Number):
			v.count(d, true, at)
		case d.looks == 2:
			v.count(d, false, at)
		default:
			kept = append(kept, d)
		}
	}
	a.due = kept
	for _, n := range fired {
		i := slices.IndexFunc(a.rules, func(r rule) bool { return r.Number == n })
		if i >= 0 {
			a.rules[i].fired = at
		}
		if i < 0 || !v.causes(a.rules[i], at) {
			a.False++
			when := "no such rule"
			if i >= 0 {
				when = a.rules[i].When
			}
			a.note(v, at, "false: %s", when)
		}
	}
}

// causes reports whether an event is a cause for a rule to fire.
func (v *viewing) causes(r rule, at time.Duration) bool {
	if len(v.happened(r.kind, r.colour, at-alertNews, at+alertEarly)) > 0 {
		return true
	}
	for _, t := range v.shown(at) {
		if r.kind == "coat" {
			for _, p := range t.Yard.People {
				if p.Coat == r.colour {
					return true
				}
			}
		}
		if holds := v.topics[r.kind].holds; holds != nil && holds(t) {
			return true
		}
	}
	return false
}

func (a *alerts) note(v *viewing, at time.Duration, format string, values ...any) {
	a.Examples = append(a.Examples, fmt.Sprintf("seed %d, %.1f s: ", v.seed, at.Seconds())+fmt.Sprintf(format, values...))
}

// addAlerts adds the results of a film's rules.
func (r *Result) addAlerts(a *alerts) {
	if r.Alerts == nil {
		r.Alerts = &Alerts{Kinds: map[string]claims.Share{}}
	}
	r.Alerts.Looks += a.Looks
	r.Alerts.Broken += a.Broken
	r.Alerts.False += a.False
	r.Alerts.Fired = r.Alerts.Fired.Plus(a.Fired)
	for k, s := range a.Kinds {
		r.Alerts.Kinds[k] = r.Alerts.Kinds[k].Plus(s)
	}
	r.Alerts.Examples = append(r.Alerts.Examples, a.Examples...)
}
