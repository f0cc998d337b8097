package facts

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLanguagesAreComplete(t *testing.T) {
	require.Equal(t, "en", Languages()[0])
	en := languageOf("en")
	for _, tag := range Languages() {
		l := languageOf(tag)
		for key, list := range en {
			own, _, _ := strings.Cut(key, ".")
			switch {
			case own == "polite" || own == "article" || own == "ask":
				require.NotEmpty(t, l[key], "%s: %s", tag, key)
			case strings.Count(key, ".") == 2 && !strings.HasPrefix(key, "light") && !strings.HasPrefix(key, "answer"):
				// Groups have wordings of their own only where a language needs them.
			case own == "noun":
				require.GreaterOrEqual(t, len(l[key]), 5, "%s: %s", tag, key)
			case own == "words":
				require.NotEmpty(t, l[key], "%s: %s", tag, key)
			default:
				require.GreaterOrEqual(t, len(l[key]), min(4, len(list)), "%s: %s", tag, key)
			}
			if own != "noun" && own != "words" && own != "ask" && len(l[key]) > 0 {
				require.Equal(t, names(list), names(l[key]), "%s: the values of %s", tag, key)
			}
		}
		for key, list := range l {
			if _, ok := en[key]; !ok && strings.Count(key, ".") < 2 {
				require.Fail(t, "a key that English lacks", "%s: %s", tag, key)
			}
			sorted := slices.Sorted(slices.Values(list))
			require.Len(t, slices.Compact(sorted), len(list), "%s: %s twice", tag, key)
		}
	}
}

// TestFourWordings: each fact has four wordings in each register of each language, also where a group has its own.
func TestFourWordings(t *testing.T) {
	keys := []kind{
		viewFact, enterFact, appearFact, leaveFact, stopFact, goFact, runFact, crossFact, standFact, togetherFact, numberFact, "nobody",
		crowdFact, boardFact, scoreFact, cutFact, panFact, lightFact + ".brighter", lightFact + ".darker",
	}
	for _, tag := range Languages() {
		for _, key := range keys {
			for _, register := range []Register{Brief, Plain, Lively} {
				require.GreaterOrEqual(t, len(languageOf(tag)[string(key)+"."+string(register)]), 4, "%s: %s.%s", tag, key, register)
				for _, group := range []string{person, vehicle, bicycle, animal} {
					require.GreaterOrEqual(t, len(languageOf(tag).wordings(string(key), group, register)), 4, "%s: %s of %s", tag, key, group)
				}
			}
		}
	}
}

// names returns the {names} of templates, without {who} and {see}, which are two cases of one value.
func names(templates []string) []string {
	all := regexp.MustCompile(`\{[a-z]+\}`).FindAllString(strings.Join(templates, " "), -1)
	all = slices.DeleteFunc(all, func(s string) bool { return s == "{who}" || s == "{see}" })
	slices.Sort(all)
	return slices.Compact(all)
}

// TestNounsAgree checks that the articles of a noun are of one gender, in each case and number.
func TestNounsAgree(t *testing.T) {
	genders := map[string][]string{
		"en": {`a [^aeio]\w* \| the .* \| another .* \| .* \| no .*`, `an [aeio]\w* \| the .* \| another .* \| .* \| no .*`},
		"de": {
			`eine (\w+) \| die .* \| eine weitere .* \| .* \| keine .*`, `ein (\w+) \| das .* \| ein weiteres .* \| .* \| kein .*`,
			`ein (\w+) \| der .* \| ein weiterer .* \| .* \| keinen .* \| einen .* \| einen weiteren .*`,
		},
		"es": {`una .* \| la .* \| otra .* \| .* \| ninguna .*`, `un .* \| el .* \| otro .* \| .* \| ningún .*`},
		"fr": {
			`une .* \| (la |l'[aeéioh]).* \| une autre .* \| .* \| aucune .*`, `un [^aeéio].* \| le .* \| un autre .* \| .* \| aucun .*`,
			`un [aeéio].* \| l'.* \| un autre .* \| .* \| aucun .*`,
		},
	}
	for _, tag := range Languages() {
		for key, forms := range languageOf(tag) {
			if strings.HasPrefix(key, "noun.") {
				line := strings.Join(forms, " | ")
				require.True(t, slices.ContainsFunc(genders[tag], func(re string) bool {
					return regexp.MustCompile("^" + strings.ReplaceAll(re, `\w`, `[\p{L}]`) + "$").MatchString(line)
				}), "%s: %s: %s", tag, key, line)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestSixtySentences makes sentences about random facts in each language, which were read one by one: testdata/sentences.
func TestSixtySentences(t *testing.T) {
	classes := []string{person, person, "car", "dog", "bus", "bicycle", "cat", "elephant", animal}
	kinds := []kind{
		enterFact, leaveFact, appearFact, viewFact, stopFact, goFact, runFact, crossFact, standFact, togetherFact, numberFact, crowdFact,
		boardFact, scoreFact, cutFact, panFact, lightFact,
	}
	paces := map[kind]pace{stopFact: resting, goFact: walking, runFact: running}
	colours := []string{"black", "blue", "green", "orange", "purple", "red", "white", "yellow"}
	for _, tag := range Languages() {
		l, r := languageOf(tag), rand.New(rand.NewPCG(7, 7))
		var all strings.Builder
		people := 0
		for i := range 60 {
			w := NewWatcher(r)
			w.texts = []string{"ARS 2-1 CHE"}
			k := kinds[i%len(kinds)]
			n := 1
			switch k {
			case enterFact, leaveFact, viewFact:
				n += r.IntN(3)
			case togetherFact:
				n = 2
			default:
			}
			f := fact{kind: k, side: []side{leftSide, rightSide}[r.IntN(2)], n: r.IntN(7), out: r.IntN(3), text: "ARS 2-1 CHE"}
			f.lasts = standTimes()[r.IntN(3)]
			for range n {
				class := classes[r.IntN(len(classes))]
				if k == togetherFact || k == runFact {
					class = person
				}
				w.tracker.begin(0, Box{Class: class, Score: 0.95, X0: 0.2, Y0: 0.2, X1: 0.3, Y1: 0.5})
			}
			for _, k := range w.tracker.tracks {
				k.sure, k.pace, k.told = true, paces[f.kind], r.IntN(2) == 0
			}
			// The colours in turn; the other sentences stay as they were read.
			r.IntN(4)
			if k := w.tracker.tracks[0]; n == 1 && k.group == person && !f.kind.plain() {
				colour := colours[people%len(colours)]
				k.wears = worn{votes: map[string]int{colour: 9}, looks: 9}
				if k.told {
					w.telling.handles[colour] = k.id
				}
				people++
			}
			if k == lightFact {
				f.text = []string{"brighter", "darker"}[r.IntN(2)]
			}
			for range 8 {
				w.counter(person).push(w.now, f.n)
				w.now += 400 * time.Millisecond
			}
			if f.tracks = w.tracker.tracks; k.plain() {
				f.tracks, f.side = nil, noSide
			}
			text := w.word(l, &f, []Register{Brief, Plain, Lively}[r.IntN(3)])
			require.NotEmpty(t, text, "%s", &f)
			require.NotRegexp(t, `[{}\[\]|]|  |%!| \.|\.\.|^\p{Ll}`, text)
			require.NotRegexp(t, `(?i)\b(a [aeiou]|an [^aeiou ]|de el|a el|le [aeéio]|de les)\w`, only(tag, text))
			fmt.Fprintf(&all, "%2d %s\n", i+1, text)
		}
		for _, colour := range colours {
			require.Contains(t, all.String(), l.fill("wears", values{"who": "", "colour": l.one("colour." + colour)}), tag)
		}
		golden := "testdata/sentences/" + tag + ".txt"
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(all.String()), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), all.String())
	}
}

// only returns a text in English, Spanish or French for the rules of their articles; in German "a" is no word.
func only(tag, text string) string {
	if tag == "de" {
		return ""
	}
	if tag != "en" {
		return strings.ReplaceAll(text, " a ", " ")
	}
	return text
}

// understood is what a row of a test understands.
type understood struct {
	form  string
	nouns []string
}

func TestQuestionsInLanguages(t *testing.T) {
	for text, want := range map[string]understood{
		"de Nur Personen, bitte.":                             {"only", []string{person}},
		"de Wie viele Autos sind im Bild?":                    {"many", []string{"car"}},
		"de Gibt es einen Hund?":                              {"there", []string{"dog"}},
		"de Wo sind die Katzen?":                              {"where", []string{"cat"}},
		"de ignoriere Autos und Busse":                        {"ignore", []string{"car", "bus"}},
		"de Was ist passiert?":                                {"happened", nil},
		"es ¿Cuántas personas hay?":                           {"many", []string{person}},
		"es Solo perros y gatos":                              {"only", []string{"dog", "cat"}},
		"es ¿Hay un perro en la imagen?":                      {"there", []string{"dog"}},
		"es ¿Dónde está la pelota?":                           {"where", []string{"sports ball"}},
		"es ¿Qué dice el panel?":                              {"reads", nil},
		"fr Combien de voitures y a-t-il ?":                   {"many", []string{"car"}},
		"fr Combien d’oiseaux vois-tu ?":                      {"many", []string{"bird"}},
		"fr Y a-t-il un chien ?":                              {"there", []string{"dog"}},
		"es ¿Qué pone en el cartel?":                          {"reads", nil},
		"fr Où est l’horloge ?":                               {"where", []string{"clock"}},
		"fr Seulement les personnes":                          {"only", []string{person}},
		"fr Oubliez les voitures":                             {"ignore", []string{"car"}},
		"de Sag, was passiert, während es passiert.":          {"all", nil},
		"es Di lo que pasa, según pasa.":                      {"all", nil},
		"fr Dis ce qui se passe, au moment où cela se passe.": {"all", nil},
		"de Beschreibe, was zu sehen ist, für jemanden, der es nicht sehen kann.":                   {"all", nil},
		"es Observa a los animales y dime qué hacen y por qué puede importarles.":                   {"only", []string{animal}},
		"fr Observe les animaux, et dis-moi ce qu’ils font et pourquoi cela peut compter pour eux.": {"only", []string{animal}},
		"es Avísame cuando aparezca una persona o un vehículo, y hacia dónde va.":                   {"only", []string{person, vehicle}},
		"fr Préviens-moi quand une personne ou un véhicule apparaît, et de quel côté il va.":        {"only", []string{person, vehicle}},
		"de Sag mir, wenn eine Person oder ein Fahrzeug ins Bild kommt, und wohin es geht.":         {"only", []string{person, vehicle}},
		"de Konzentriere dich auf die Katzen!":                                                      {"only", []string{"cat"}},
		"de Konzentrieren Sie sich nur auf Autos":                                                   {"only", []string{"car"}},
		"fr Concentre-toi sur les chiens.":                                                          {"only", []string{"dog"}},
		"fr Concentrez-vous sur l’ours et les personnes":                                            {"only", []string{"bear", person}},
		"es Céntrate en el perro":                                                                   {"only", []string{"dog"}},
		"es Enfócate en las personas, por favor":                                                    {"only", []string{person}},
		"es ¿Qué ha pasado desde la última vez?":                                                    {"happened", nil},
		"es ¿Qué pasó desde la última vez que pregunté?":                                            {"happened", nil},
		"de Was ist seit der letzten Frage passiert?":                                               {"happened", nil},
		"fr Que s’est-il passé depuis la dernière fois ?":                                           {"happened", nil},
		"fr How many people are there?":                                                             {"many", []string{person}},
	} {
		tag, text, _ := strings.Cut(text, " ")
		got, ok := languageOf(tag).understand(text)
		require.True(t, ok, text)
		require.Equal(t, want, understood{got.form, got.nouns}, text)
	}
}

// TestAnswersAffirmNoSex: a question about men, women or players is answered with what was counted, without yes or no.
func TestAnswersAffirmNoSex(t *testing.T) {
	for _, tt := range []struct{ tag, somebody, woman, answer, men, thing, refusal string }{
		{
			"en", "is there somebody?", "Is there a woman?", "I count people and do not tell who they are. I can see a person.",
			"how many men are there", "how many cups are there?", "focus on the ball",
		},
		{
			"de", "Siehst du jemand?", "Gibt es eine Frau?", "Ich zähle Menschen und sage nicht, wer sie sind. Ich sehe eine Person.",
			"Wie viele Männer sind da?", "Wie viele Tassen gibt es?", "Konzentriere dich auf den Ball",
		},
		{
			"es", "¿Hay alguien?", "¿Hay una mujer?", "Cuento personas y no digo quiénes son. Veo una persona.",
			"¿Cuántos hombres hay?", "¿Cuántas tazas hay?", "Céntrate en la pelota",
		},
		{
			"fr", "Y a-t-il quelqu'un ?", "Y a-t-il une femme ?", "Je compte les personnes et ne dis pas qui elles sont. Je vois une personne.",
			"Combien d’hommes y a-t-il ?", "Combien de tasses y a-t-il ?", "Concentre-toi sur le ballon",
		},
	} {
		l, w := languageOf(tt.tag), newTestWatcher(1)
		ask := func(text string) string { return w.Tell(TellOptions{Language: tt.tag, Instruction: text}).Text }
		nobody := ask(tt.woman)
		require.Contains(t, nobody, l.one("answer.who"))
		require.Contains(t, nobody, l.noun(person, formNone))
		require.NotContains(t, nobody, l.fill("answer.no", values{"see": l.noun(person, formNone)}))
		for i := range 10 {
			cup := Box{Class: "cup", Score: 0.95, X0: 0.1, Y0: 0.5, X1: 0.15, Y1: 0.6}
			w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{walker(0.5, 0, 0), cup}})
		}
		ask("")
		require.Equal(t, l.fill("answer.yes", values{"see": l.noun(person, formSeen)}), ask(tt.somebody))
		require.Equal(t, tt.answer, ask(tt.woman))
		require.Equal(t, tt.answer, ask(tt.men))
		require.Equal(t, l.fill("answer.many.thing", values{"place": l.one("at.left")}), ask(tt.thing))
		require.Equal(t, l.one("answer.only.thing"), ask(tt.refusal))
	}
}
