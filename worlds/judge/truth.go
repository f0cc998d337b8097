// Package judge is the command `touchline-bench truth`: an engine comments on generated worlds as
// in a session of the agent, and the comments are judged by the worlds' truth. docs/truth.md
// explains the figures.
//
// Time is simulated: a film is watched as fast as the machine can, and the next look comes when a
// live session would take it.
package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/prompt"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/nano"
	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/train/words"
)

// Command is the command line.
type Command struct {
	Engine    string `help:"Engine: ${enum}." default:"nano" enum:"scene,nano,remote,minicpmo"`
	World     string `help:"Generated world: ${enum}." default:"match" enum:"match,yard"`
	FirstSeed uint64 `help:"Seed of the first film." default:"1000"`
	Seeds     int    `help:"Number of films." default:"20"`
	Minutes   int    `help:"Length of each film in minutes." default:"10"`
	JSON      string `name:"json" help:"File for the figures as JSON." placeholder:"FILE"`

	Language    string   `help:"Language of the comments, en or es; that of the settings if not given." placeholder:"TAG"`
	Profile     string   `help:"Prompt profile; that of the settings if not given." placeholder:"NAME"`
	Instruction string   `help:"Instruction of the viewer."`
	Model       string   `help:"Bundle or checkpoint of the built-in model, or of another nano." type:"existingdir" placeholder:"DIR"`
	Device      string   `help:"Device of the built-in model, cpu or cuda; that of the settings if not given." placeholder:"DEVICE"`
	Precision   string   `help:"Weights of the built-in model: int4, fp16 or fp32." placeholder:"WEIGHTS"`
	Temperature *float64 `help:"Temperature of the built-in model."`
	Config      string   `help:"Settings file, for remote engines above all." type:"existingfile" placeholder:"FILE"`

	Orders    int    `help:"Orders and questions of each kind, over all films."`
	Trained   bool   `help:"Give orders in the wordings that nano was trained on, not in those held out."`
	Letterbox int    `help:"With --orders: ask for score and clock also with black bars of so many percent." placeholder:"PERCENT"`
	Alerts    bool   `help:"Also ask which alert rules hold."`
	Strangers int    `help:"Also show so many generated pictures that are of neither world."`
	Pictures  string `help:"Also show the PNG and JPEG pictures of a folder, as strangers." type:"existingdir" placeholder:"DIR"`

	Parallel int  `help:"Films at once." default:"1"`
	NoCodec  bool `help:"Show the pictures as drawn, without encoding them; faster."`
	Comments bool `help:"Print every comment and its claims."`
}

// Run watches all films and prints the figures.
func (c *Command) Run(ctx context.Context, log zerolog.Logger) error {
	if c.Seeds < 1 || c.Minutes < 1 || c.Parallel < 1 {
		return errors.New("--seeds, --minutes and --parallel: must be positive")
	}
	cfg, err := c.settings(os.Environ())
	if err != nil {
		return err
	}
	began := time.Now()
	result, err := c.watchAll(ctx, cfg, log)
	if err != nil {
		return err
	}
	result.Took = time.Since(began).Seconds()
	if err := c.print(os.Stdout, result); err != nil {
		return err
	}
	if c.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(c.JSON, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}

// settings returns the settings of the file and of an environment, with the command's own.
func (c *Command) settings(environ []string) (configs.Config, error) {
	cfg, err := configs.Load(c.Config, environ)
	if err != nil {
		return cfg, err
	}
	cfg.Inference.Engine = c.Engine
	m := &cfg.Inference.MiniCPM
	set := func(to *string, value string) {
		if value != "" {
			*to = value
		}
	}
	set(&cfg.Inference.Voice.Language, c.Language)
	set(&cfg.Agent.Profile, c.Profile)
	set(&m.Path, c.Model)
	if c.Engine == "nano" {
		m.Device, m.Slots, m.VisionCache = "cpu", nano.Slots, nano.VisionCache
		m.PrefixCache = nano.PrefixCache
		cfg.Agent.Stride = max(cfg.Agent.Stride, nano.Stride)
	}
	set(&m.Device, c.Device)
	set(&m.Weights, c.Precision)
	if c.Temperature != nil {
		m.Temperature = *c.Temperature
	}
	return cfg, cfg.Validate()
}

// Result has all figures.
type Result struct {
	Engine    string  `json:"engine"`
	World     string  `json:"world"`
	Language  string  `json:"language"`
	FirstSeed uint64  `json:"first_seed"`
	Seeds     int     `json:"seeds"`
	Took      float64 `json:"took_seconds"`
	// Answer is the mean time of an answer, in seconds.
	Answer float64       `json:"answer_seconds"`
	Report claims.Report `json:"report"`
	// Orders counts followed orders by kind; Disobeyed lists the others.
	Orders    map[string]claims.Share `json:"orders,omitempty"`
	Disobeyed []string                `json:"disobeyed,omitempty"`
	Alerts    *Alerts                 `json:"alerts,omitempty"`
	// Strangers counts answers about pictures of neither world that make no claim about the world.
	Strangers claims.Share `json:"strangers"`
	Taken     []string     `json:"taken,omitempty"`
}

// watchAll watches the films, several in parallel.
func (c *Command) watchAll(ctx context.Context, cfg configs.Config, log zerolog.Logger) (*Result, error) {
	engines := newEngines(c, cfg, log)
	defer engines.close(log)
	profile, err := findProfile(cfg)
	if err != nil {
		return nil, err
	}
	seen := make([]*viewing, c.Seeds)
	g, watching := errgroup.WithContext(ctx)
	g.SetLimit(c.Parallel)
	for i := range seen {
		g.Go(func() error {
			if err := watching.Err(); err != nil {
				return err
			}
			v, err := c.watch(watching, cfg, profile, engines, c.FirstSeed+uint64(i))
			if err != nil {
				return fmt.Errorf("watch seed %d: %w", c.FirstSeed+uint64(i), err)
			}
			seen[i] = v
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := &Result{Engine: c.Engine, World: c.World, Language: cfg.Inference.Voice.Language, FirstSeed: c.FirstSeed, Seeds: c.Seeds}
	var answers time.Duration
	for _, v := range seen {
		out.Report.Add(v.tally.Report(0, v.length))
		out.addOrders(v)
		if c.Alerts {
			out.addAlerts(v.alerts)
		}
		answers += v.answering
		if c.Comments {
			fmt.Printf("seed %d\n%s\n\n", v.seed, strings.Join(v.comments, "\n"))
		}
	}
	out.Answer = answers.Seconds() / float64(max(1, out.Report.Looks))
	return out, c.meetStrangers(ctx, cfg, profile, engines, out)
}

// watch shows one film to an engine.
func (c *Command) watch(ctx context.Context, cfg configs.Config, profile prompt.Profile, engines *engines, seed uint64) (*viewing, error) {
	model, give, err := engines.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	session, err := model.NewSession()
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	defer func() { _ = session.Close() }()
	world, err := worlds.New(worlds.Options{World: c.World, Seed: seed, Width: 1280, Height: 720})
	if err != nil {
		return nil, err
	}
	length := time.Duration(c.Minutes) * time.Minute
	v := &viewing{
		cfg: cfg, profile: profile, model: model, session: session, instruction: c.Instruction, length: length, seed: seed,
		measured: c.Engine == "remote" || c.Engine == "minicpmo",
		tally:    claims.NewTally(world, cfg.Inference.Voice.Language, c.World),
		world:    world, language: cfg.Inference.Voice.Language, topics: topics(c.World), followed: map[string]claims.Share{},
		letterbox: c.Letterbox, slots: slots{spanish: strings.HasPrefix(cfg.Inference.Voice.Language, "es")},
	}
	if err := c.prepare(v); err != nil {
		return nil, err
	}
	film, err := newFilm(ctx, world, cfg.Media.LongSide, length, !c.NoCodec)
	if err != nil {
		return nil, err
	}
	return v, errors.Join(v.watch(ctx, film), film.close())
}

// prepare draws the orders and the alert rules of a film.
func (c *Command) prepare(v *viewing) (err error) {
	language := "en"
	if v.slots.spanish {
		language = "es"
	}
	if v.book, err = words.Open(c.World, language); err != nil {
		return err
	}
	if c.Alerts {
		v.alerts = c.newAlerts(v)
	}
	c.schedule(v)
	return nil
}

func findProfile(cfg configs.Config) (prompt.Profile, error) {
	for _, p := range cfg.Profiles {
		if p.Name == cfg.Agent.Profile {
			return p, nil
		}
	}
	return prompt.Profile{}, fmt.Errorf("--profile %q: no such profile", cfg.Agent.Profile)
}

// say collects an answer.
func say(ctx context.Context, s inference.Session, p inference.Prompt) (answer string, took time.Duration, err error) {
	began := time.Now()
	var text strings.Builder
	for chunk, err := range s.Generate(ctx, p) {
		if err != nil {
			return "", 0, fmt.Errorf("answer: %w", err)
		}
		text.WriteString(chunk.Text)
	}
	return text.String(), time.Since(began), nil
}

func percent(s claims.Share) string {
	if s.Of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %% of %d", 100*float64(s.Right)/float64(s.Of), s.Of)
}

func line(out io.Writer, name string, format string, values ...any) {
	fmt.Fprintf(out, "%-42s %s\n", name, fmt.Sprintf(format, values...))
}
