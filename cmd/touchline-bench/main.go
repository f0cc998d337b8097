// Command touchline-bench measures Touchline from outside: alignment, relay,
// cost, recovery. It prints tables and fails when a figure misses its goal. It
// also writes films of the generated worlds with the truth about them, and judges
// what an engine says of them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/cmd/internal/bench"
	"touchline/worlds/film"
	"touchline/worlds/judge"
)

type cli struct {
	LogLevel string `help:"Level of the log on standard error." default:"error" enum:"trace,debug,info,warn,error"`

	Run  runCmd  `cmd:"" help:"Measure everything once and print tables."`
	Soak soakCmd `cmd:"" help:"Run under faults for long and print what happened."`

	Orders ordersCmd `cmd:"" help:"Measure the recognizer of spoken orders with synthetic voices, and print a table."`

	World film.Command  `cmd:"" help:"Write a film of a generated world, and a record of what each picture shows."`
	Truth judge.Command `cmd:"" help:"Let an engine comment on generated worlds, and judge what it says by their truth."`

	Role roleCmd `cmd:"" hidden:"" help:"One process of a run, beside the bots."`
}

const description = "Measures Touchline from outside."

func main() {
	// ONNX Runtime reads it when it is loaded, and by then other threads may read the environment.
	_ = os.Setenv("ORT_DISABLE_TELEMETRY", "1")
	var c cli
	kctx := kong.Parse(&c, kong.Name("touchline-bench"), kong.UsageOnError(), kong.Description(description))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	level, err := zerolog.ParseLevel(c.LogLevel)
	kctx.FatalIfErrorf(err)
	lines := zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, TimeFormat: time.TimeOnly}
	log := zerolog.New(lines).Level(level).With().Timestamp().Logger()
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.FatalIfErrorf(kctx.Run(log))
}

// printing are the flags of commands that print tables.
type printing struct {
	Markdown bool `help:"Print Markdown, as in docs/benchmarks.md."`
	JSON     bool `help:"Print JSON: each table with its figures, goals and errors."`
}

// report returns a report that has begun.
func (p printing) report() *bench.Report {
	info, _ := debug.ReadBuildInfo()
	out := &bench.Report{Out: os.Stdout, Markdown: p.Markdown, JSON: p.JSON}
	out.Begin(time.Now(), bench.Commit(info), bench.Machine())
	return out
}

type runCmd struct {
	printing

	Only     []string      `help:"Only these parts." placeholder:"PART"`
	Bin      string        `help:"Folder of the programs to measure, such as another release; by default this one's." type:"existingdir"`
	Comments int           `help:"Comments of each alignment run." default:"60"`
	Browser  int           `help:"Comments of each voice in each browser." default:"12"`
	Relay    time.Duration `help:"Length of the relay run." default:"10m"`
	Sound    bool          `help:"Camera with sound in alignment, steady and relay."`
	Cost     time.Duration `help:"Length of each cost run." default:"40s"`
	Bundle   string        `help:"For own-voice and browser: a bundle of the built-in model." type:"existingdir"`

	// self is the command line of this program; nil for its own file.
	self func(args ...string) *exec.Cmd
}

// scenario is one table: a name, what it shows, and how it is measured.
type scenario struct {
	name, title string
	measure     func(r *run)
}

// scenarios are all parts of run, in their order.
func scenarios() []scenario {
	const ms = time.Millisecond
	random := alignment{least: 400 * ms, most: 3 * time.Second, pauseOff: 300 * ms}
	steady := alignment{least: 1200 * ms, most: 1200 * ms, pauseOff: 150 * ms}
	return []scenario{
		{"alignment", "Alignment, model latency 0.4 to 3 s at random, 640x360", random.measure},
		{"steady", "Alignment, model latency always 1.2 s, 640x360", steady.measure},
		{"own-voice", "Alignment in the model's own voice, 640x360", ownVoice},
		{"delay", "D forced 2 -> 5 -> 2 s", delayChange},
		{"relay", "Relay of the delayed copy", relay},
		{"browser", "The voice after its picture, in browsers that show the page", browsers},
		{"hearing", "People who speak in the room, recognizer latency 20 ms", hearing},
		{"field", "Foreign model servers, files and cameras", field},
		{"cost", "Cost of whole bots (scene engine, speech, relay, one viewer each)", cost},
		{"sight", "Engine sight above scene (CPU, memory), and from an event to the first word", sight},
		{"sight-rooms", "Eight rooms in one worker on two cores, engines scene and sight", sightTogether},
		{"crowded", "Many rooms of 320x180 in one worker on two cores, scripted model", crowded},
		{"demo", "Cost of the demo (server, world, encoder, bot, voice): scene engine and nano", demo},
	}
}

// Run measures the scenarios one after another.
func (c *runCmd) Run(ctx context.Context, log zerolog.Logger) error {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	for _, only := range c.Only {
		if !slices.Contains(names, only) {
			return fmt.Errorf("--only %q: no such part; choose from %s", only, strings.Join(names, ", "))
		}
	}
	lksdk.SetLogger(logger.GetDiscardLogger()) // until the first bot of this process sets its own
	out := c.report()
	for _, s := range scenarios() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, s.name) {
			continue
		}
		figures, err := c.measure(ctx, log, s.measure)
		out.Table(s.title, "touchline-bench run --only "+s.name, figures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return out.End()
}

// measure runs a scenario.
func (c *runCmd) measure(ctx context.Context, log zerolog.Logger, scenario func(r *run)) ([]bench.Figure, error) {
	return bench.Measure(ctx, func(r *bench.Run) { scenario(&run{Run: r, flags: c, log: log}) })
}

type soakCmd struct {
	printing

	Length time.Duration `help:"Length of the run with faults; each fault is injected once at least." default:"30m"`
	Seed   uint64        `help:"Seed of the fault script." default:"1"`
	Only   []string      `help:"Only these faults, such as \"camera gone\"."`
	Quick  bool          `help:"Short faults without pauses between them."`
	Rooms  int           `help:"Rooms. The first has all faults; with several, hostile participants join each." default:"1"`

	Hostile int    `help:"Instead of faults: so many hostile clients flood a worker in the middle third of the run." placeholder:"N"`
	Apart   bool   `help:"For --hostile: readers, offers, sockets and thumbnails one after the other, instead of all kinds together."`
	Bin     string `help:"For --hostile: folder of the programs to measure; by default this one's." type:"existingdir"`
}

// Run keeps bots commenting under a script of faults, or of hostile clients, and reports alignment, comments and memory.
func (c *soakCmd) Run(ctx context.Context, log zerolog.Logger) error {
	out := c.report()
	if log.GetLevel() == zerolog.ErrorLevel {
		log = log.Level(zerolog.FatalLevel) // the client library's errors about a server that is away on purpose
	}
	measure, title := func(r *run) { c.measure(r, os.Stderr) }, "Soak"
	command := fmt.Sprintf("touchline-bench soak --length %v --seed %d --rooms %d", c.Length, c.Seed, c.Rooms)
	if c.Hostile > 0 {
		measure, title = func(r *run) { c.flood(r, os.Stderr) }, "Hostile clients"
		command += fmt.Sprintf(" --hostile %d", c.Hostile)
		if c.Apart {
			command += " --apart"
		}
	}
	figures, err := (&runCmd{Bin: c.Bin}).measure(ctx, log, measure)
	out.Table(title, command, figures, err)
	return out.End()
}
