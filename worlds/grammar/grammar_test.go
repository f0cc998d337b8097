package grammar_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/worlds"
	"touchline/worlds/grammar"
)

// tenMinutes is the length of the films, in pictures.
const tenMinutes = 600 * grammar.FPS

func open(t *testing.T) *grammar.Grammar {
	t.Helper()
	g, err := grammar.New()
	require.NoError(t, err)
	return g
}

// records of a film from the start of its world.
func records(t *testing.T, world string, seed uint64, pictures int) []worlds.Truth {
	t.Helper()
	w, err := worlds.New(worlds.Options{World: world, Seed: seed, Width: 160, Height: 90})
	require.NoError(t, err)
	const apart = 30 / grammar.FPS
	var out []worlds.Truth
	for n := range uint32(pictures) {
		out = append(out, w.Record(n*apart, n*apart-min(n*apart, apart)))
	}
	return out
}

func film(t *testing.T, g *grammar.Grammar, world string) *grammar.Film {
	t.Helper()
	return grammar.NewFilm(g.World(world), records(t, world, 500, tenMinutes))
}

// saying is a comment on a picture, with what it tells.
type saying struct {
	picture int
	news    grammar.News
	text    string
}

// comments is a commentary on a film.
func comments(f *grammar.Film, language string) []saying {
	d := grammar.NewDice(3)
	c := grammar.NewCommentator(f, 4, 3, language, "sports", nil, 0)
	var out []saying
	for i := 10; i < len(f.Facts); {
		text := c.Look(d, i, grammar.Pick(d, []int{6, 6, 10, 18}))
		if text == grammar.Silence {
			i += 3
			continue
		}
		out = append(out, saying{i, *c.Last(), text})
		i += int(grammar.FPS*(0.6+0.33*float64(len(strings.Fields(text))))) + 2
	}
	return out
}

// Of the sentences in ten minutes of play at least five in six are said once, and none twice running.
func TestCommentaryIsLively(t *testing.T) {
	t.Parallel()
	g := open(t)
	f := film(t, g, worlds.Match)
	broken := regexp.MustCompile(`[{}|]|  |^[a-z]|(?:^|[^-])\bone minutes|(?:^|[^y] |[^ ])\bun minutos`)
	for _, language := range grammar.Languages() {
		texts := map[string]bool{}
		last := ""
		all := comments(f, language)
		for _, s := range all {
			require.NotEqual(t, last, s.text)
			require.NotRegexp(t, broken, s.text)
			texts[s.text], last = true, s.text
		}
		require.GreaterOrEqual(t, len(texts)*6, len(all)*5)
	}
}

func TestEveryGoalIsCalled(t *testing.T) {
	t.Parallel()
	g := open(t)
	truth := records(t, worlds.Match, 500, tenMinutes)
	all := comments(grammar.NewFilm(g.World(worlds.Match), truth), "en")
	goals := 0
	for i, r := range truth[:tenMinutes-30] {
		if goal := r.Match.Goal; i <= 20 || goal == nil || goal.Age >= 0.2 {
			continue
		}
		goals++
		require.True(t, slices.ContainsFunc(all, func(s saying) bool {
			return strings.HasPrefix(s.news.Kind, "goal") && s.news.Kind != "goal_kick" && i <= s.picture && s.picture <= i+20
		}), "goal at %s", r.At)
	}
	require.Greater(t, goals, 2)
}

// Nearly every event of the yard is said while it shows.
func TestEventsAreTold(t *testing.T) {
	t.Parallel()
	const needed = 0.97
	g := open(t)
	f := film(t, g, worlds.Yard)
	for _, language := range grammar.Languages() {
		var news []grammar.News
		for _, s := range comments(f, language) {
			news = append(news, s.news)
		}
		told, due := grammar.Told(f, news)
		require.Greater(t, due, 20)
		require.Greater(t, float64(told)/float64(due), needed)
	}
}

// Looks for alerts are answered in JSON, with rules that were asked for. Where a rule stands does not tell whether it holds.
func TestAlerts(t *testing.T) {
	t.Parallel()
	g, d := open(t), grammar.NewDice(4)
	numbered := regexp.MustCompile(`(?m)^(\d+)\. `)
	var fired, rules, first, looks int
	for _, world := range worlds.Worlds() {
		f := film(t, g, world)
		for range 1500 {
			s := g.Setting(d)
			x := g.Make(d, s, f, f.Pick(d, 20), 4, 1)
			if !strings.HasPrefix(x.Text, "Rules:") {
				continue
			}
			var answer struct{ Fired []grammar.Fired }
			require.NoError(t, json.Unmarshal([]byte(x.Answer), &answer))
			asked := numbered.FindAllString(x.Text, -1)
			for _, r := range answer.Fired {
				require.NotEmpty(t, r.Reason)
				require.Contains(t, x.Text, "\n"+numberOf(r.Rule))
			}
			holds := 0
			for _, a := range x.Asked {
				holds += a.Holds
			}
			require.Len(t, x.Asked, len(asked))
			require.Len(t, answer.Fired, holds)
			fired, rules = fired+holds, rules+len(asked)
			first, looks = first+x.Asked[0].Holds, looks+1
		}
	}
	require.Greater(t, fired, 20)
	require.Less(t, float64(first)/float64(looks), 1.5*float64(fired)/float64(rules))
}

func numberOf(rule int) string { b, _ := json.Marshal(rule); return string(b) + ". " }

// The same seed gives the same examples.
func TestExamplesRepeat(t *testing.T) {
	t.Parallel()
	f := film(t, open(t), worlds.Match)
	draw := func() (out []grammar.Text) {
		g, d := open(t), grammar.NewDice(7)
		for range 50 {
			out = append(out, g.Make(d, g.Setting(d), f, f.Pick(d, 9), 4, 3), g.Stranger(d, g.Setting(d), false))
		}
		return out
	}
	again := draw()
	require.Equal(t, draw(), again)
}

// The hints are those that the engine writes.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, language := range grammar.Languages() {
		engine := inference.Capabilities{Languages: []string{language}}
		for mean, words := range map[float64]int{0: 6, 20: 10, 100: 18} {
			look := prompt.Look{Spoken: true, Change: mean}
			require.Equal(t, words, grammar.Limit(look.Prompt(inference.Config{}, engine).Text, language))
		}
		require.Equal(t, 18, grammar.Limit(prompt.Look{}.Prompt(inference.Config{}, engine).Text, language))
	}
}
