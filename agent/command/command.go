// Package command holds the wishes of people: commands, spoken or typed, wake words, and Steering, which has the instruction in force, the
// waiting ones, profile, background and undo. A Room carries them out.
package command

import (
	"slices"
	"strings"

	"touchline/agent/phrases"
	"touchline/agent/settings"
)

// Command is an order to the agent itself. It takes effect at once, with every engine.
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

// SpokenOrders returns the sentences for a recognizer of orders: the commands in English, and the orders and questions that the page offers
// about the generated worlds.
func SpokenOrders() []string {
	var out []string
	for _, c := range All() {
		out = append(out, phrases.In("en", string(c))...)
	}
	return append(out, phrases.In("en", "orders")...)
}

// Did describes the effect of a command in the language of a BCP 47 tag, or else in English. The key is the command, perhaps with the kind
// of effect, such as "undo.off".
func Did(tag string, key Command, values ...any) string {
	text, _ := phrases.Say(tag, "did."+string(key), values...)
	return text
}

// longestCommand bounds the texts that may be commands, in bytes.
const longestCommand = 80

// Parse recognizes a command in any language that has commands. It compares the whole text, apart from case, accents, punctuation
// and words such as "please". Any other text is an instruction: "stop at the corner flag" is no command.
func Parse(text string) (Command, bool) {
	if len(text) > longestCommand {
		return "", false
	}
	folded, languages := settings.Fold(text), phrases.All()
	for before := ""; before != folded; {
		before = folded
		for _, l := range languages {
			for _, p := range l["before"] {
				folded = strings.TrimPrefix(folded, settings.Fold(p)+" ")
			}
			for _, p := range l["after"] {
				folded = strings.TrimSuffix(folded, " "+settings.Fold(p))
			}
		}
	}
	for _, l := range languages {
		for _, c := range All() {
			if slices.ContainsFunc(l[string(c)], func(p string) bool { return settings.Fold(p) == folded }) {
				return c, true
			}
		}
	}
	return "", false
}
