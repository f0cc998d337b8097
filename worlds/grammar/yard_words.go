package grammar

import (
	"strings"
)

// people and cars return a number of them in words.
func people(n int, language string) string {
	if language == english {
		return noun{"person", "people", "no people"}.counted(n, language)
	}
	return strings.ReplaceAll(noun{"persona", "personas", "ninguna persona"}.counted(n, language), "un persona", "una persona")
}

func cars(n int, language string) string {
	if language == english {
		return noun{"car", "cars", "no cars"}.counted(n, language)
	}
	return noun{"coche", "coches", "ningún coche"}.counted(n, language)
}

// Word implements World.
func (y *yardWorld) Word(d Dice, w Window, n *News, v Voice, limit int, avoid string) string {
	if n.also != nil {
		alone := *n
		alone.also = nil
		a := y.Word(d, w, &alone, v, limit/2, avoid)
		return both(a, y.Word(d, w, n.also, v, limit/2, avoid), v.Language)
	}
	now, texts, fill := w.now(), y.wordings(v.Language), values{}
	if n.coat != "" {
		fill["c"], fill["a"] = colour(n.coat, v.Language), article(n.coat)
	}
	if n.car != "" {
		fill["k"], fill["A"] = colour(n.car, v.Language), article(n.car)
	}
	if n.Kind == "people_count" || n.Kind == "cars_count" {
		fill["p"] = people(len(now.people), v.Language)
		fill["q"] = cars(len(now.cars), v.Language)
	}
	text := texts.say(d, n.Kind, v.Register, fill, limit, avoid)
	for n.key == quiet() && answers(text) {
		text = texts.say(d, n.Kind, v.Register, fill, limit, avoid)
	}
	if limit < anyWords || n.at == 0 || n.key == quiet() || d.chance(0.7) {
		return text
	}
	more := filler(d, now)
	if strings.HasPrefix(more.Kind, "empty") || strings.HasPrefix(more.Kind, "night") {
		return text
	}
	return text + " " + y.Word(d, w, more, Voice{v.Language, calm}, 8, "")
}

// answers reports whether a wording is for an answer.
func answers(text string) bool {
	return strings.HasPrefix(text, "Yes") || strings.HasPrefix(text, "Sí") || strings.HasPrefix(text, "No,")
}
