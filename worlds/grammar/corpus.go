package grammar

import (
	"slices"
	"strconv"

	"touchline/agent/prompt"
	"touchline/worlds/yard"
)

// Corpus draws the texts that the tokenizer is trained on, in about the shares of the model's input: prompts, orders, rules, comments.
func (g *Grammar) Corpus(d Dice) []string {
	var out []string
	for _, p := range g.profiles {
		out = append(out, slices.Repeat([]string{p.Prompt}, 60)...)
	}
	for _, language := range Languages() {
		for _, line := range answerIn(language) {
			out = append(out, slices.Repeat([]string{line}, 100)...)
		}
		for _, world := range g.worlds {
			out = append(out, commentTexts(d, world.wordings(language))...)
			out = append(out, orderPrompts(d, world, language)...)
			out = append(out, rulePrompts(d, world, language)...)
		}
	}
	return out
}

// commentTexts draws filled wordings, each alone and in a prompt.
func commentTexts(d Dice, w *wordings) []string {
	count := 26000
	if w.language == spanish {
		count = 20000
	}
	var out []string
	for range count {
		s := Pick(d, w.sayings)
		t := Pick(d, Pick(d, s.registers).pool)
		text, ok := t.fill(anyValues(d, w.language))
		if !ok {
			text = s.kind
		}
		out = append(out, text, ` "`+text)
	}
	return out
}

// anyValues draws values for the slots of any template.
func anyValues(d Dice, language string) values {
	score := [2]int{d.IntN(10), d.IntN(10)}
	var teams []string
	for _, team := range sample(d, teamNames(), 2) {
		teams = append(teams, teamName(team, language))
	}
	coat, car := colour(Pick(d, yard.Coats()), language), colour(Pick(d, carColours()), language)
	tint := d.IntN(len(tints()))
	out := values{
		"T": teams[0], "O": teams[1], "0": teams[0], "1": teams[1], "hl": result(score, language), "a": "a", "A": "a", "p": "two people",
		"q": "two cars", "c": tints()[tint], "st": teams[0] + " " + goals(score[0], language) + ", " + teams[1] + " " + goals(score[1], language),
	}
	ways := []string{"left", "right"}
	if language == spanish {
		out["c"], ways = spanishTints()[tint], []string{"izquierda", "derecha"}
	}
	out["n"] = number(d.from(1, 12), language)
	out["w"] = Pick(d, ways)
	out["j"] = strconv.Itoa(d.IntN(20))
	out["m"] = strconv.Itoa(d.IntN(100))
	out["k"] = car
	if !d.chance(0.5) {
		out["k"] = number(d.IntN(9), language)
	}
	if d.chance(0.7) {
		out["c"] = coat
	}
	return out
}

// orderPrompts draws prompts with orders of each kind.
func orderPrompts(d Dice, world World, language string) []string {
	var out []string
	for _, kind := range world.wordings(language).kinds {
		for range 150 {
			order := world.order(d, kind, asking{language: language}).Text
			comments := []pastComment{{d.between(0, 100), Silence}}
			out = append(out, promptText(order, comments, Pick(d, hints(language))))
		}
	}
	return out
}

// rulePrompts draws looks for rules of each kind, with parts of their answers.
func rulePrompts(d Dice, world World, language string) []string {
	var out []string
	for _, kind := range world.orders().rules {
		var all []prompt.Rule
		for n := range 8 {
			all = append(all, prompt.Rule{Number: n + 1, When: world.order(d, kind, asking{language: language, rule: true}).Text})
		}
		some := []string{prompt.RulesText(all), `{"fired":[{"rule":3,"reason":"`, `"},{"rule":12,"reason":"`, `"}]}`, `{"fired":[]}`}
		out = append(out, slices.Repeat(some, 4)...)
	}
	return out
}
