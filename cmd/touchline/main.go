// Command touchline is the live commentator: demo, join, agent, history, check.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"touchline/cmd/internal/modelcmd"
	"touchline/configs"
	"touchline/internal/redact"
	"touchline/internal/rescue"
)

// shutdown is how long an orderly end may take after Ctrl-C.
const shutdown = 2500 * time.Millisecond

type cli struct {
	Config   string `help:"Settings file (YAML). Without it: the defaults and TOUCHLINE_ variables." type:"path" short:"c"`
	LogLevel string `help:"trace, debug, info, warn or error; over the settings' own."`
	LogJSON  bool   `help:"Log JSON lines instead of text." name:"log-json"`

	demoCommand
	Join    joinCmd    `cmd:"" help:"Join a room of an existing LiveKit server and comment on a camera in it."`
	Agent   agentCmd   `cmd:"" help:"Serve the rooms of a LiveKit server that ask for a commentator, as an agent worker."`
	Camera  cameraCmd  `cmd:"" help:"Publish a camera, a stream, a file or a webcam in a room, without a bot; or take WHIP senders."`
	History historyCmd `cmd:"" help:"Show what was said in a room: text, JSON or subtitles (SRT, WebVTT)."`
	Models  modelsCmd  `cmd:"" help:"Look for model servers; make, check and list model bundles."`
	Bench   benchCmd   `cmd:"" help:"Time this machine."`
	Check   checkCmd   `cmd:"" help:"Print the settings in force and what is missing on this machine."`
	Health  healthCmd  `cmd:"" help:"Ask the agent worker of this machine whether it is well; exit code 0 when it is."`
	Version versionCmd `cmd:"" help:"Print the version."`
	Bots    botsCmd    `cmd:"" hidden:"" help:"Bots in several rooms of one process, for measurements."`
}

// exitPanic is the exit code of a panic, as Go has it.
const exitPanic = 2

// gcPercent trades a little CPU for memory: a bot's heap is small, some 10 MB,
// and most of what comes and goes is pictures, which hold no pointers.
const gcPercent = 25

// app is what every command gets.
type app struct {
	cfg configs.Config
	log zerolog.Logger
}

func main() {
	if was := debug.SetGCPercent(gcPercent); was != 100 {
		debug.SetGCPercent(was) // GOGC was set
	}
	var c cli
	parser := kong.Must(&c, kong.Name("touchline"), kong.UsageOnError(),
		kong.Description("A live commentator for any LiveKit room."))
	kctx, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	os.Exit(run(&c, kctx))
}

// run is the one place that turns errors into an exit code.
func run(c *cli, kctx *kong.Context) int {
	// Variables of flags are no settings.
	flags := flagVariables(kctx.Model.Node)
	cfg, err := configs.Load(c.Config, slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(flags, name)
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if c.LogLevel != "" {
		cfg.LogLevel = c.LogLevel
	}
	level, err := zerolog.ParseLevel(cfg.LogLevel)
	if err != nil {
		fmt.Fprintf(os.Stderr, "log level: expected trace, debug, info, warn or error, got %q\n", cfg.LogLevel)
		return 2
	}
	var log zerolog.Logger
	if c.LogJSON {
		log = zerolog.New(redact.Writer{Out: os.Stderr})
	} else {
		log = zerolog.New(zerolog.ConsoleWriter{Out: redact.Writer{Out: os.Stderr}, TimeFormat: time.TimeOnly})
	}
	log = log.Level(level).With().Timestamp().Logger()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	kctx.BindTo(ctx, (*context.Context)(nil))
	go func() { done <- kctx.Run(&app{cfg: cfg, log: log}) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		stop() // a second signal kills, unless the command knows what to do with it
		limit := shutdown
		if c, ok := kctx.Selected().Target.Addr().Interface().(interface {
			patience(cfg configs.Config) time.Duration
		}); ok {
			limit = c.patience(cfg)
		}
		select {
		case err = <-done:
		case <-time.After(limit):
			log.Error().Dur("after", limit).Msg("parts are still running; leaving without them")
			return 1
		}
	}
	// What runs until it is interrupted has done its work; a conversion has not.
	finite := strings.HasPrefix(kctx.Command(), "models ") || strings.HasPrefix(kctx.Command(), "bench ") ||
		strings.HasPrefix(kctx.Command(), "history")
	if err != nil && (finite || !errors.Is(err, context.Canceled)) {
		if p, crash := rescue.Of(err); crash {
			c.logPanic(log, p)
			return exitPanic
		}
		log.Error().Err(err).Msg("touchline ends")
		return modelcmd.ExitCode(err)
	}
	return 0
}

// logPanic tells where the code panicked: in a log of JSON lines as a part of the last one, otherwise after it,
// as Go prints its own.
func (c *cli) logPanic(log zerolog.Logger, p *rescue.PanicError) {
	if c.LogJSON {
		log.Error().Err(p).Bytes("stack", p.Stack).Msg("touchline ends")
		return
	}
	log.Error().Err(p).Msg("touchline ends")
	fmt.Fprintf(redact.Writer{Out: os.Stderr}, "panic: %v\n\n%s", p.Value, p.Stack)
}

// flagVariables are the variables that flags of a command or of those below it are read from.
func flagVariables(n *kong.Node) []string {
	var out []string
	for _, f := range n.Flags {
		out = append(out, f.Envs...)
	}
	for _, child := range n.Children {
		out = append(out, flagVariables(child)...)
	}
	return out
}

type versionCmd struct{}

// Run prints the version that the Go tool stamped into the program.
func (versionCmd) Run() error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	_, err := fmt.Println("touchline", version)
	return err
}
