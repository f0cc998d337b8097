// Package grammar generates nano's training texts. It knows the truth about films of the generated worlds and comments as a truthful
// commentator would: it reports news, obeys orders, answers questions and alert rules. From that it makes training examples, each a
// window of pictures, a prompt as the engine writes it, and the answer.
//
// It claims only what the pictures show clearly: every claim keeps a margin. The wordings are in package words. The same seed gives the
// same texts.
//
// It draws no pictures, reads no files and trains nothing: the commands render and examples, and train.py do.
package grammar

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"touchline/agent/prompt"
	"touchline/configs/profiles"
	"touchline/worlds"
)

// Silence is the answer if there is no news.
const Silence = "..."

// FPS is the number of pictures in a second of a film.
const FPS = 5

// Grammar has all wordings. Read-only, safe for concurrent use.
type Grammar struct {
	worlds    []World
	kinds     []string
	profiles  []prompt.Profile // by name
	sentences []string         // the sentences of all profiles
}

// New reads the wordings and the built-in profiles.
func New() (*Grammar, error) {
	inMatch, inYard := map[string]*wordings{}, map[string]*wordings{}
	for _, language := range Languages() {
		var err error
		if inMatch[language], err = readWordings(worlds.Match, language); err != nil {
			return nil, err
		}
		if inYard[language], err = readWordings(worlds.Yard, language); err != nil {
			return nil, err
		}
		inYard[language].shared = inMatch[language]
	}
	g := &Grammar{worlds: []World{
		&matchWorld{inMatch, matchOrders(), questions()}, &yardWorld{inYard, yardOrders()},
	}}
	for _, w := range g.worlds {
		for _, kind := range w.wordings(english).kinds {
			if !slices.Contains(g.kinds, kind) {
				g.kinds = append(g.kinds, kind)
			}
		}
	}
	var err error
	if g.profiles, err = profiles.BuiltIn(); err != nil {
		return nil, fmt.Errorf("read the profiles: %w", err)
	}
	slices.SortFunc(g.profiles, func(a, b prompt.Profile) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range g.profiles {
		for _, s := range sentences(p.Prompt) {
			if s != Silence {
				g.sentences = append(g.sentences, s)
			}
		}
	}
	return g, nil
}

// Worlds lists the worlds, the match first.
func (g *Grammar) Worlds() []World { return g.worlds }

// World returns the world with a name, nil if there is none.
func (g *Grammar) World(name string) World {
	i := slices.IndexFunc(g.worlds, func(w World) bool { return w.Name() == name })
	if i < 0 {
		return nil
	}
	return g.worlds[i]
}

// Kinds lists the kinds of orders and rules of all worlds.
func (g *Grammar) Kinds() []string { return g.kinds }

// elsewhere returns the other world.
func (g *Grammar) elsewhere(w World) World {
	if w == g.worlds[0] {
		return g.worlds[1]
	}
	return g.worlds[0]
}

// sentenceEnd matches the end of a sentence, and the space after it.
var sentenceEnd = regexp.MustCompile(`[.:]\s+`)

// sentences splits a text after full stops and colons.
func sentences(text string) []string {
	var out []string
	from := 0
	for _, m := range sentenceEnd.FindAllStringIndex(text, -1) {
		out = append(out, text[from:m[0]+1])
		from = m[1]
	}
	return append(out, text[from:])
}
