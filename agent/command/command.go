// Package command knows the commands to a commentator and what people call them: a text or a spoken sentence is a command, an order
// behind a wake word, or neither. It acts on nothing.
package command

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Command is an order to the agent itself, which acts at once and on every engine.
type Command string

// The commands.
const (
	Stop    Command = "stop"    // stop commenting
	GoOn    Command = "go_on"   // comment again, under the same instruction
	Undo    Command = "undo"    // take back the last order
	Shorter Command = "shorter" // one step less talkative
	Longer  Command = "longer"  // one step more talkative
	Repeat  Command = "repeat"  // say the last comment again
	Louder  Command = "louder"
	Softer  Command = "softer"
)

// All returns all commands.
func All() []Command {
	return []Command{
		Stop, GoOn, Undo, Shorter, Longer, Repeat, Louder, Softer,
	}
}

// phrases returns the words of each command in English, as Fold leaves them.
func phrases() map[Command][]string {
	return map[Command][]string{
		Stop: {
			"stop", "stop it", "stop talking", "stop commenting", "be quiet", "quiet", "silence", "shut up", "hush", "pause", "enough",
		},
		GoOn: {
			"go on", "continue", "carry on", "resume", "keep going", "keep talking", "start again", "talk again",
		},
		Undo: {
			"never mind", "nevermind", "undo", "undo that", "undo it", "forget it", "forget that", "take that back", "cancel that",
		},
		Shorter: {
			"shorter", "be shorter", "be brief", "briefer", "be briefer", "less", "talk less", "say less", "keep it short", "make it shorter",
		},
		Longer: {
			"longer", "be longer", "more", "talk more", "say more", "more detail", "more details", "make it longer",
		},
		Repeat: {
			"repeat", "repeat that", "repeat it", "say that again", "say it again", "again", "once more", "what did you say", "come again",
		},
		Louder: {
			"louder", "be louder", "speak up", "speak louder", "talk louder", "turn it up", "volume up", "turn up the volume",
		},
		Softer: {
			"softer", "be softer", "quieter", "be quieter", "speak softer", "speak softly", "talk softer", "turn it down", "volume down",
			"turn down the volume", "lower your voice",
		},
	}
}

// frases returns those in Spanish.
func frases() map[Command][]string {
	return map[Command][]string{
		Stop: {
			"para", "detente", "alto", "callate", "calla", "silencio", "deja de hablar", "basta", "pausa",
		},
		GoOn: {
			"sigue", "continua", "adelante", "reanuda", "sigue hablando", "vuelve a hablar",
		},
		Undo: {
			"olvidalo", "dejalo", "deshaz", "deshazlo", "deshacer", "no importa", "cancelalo",
		},
		Shorter: {
			"mas corto", "mas breve", "se breve", "se mas breve", "habla menos", "di menos", "menos",
		},
		Longer: {
			"mas largo", "habla mas", "di mas", "mas detalle", "mas detalles", "mas",
		},
		Repeat: {
			"repite", "repitelo", "otra vez", "dilo otra vez", "de nuevo", "que has dicho", "que dijiste",
		},
		Louder: {
			"mas alto", "mas fuerte", "habla mas alto", "habla mas fuerte", "sube el volumen", "sube la voz",
		},
		Softer: {
			"mas bajo", "mas suave", "habla mas bajo", "habla mas suave", "baja la voz", "baja el volumen",
		},
	}
}

// SpokenOrders returns the sentences that a recognizer of orders shall know: the commands in English, and the orders and questions
// that the page offers about the generated worlds.
func SpokenOrders() []string {
	var out []string
	for _, command := range All() {
		out = append(out, phrases()[command]...)
	}
	for line := range strings.Lines(knownOrders) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// knownOrders are wordings that nano was trained on (worlds/train/words) and that the page offers (console/web/src/ask-words.js).
const knownOrders = `only tell me about goals
tell me the score every minute
tell me the score
tell me when somebody shoots
tell me when someone scores
tell me when the lights change
comment on the match
what's the score
who has the ball
who is ahead
how many goals have there been
only talk about red
only talk about blue
only talk about yellow
only talk about white
only talk about orange
only talk about violet
only talk about sky blue
tell me when somebody comes
only tell me about red coats
only tell me about parcels
ignore the dog
watch the gate
tell me when the lamp fails
watch the yard
who is at the gate
is there a parcel at the door
how many people are there
what colour is the car
is it raining
what is happening
what has changed`

// manners returns words around a command that change nothing.
func manners() (before, after []string) {
	return []string{"please", "hey", "ok", "okay", "now", "touchline", "por favor", "oye", "un poco", "a bit", "a little"},
		[]string{"please", "now", "touchline", "a bit", "a little", "por favor", "ahora", "ya", "un poco"}
}

// longestCommand is the longest text that is looked at, in bytes.
const longestCommand = 80

// Parse returns the command that a text is, in English or Spanish: the whole text, apart from case, accents, punctuation
// and words such as "please". Any other text is an instruction: "stop at the corner flag" is no command.
func Parse(text string) (Command, bool) {
	if len(text) > longestCommand {
		return "", false
	}
	folded := Fold(text)
	before, after := manners()
	for trimmed := true; trimmed; {
		trimmed = false
		for _, w := range before {
			if rest, ok := strings.CutPrefix(folded, w+" "); ok {
				folded, trimmed = rest, true
			}
		}
		for _, w := range after {
			if rest, ok := strings.CutSuffix(folded, " "+w); ok {
				folded, trimmed = rest, true
			}
		}
	}
	for _, language := range []map[Command][]string{phrases(), frases()} {
		for command, list := range language {
			if slices.Contains(list, folded) {
				return command, true
			}
		}
	}
	return "", false
}

// Fold returns a text in lower case, without accents and punctuation, its words one space apart.
func Fold(text string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(text) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(unicode.ToLower(r))
		case unicode.IsMark(r) || r == '\'' || r == '’':
		default:
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
