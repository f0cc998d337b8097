// Command touchline is the live commentator: demo, join, agent, history, check.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"touchline/cmd/internal/modelcmd"
	"touchline/configs"
	"touchline/internal/child"
	"touchline/internal/redact"
	"touchline/internal/rescue"
)

// shutdown is the time for an orderly end after Ctrl-C.
const shutdown = 2500 * time.Millisecond

type cli struct {
	Config   string `help:"Settings file (YAML); without it, defaults and TOUCHLINE_ variables." type:"path" short:"c"`
	LogLevel string `help:"Log level: trace, debug, info, warn or error; overrides the settings."`
	LogJSON  bool   `help:"Log JSON lines instead of text." name:"log-json"`

	ShowVersion versionFlag `name:"version" help:"Print the version."`

	demoCommand
	Run        runCmd        `cmd:"" help:"Comment on your own camera: server, bot and page in one process, without a generated world."`
	Join       joinCmd       `cmd:"" help:"Join a room of an existing LiveKit server and comment on a camera in it."`
	Agent      agentCmd      `cmd:"" help:"Serve the rooms of a LiveKit server that ask for a commentator, as an agent worker."`
	Camera     cameraCmd     `cmd:"" help:"Publish a camera, a stream, a file or a webcam in a room, without a bot; or accept WHIP senders."`
	Ask        askCmd        `cmd:"" help:"Ask the configured engine a question about pictures, and measure it."`
	Say        sayCmd        `cmd:"" help:"Speak a text with the configured voice into a WAV file."`
	Transcribe transcribeCmd `cmd:"" help:"Write what is said in recordings, with the configured recognizer."`
	Serve      serveCmd      `cmd:"" help:"Serve transcription with OpenAI's API, without LiveKit and cameras."`
	History    historyCmd    `cmd:"" help:"Print the comments of a room: text, JSON or subtitles (SRT, WebVTT)."`
	Token      tokenCmd      `cmd:"" help:"Make a token for a link to a room's page: one that watches, or one that steers."`
	Models     modelsCmd     `cmd:"" help:"Find model servers; make, check and list model bundles."`
	Bench      benchCmd      `cmd:"" passthrough:"" help:"Benchmark this machine (touchline-model)."`
	Check      checkCmd      `cmd:"" help:"Print the effective settings and what is missing on this machine."`
	Health     healthCmd     `cmd:"" help:"Probe the agent worker of this machine; exit code 0 when it is healthy."`
	Version    versionCmd    `cmd:"" help:"Print the version: release, commit and Go version."`
}

// Exit codes in addition to modelcmd.ExitCode: invalid settings, and a panic, as for any Go program.
const (
	exitUsage = 2
	exitPanic = 2
)

// usageError is an error in the settings and flags of a command, found after the command line was parsed.
type usageError struct{ error }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

// invalid makes an error of Validate a usageError; nil stays nil.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// gcPercent trades a little CPU for memory: a bot's heap is small, some 10 MB, and most allocations are pictures, which
// hold no pointers.
const gcPercent = 25

// app holds the settings and the log, for every command.
type app struct {
	cfg configs.Config
	log zerolog.Logger
}

// hide keeps other processes of this user from reading this one's memory, environment and descriptors, and prevents core dumps, unless
// GOTRACEBACK=crash asks for one.
func hide() {
	if os.Getenv("GOTRACEBACK") != "crash" { //nolint:forbidigo // a variable of Go
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail
	}
}

func main() {
	hide()
	runtime.MemProfileRate = 0 // no code reads the profile, whose tables need 1.5 MB
	// ONNX Runtime reads the variable when it is loaded. Later, other threads may read the environment.
	_ = os.Setenv("ORT_DISABLE_TELEMETRY", "1")
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

// run runs the chosen command and returns the exit code of the program.
func run(c *cli, kctx *kong.Context) int {
	// The environment variables of flags are no settings.
	flags := flagVariables(kctx.Model.Node)
	cfg, err := configs.Load(c.Config, slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(flags, name)
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, "touchline:", err)
		return exitUsage
	}
	cfg.LogLevel = cmp.Or(c.LogLevel, cfg.LogLevel)
	level, err := zerolog.ParseLevel(cfg.LogLevel)
	if err != nil {
		fmt.Fprintf(os.Stderr, "touchline: log level %q: unknown; choose trace, debug, info, warn or error\n", cfg.LogLevel)
		return exitUsage
	}
	stderr := redact.Writer{Out: os.Stderr}
	log := zerolog.New(stderr)
	if !c.LogJSON {
		log = textLog(stderr, isTerminal(os.Stderr))
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
		stop() // a second signal kills the program, unless the command handles it
		limit := shutdown
		if c, ok := kctx.Selected().Target.Addr().Interface().(interface {
			shutdownTimeout(cfg configs.Config) time.Duration
		}); ok {
			limit = c.shutdownTimeout(cfg)
		}
		select {
		case err = <-done:
		case <-time.After(limit):
			log.Error().Int64("after_ms", limit.Milliseconds()).Msg("shutdown timed out")
			return 1
		}
	}
	if err == nil || errors.Is(err, context.Canceled) && isEndless(kctx) {
		return 0
	}
	return fail(stderr, log, c.LogJSON, err)
}

// textLog writes lines of text, coloured on a terminal unless NO_COLOR is set.
func textLog(out io.Writer, terminal bool) zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: out, NoColor: !terminal, TimeFormat: time.TimeOnly})
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// isEndless reports whether the chosen command serves until it is interrupted: then an interruption is its normal end.
func isEndless(kctx *kong.Context) bool {
	_, endless := kctx.Selected().Target.Addr().Interface().(interface{ endless() })
	return endless
}

// logConfinement logs what this kernel has to confine programs that parse untrusted input. A container or service manager may refuse it.
func logConfinement(log zerolog.Logger) {
	text, all := child.Available()
	line := log.Info()
	if !all {
		line = log.Warn()
	}
	line.Str("kernel", text).Msg("confinement of programs")
}

// fail reports the error of a command, with the stack of a panic, and returns the exit code. The report is text, or
// the last line of a log of JSON lines.
func fail(stderr io.Writer, log zerolog.Logger, logJSON bool, err error) int {
	if _, ran := errors.AsType[*exec.ExitError](err); ran {
		return modelcmd.ExitCode(err) // touchline-model has printed the reason
	}
	p, crash := rescue.Of(err)
	switch {
	case logJSON && crash:
		log.Error().Err(err).Bytes("stack", p.Stack).Msg("touchline failed")
	case logJSON:
		log.Error().Err(err).Msg("touchline failed")
	default:
		fmt.Fprintln(stderr, "touchline:", err)
		if crash {
			fmt.Fprintf(stderr, "panic: %v\n\n%s", p.Value, p.Stack)
		}
	}
	if crash {
		return exitPanic
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return modelcmd.ExitCode(err)
}

// flagVariables returns the environment variables of the flags of a command and its subcommands.
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
