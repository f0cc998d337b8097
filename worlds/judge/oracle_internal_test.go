//go:build integration

package judge

import (
	"context"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/grammar"
)

// oracle is a session of a commentator without faults: the grammar of nano's training, which knows the truth.
type oracle struct {
	inference.Model
	inference.Session

	v          *viewing
	orders     map[string]order // by their texts
	at         time.Duration
	film       *grammar.Film
	records    []worlds.Truth
	dice       grammar.Dice
	commentary *grammar.Commentator
}

// The windows of the settings: pictures, and how many of the film's pictures they are apart.
const oraclePictures, oracleStep = 4, 3

func (o *oracle) Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true, Structured: true, Languages: []string{"en", "es"}}
}

func (o *oracle) Close() error { return nil }

func (o *oracle) Observe(f inference.Frame) { o.at = f.PTS }

func (o *oracle) Generate(_ context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	at := o.at
	if len(p.Frames) > 0 {
		at = p.Frames[len(p.Frames)-1].PTS
	}
	last := int(math.RoundToEven(at.Seconds() * grammar.FPS))
	text := o.answer(min(len(o.film.Facts)-1, max(oracleStep*(oraclePictures-1), last)), p)
	return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: text}, nil) }
}

// answer is the one to a look at picture i of the film.
func (o *oracle) answer(i int, p inference.Prompt) string {
	if len(p.Rules) > 0 {
		return o.rules(i)
	}
	_, after, ordered := strings.Cut(p.Text, "Focus: ")
	if !ordered {
		return o.commentary.Look(o.dice, i, grammar.Limit(p.Text, o.v.language))
	}
	text, _, _ := strings.Cut(after, "\n")
	given := o.orders[text]
	asked, limit := o.order(i, given), 18
	if given.kind == "short" {
		limit = 5
	}
	c := grammar.NewCommentator(o.film, oraclePictures, oracleStep, o.v.language, o.v.profile.Name, &asked, i)
	return c.Look(o.dice, i, limit)
}

// rules answers which alert rules hold.
func (o *oracle) rules(i int) string {
	var fired []grammar.Fired
	w := o.film.Window(i, oraclePictures, oracleStep)
	for _, r := range o.v.alerts.rules {
		if n := o.film.World.Holds(o.dice, o.order(i, order{kind: r.kind, colour: r.colour}), w); n != nil {
			reason := o.film.World.Word(o.dice, w, n, grammar.Voice{Language: o.v.language, Register: "calm"}, 8, "")
			fired = append(fired, grammar.Fired{Rule: r.Number, Reason: reason})
		}
	}
	return grammar.FiredText(fired...)
}

// order is one as the grammar has it.
func (o *oracle) order(i int, x order) grammar.Order {
	var team *int
	if m := o.records[i].Match; m != nil && x.team != "" {
		team = new(slices.IndexFunc(m.Teams[:], func(name string) bool { return strings.EqualFold(name, x.team) }))
	}
	return grammar.NewOrder(x.kind, team, x.number, x.colour)
}

// TestOracle: what training calls right, truth does too, and what happens can be told.
func TestOracle(t *testing.T) {
	g, err := grammar.New()
	require.NoError(t, err)
	// In Spanish, which takes longer to say, more that is small goes by while the voice speaks of something else.
	due := map[string][]string{worlds.Match: {"goal", "save", "post", "shot", "wide", "kick_off", "free_kick", "half_time"}}
	for _, world := range worlds.Worlds() {
		for _, language := range []string{"en", "es"} {
			t.Run(world+" "+language, func(t *testing.T) {
				t.Parallel()
				c := &Command{Engine: "nano", World: world, Language: language, FirstSeed: 1000, Seeds: 2, Minutes: 6, NoCodec: true, Orders: 20, Alerts: true}
				result := &Result{Report: claims.Report{}}
				for seed := range uint64(c.Seeds) {
					v := c.ask(t, g, 1000+seed)
					result.Report.Add(v.tally.Report(0, v.length))
					result.addOrders(v)
					result.addAlerts(v.alerts)
				}
				require.NoError(t, c.print(t.Output(), result))
				r := result.Report
				require.LessOrEqual(t, 100*r.Wrong, r.Comments, "%q", r.Examples)
				told := claims.Share{}
				for kind, e := range r.Events {
					if due[world] == nil || slices.Contains(due[world], kind) {
						told = told.Plus(e.Share)
					}
				}
				require.GreaterOrEqual(t, 100*told.Right, 93*told.Of)
				obeyed := claims.Share{}
				for kind, s := range result.Orders {
					require.GreaterOrEqual(t, 100*s.Right, 80*s.Of, kind)
					obeyed = obeyed.Plus(s)
				}
				require.GreaterOrEqual(t, 100*obeyed.Right, 97*obeyed.Of, "%q", result.Disobeyed)
				require.GreaterOrEqual(t, 100*result.Alerts.Fired.Right, 97*result.Alerts.Fired.Of, "%q", result.Alerts.Examples)
				require.LessOrEqual(t, 500*result.Alerts.False, result.Alerts.Looks, "%q", result.Alerts.Examples)
			})
		}
	}
}

// ask shows a film to the oracle.
func (c *Command) ask(t *testing.T, g *grammar.Grammar, seed uint64) *viewing {
	t.Helper()
	cfg, err := c.settings(nil)
	require.NoError(t, err)
	profile, err := findProfile(cfg)
	require.NoError(t, err)
	w, err := worlds.New(worlds.Options{World: c.World, Seed: seed, Width: 160, Height: 90})
	require.NoError(t, err)
	const apart = 30 / grammar.FPS // frames
	o := &oracle{orders: map[string]order{}, dice: grammar.NewDice(1)}
	for n := range uint32(60 * c.Minutes * grammar.FPS) {
		o.records = append(o.records, w.Record(n*apart, n*apart-min(n*apart, apart)))
	}
	o.film = grammar.NewFilm(g.World(c.World), o.records)
	o.commentary = grammar.NewCommentator(o.film, oraclePictures, oracleStep, c.Language, cfg.Agent.Profile, nil, 0)
	o.v = &viewing{
		cfg: cfg, profile: profile, model: o, session: o, length: time.Duration(c.Minutes) * time.Minute, seed: seed,
		tally: claims.NewTally(w, c.Language, c.World), world: w, language: c.Language, topics: topics(c.World),
		followed: map[string]claims.Share{}, slots: slots{spanish: c.Language == "es"},
	}
	require.NoError(t, c.prepare(o.v))
	for _, x := range o.v.orders {
		o.orders[x.text] = x
	}
	film, err := newFilm(t.Context(), w, 32, o.v.length, false)
	require.NoError(t, err)
	require.NoError(t, o.v.watch(t.Context(), film))
	return o.v
}
