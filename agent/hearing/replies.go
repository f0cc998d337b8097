package hearing

import (
	"errors"
	"unicode"
	"unicode/utf8"

	"touchline/inference"
)

// replies is what is said about spoken orders, in one language.
type replies struct {
	acts, waits string // before the text of an instruction
	doesNotRead string // errDoesNotRead
	refused     string // any other error; "" for the text of the error
}

// repliesIn returns the replies in the language of a BCP 47 tag, or else in English, and their language.
func repliesIn(tag string) (r replies, language string) {
	known := map[string]replies{
		"en": {"Okay: ", "Okay, soon: ", "This engine cannot follow instructions.", ""},
		"es": {"De acuerdo: ", "De acuerdo, enseguida: ", "Este motor no puede seguir instrucciones.", "Esa orden no se puede cumplir."},
		"fr": {"D’accord : ", "D’accord, bientôt : ", "Ce moteur ne peut pas suivre d’instructions.", "Cet ordre ne peut pas être exécuté."},
		"de": {"Gut: ", "Gut, gleich: ", "Diese Engine kann keine Anweisungen befolgen.", "Diese Anweisung kann nicht befolgt werden."},
		"nl": {"Goed: ", "Goed, zo meteen: ", "Deze engine kan geen instructies volgen.", "Die opdracht kan niet worden uitgevoerd."},
	}
	if r, ok := known[inference.Primary(tag)]; ok {
		return r, tag
	}
	return known["en"], "en"
}

// refusal returns the sentence for an error.
func (r replies) refusal(err error) string {
	switch {
	case errors.Is(err, errDoesNotRead):
		return r.doesNotRead
	case r.refused != "":
		return r.refused
	}
	text := err.Error()
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:] + "."
}
