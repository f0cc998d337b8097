//go:build integration

package truth

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/media/toyworld"
	"touchline/media/toyworld/claims"
)

// oracle is a session of a commentator without faults: the grammar of nano's training, which knows the truth.
type oracle struct {
	inference.Model
	inference.Session

	v      *viewing
	orders map[string]order // by their texts
	at     time.Duration
	in     io.Writer
	out    *bufio.Scanner
}

func (o *oracle) Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true, Structured: true, Languages: []string{"en", "es"}}
}

func (o *oracle) Close() error { return nil }

func (o *oracle) Observe(f inference.Frame) { o.at = f.PTS }

func (o *oracle) Generate(_ context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	type asked struct {
		Kind   string `json:"kind"`
		Team   string `json:"team"`
		Number int    `json:"number"`
		Colour string `json:"colour"`
	}
	look := struct {
		At    float64          `json:"at"`
		Text  string           `json:"text"`
		Order *asked           `json:"order"`
		Rules map[string]asked `json:"rules"`
	}{At: o.at.Seconds(), Text: p.Text}
	if len(p.Frames) > 0 {
		look.At = p.Frames[len(p.Frames)-1].PTS.Seconds()
	}
	if _, after, ok := strings.Cut(p.Text, "Focus: "); ok {
		text, _, _ := strings.Cut(after, "\n")
		x := o.orders[text]
		look.Order = &asked{x.kind, x.team, x.number, x.colour}
	}
	if len(p.Rules) > 0 {
		look.Rules = map[string]asked{}
		for _, r := range o.v.alerts.rules {
			look.Rules[strconv.Itoa(r.Number)] = asked{Kind: r.kind, Colour: r.colour}
		}
	}
	return func(yield func(inference.Chunk, error) bool) {
		line, err := json.Marshal(look)
		if err == nil {
			_, err = o.in.Write(append(line, '\n'))
		}
		if err != nil || !o.out.Scan() {
			yield(inference.Chunk{}, fmt.Errorf("ask the oracle: %w", cmp.Or(err, o.out.Err(), io.ErrUnexpectedEOF)))
			return
		}
		yield(inference.Chunk{Text: o.out.Text()}, nil)
	}
}

// TestOracle: what training calls right, truth does too, and what happens can be told.
func TestOracle(t *testing.T) {
	render := filepath.Join(t.TempDir(), "render")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", render, "touchline/models/nano/render").CombinedOutput()
	require.NoError(t, err, "%s", out)
	// In Spanish, which takes longer to say, more that is small goes by while the voice speaks of something else.
	due := map[string][]string{toyworld.Match: {"goal", "save", "post", "shot", "wide", "kick_off", "free_kick", "half_time"}}
	for _, world := range toyworld.Worlds() {
		for _, language := range []string{"en", "es"} {
			t.Run(world+" "+language, func(t *testing.T) {
				t.Parallel()
				c := &Command{Engine: "nano", World: world, Language: language, FirstSeed: 1000, Seeds: 2, Minutes: 6, NoCodec: true, Orders: 20, Alerts: true}
				result := &Result{Report: claims.Report{}}
				for seed := range uint64(c.Seeds) {
					v := c.ask(t, render, 1000+seed)
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
func (c *Command) ask(t *testing.T, render string, seed uint64) *viewing {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), render, "-world", c.World, "-first", strconv.FormatUint(seed, 10), "-seeds", "1", //nolint:gosec // a test
		"-seconds", strconv.Itoa(60*c.Minutes), "-offset", "0", "-pixels=false", "-out", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cfg, err := c.settings(nil)
	require.NoError(t, err)
	profile, err := findProfile(cfg)
	require.NoError(t, err)
	w, err := toyworld.New(toyworld.Options{World: c.World, Seed: seed, Width: 160, Height: 90})
	require.NoError(t, err)
	python := exec.CommandContext(t.Context(), "python3", "oracle.py", c.World, filepath.Join(dir, fmt.Sprint(seed, ".jsonl")), c.Language, cfg.Agent.Profile) //nolint:gosec // a test
	python.Dir = filepath.Join("..", "..", "..", "models", "nano", "train")
	python.Stderr = t.Output()
	in, err := python.StdinPipe()
	require.NoError(t, err)
	answers, err := python.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, python.Start())
	o := &oracle{in: in, out: bufio.NewScanner(answers), orders: map[string]order{}}
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
	require.NoError(t, in.Close())
	require.NoError(t, python.Wait())
	return o.v
}
