package grammar

import (
	"slices"
	"strings"
	"time"

	"touchline/agent/prompt"
)

// shortWords is the number of words of a comment under the order to be short.
const shortWords = 5

// anyWords is the number of words of a comment whose length is free.
const anyWords = 18

// hint is a sentence about the length of a comment, as the engine writes it, with the number of words that it allows.
type hint struct {
	text  string
	limit int
}

// hints are the hints of a language; the last one is for no hint.
func hints(language string) []hint {
	all := prompt.LengthHints(language)
	return []hint{{all[0], 6}, {all[1], 10}, {all[2], anyWords}, {all[3], anyWords}, {"", anyWords}}
}

// hintWeights say how often each hint is drawn.
func hintWeights() []int { return []int{10, 8, 6, 1, 7} }

// Limit is the number of words that the hint in a prompt allows.
func Limit(prompt, language string) int {
	all := hints(language)
	return all[slices.IndexFunc(all, func(h hint) bool { return strings.Contains(prompt, h.text) })].limit
}

// Text is one prompt and its answer about a window.
type Text struct {
	System, Text, Answer string
	// Asked describes the order, or each of the rules.
	Asked []Asked
}

// Asked is the subject of an order or a rule.
type Asked struct {
	// Kind is its index among the kinds, -1 if it has none.
	Kind int
	// Holds is 1 if the window shows it, 0 if not, and -1 if unknown.
	Holds int
}

// Setting is the language, profile and system part of a prompt.
type Setting struct{ Language, Profile, System string }

// answerIn holds the last words of the system part, by language.
func answerIn(language string) []string {
	if language == english {
		return []string{"Answer in English."}
	}
	return []string{
		`Answer in the language that has the BCP 47 tag "es", whatever the language of this text.`, "Answer in Spanish.", "Responde en español.",
	}
}

// Setting draws a setting, sometimes with a profile of its own, because people write their own.
func (g *Grammar) Setting(d Dice) Setting {
	language := Pick(d, Languages())
	names, weights := []string{"default", "sports", "security"}, []int{9, 6, 5}
	for _, p := range g.profiles {
		names, weights = append(names, p.Name), append(weights, 1)
	}
	name := Weighted(d, names, weights)
	i := slices.IndexFunc(g.profiles, func(p prompt.Profile) bool { return p.Name == name })
	text := g.profiles[i].Prompt
	if d.chance(0.12) {
		name, text = "custom", strings.Join(sample(d, g.sentences, d.from(1, 7)), " ")
	}
	return Setting{language, name, text + "\n\n" + Pick(d, answerIn(language))}
}

// pastComment is a comment with its age in seconds.
type pastComment struct {
	age  float64
	text string
}

// promptText returns the text after the pictures; comments are oldest first.
func promptText(order string, comments []pastComment, h hint) string {
	now := time.Unix(0, 0)
	var all []prompt.PastComment
	for _, c := range comments {
		all = append(all, prompt.PastComment{Text: c.text, At: now.Add(-time.Duration(c.age * float64(time.Second)))})
	}
	return prompt.Text(order, all, nil, now, h.text)
}

// Make draws an example on the window that ends with picture i, after a commentary that led there.
func (g *Grammar) Make(d Dice, s Setting, f *Film, i, pictures, step int) Text {
	w := f.Window(i, pictures, step)
	alerts := 0.15
	if len(f.World.moments(w)) > 0 {
		alerts = 0.3
	}
	if d.chance(alerts) {
		return g.alerts(d, s, f.World, w)
	}
	h := Weighted(d, hints(s.Language), hintWeights())
	limit := h.limit
	var order *Order
	if d.chance(0.5) {
		o := g.order(d, f.World, w, s.Language)
		order = &o
		if o.Kind == shortOrder {
			limit = min(limit, shortWords)
		}
	}
	c := NewCommentator(f, pictures, step, s.Language, s.Profile, order, i)
	g.before(d, c, i)
	comments := c.reported(d, i)
	t := Text{System: s.System}
	text := ""
	if order != nil {
		text = order.Text
		t.Asked = []Asked{{slices.Index(g.kinds, order.Kind), here(d, f.World, *order, w)}}
	}
	t.Text = promptText(text, comments, h)
	t.Answer = c.Look(d, i, limit)
	return t
}

// before draws the commentary that led to picture i.
func (g *Grammar) before(d Dice, c *Commentator, i int) {
	order, some := c.order, 0.9
	if order != nil {
		some = 0.75
	}
	if !d.chance(some) {
		return
	}
	shortest, longest := 60, 500
	if d.chance(0.8) {
		shortest, longest = 4, 130
	}
	back := d.from(shortest, longest)
	fresh := order != nil && d.chance(0.3) // the order is new
	if fresh {
		c.order = nil
	}
	lo := c.step * (c.pictures - 1)
	start := max(lo, i-back)
	if d.chance(0.4) && start > lo { // there were earlier comments
		kept := c.order
		c.order, c.at = nil, start
		c.Look(d, d.from(lo, start), anyWords)
		c.order, c.at = kept, start-d.from(4, 300)
		for k := range c.past {
			c.past[k].at = c.at
		}
		c.forget(kept)
	}
	c.run(d, start, i)
	if fresh {
		c.forget(order)
	}
	c.order = order
}

// reported draws how many of the last comments the prompt of picture i has, and their ages.
func (c *Commentator) reported(d Dice, i int) []pastComment {
	n := Weighted(d, []int{1, 2, 3, 4, 5, 6}, []int{2, 2, 2, 1, 1, 4}) // a session soon has as many as a prompt holds
	var out []pastComment
	for _, x := range c.past[max(0, len(c.past)-n):] {
		out = append(out, pastComment{max(0.5, float64(i-x.at)/FPS+d.between(-0.1, 0.1)), x.text})
	}
	return out
}

// here reports whether a window shows the subject of an order; -1 if unknown.
func here(d Dice, world World, o Order, w Window) int {
	if !slices.Contains(world.orders().rules, o.Kind) || world.unclear(o, w) {
		return -1
	}
	return one(world.Holds(d, o, w) != nil)
}

// order draws an order; half of the orders that allow little news allow the news of this window.
func (g *Grammar) order(d Dice, world World, w Window, language string) Order {
	kinds, tables := world.wordings(language).kinds, world.orders()
	other := g.elsewhere(world)
	if d.chance(0.05) { // from the other world only
		kind := Pick(d, other.orders().elsewhere)
		return Order{Kind: cannotOrder, Text: other.order(d, kind, asking{language: language}).Text}
	}
	for _, kind := range tables.borrowed {
		if d.chance(0.03) {
			return Order{Kind: kind, Text: other.order(d, kind, asking{language: language}).Text}
		}
	}
	weights := make([]int, len(kinds))
	for i, kind := range kinds {
		weights[i] = tables.weight(kind)
	}
	const tries = 4
	for try := 1; ; try++ {
		o := world.order(d, Weighted(d, kinds, weights), asking{language: language, window: w})
		if _, filters := tables.filters[o.Kind]; try == tries || !filters || d.chance(0.5) || world.follow(d, o, w, nil, long) != nil {
			return o
		}
	}
}

// Stranger draws an example on pictures of neither world, or on dark ones: one statement, then silence. A comment on another picture may
// precede it.
func (g *Grammar) Stranger(d Dice, s Setting, dark bool) Text {
	world, texts := Pick(d, g.worlds), g.worlds[0].wordings(s.Language)
	h := Pick(d, hints(s.Language))
	t := Text{System: s.System}
	if d.chance(0.08) {
		o := world.order(d, Pick(d, world.orders().rules), asking{language: s.Language, rule: true})
		t.Text, t.Answer = prompt.RulesText([]prompt.Rule{{Number: d.from(1, 17), When: o.Text}}), FiredText()
		return t
	}
	kind := "unknown"
	if dark {
		kind = "dark"
	}
	text := texts.say(d, kind, calm, nil, 0, "")
	order := ""
	if d.chance(0.3) {
		order = world.order(d, Pick(d, world.wordings(s.Language).kinds), asking{language: s.Language}).Text
	}
	last := ""
	switch roll := d.Float64(); {
	case roll < 0.45:
		last, t.Answer = text, Silence
	case roll < 0.6:
		t.Answer = text
		kind := Pick(d, []string{"play", "turn", "mid"})
		fill := values{"T": teamName(Pick(d, teamNames()), s.Language), "O": "Blue", "w": "left"}
		last = texts.say(d, kind, calm, fill, 0, "")
	default:
		t.Answer = text
	}
	var comments []pastComment
	if last != "" {
		comments = []pastComment{{d.between(1, 60), last}}
	}
	t.Text = promptText(order, comments, h)
	return t
}
