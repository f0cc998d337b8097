// Command touchline-model converts, checks and benchmarks model bundles, without LiveKit and video codecs, for example on a GPU machine
// that prepares bundles. Touchline runs it for `bench`, for `models`, and to prepare nano.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"touchline/cmd/internal/modelcmd"
	"touchline/internal/child"
	"touchline/internal/redact"
	"touchline/models/nano"
)

type cli struct {
	Models modelsCmd `cmd:"" help:"Create and check model bundles."`
	Bench  benchCmd  `cmd:"" help:"Benchmark this machine."`
	Nano   nanoCmd   `cmd:"" hidden:"" help:"Make the bundle of nano that touchline wants."`
	Hold   holdCmd   `cmd:"" hidden:"" help:"Hold the memory of a GPU until standard input ends."`
}

// general are flags of touchline, which passes on its command line.
type general struct {
	Config   string `hidden:"" short:"c"`
	LogLevel string `hidden:""`
	LogJSON  bool   `hidden:"" name:"log-json"`
}

// nanoCmd makes nano's bundle for touchline.
type nanoCmd struct {
	Bundle string `arg:"" help:"The folder to create."`
}

// Run makes the bundle.
func (c *nanoCmd) Run(ctx context.Context) error { return nano.Convert(ctx, c.Bundle) }

const description = "Converts, checks and benchmarks model bundles for Touchline."

func main() {
	// ONNX Runtime reads it when it is loaded, and by then other threads may read the environment.
	_ = os.Setenv("ORT_DISABLE_TELEMETRY", "1")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var c cli
	var g general
	options := []kong.Option{kong.UsageOnError(), kong.Description(description)}
	name := filepath.Base(os.Args[0])
	if name != child.ModelProgram { // touchline runs this
		options = append(options, kong.Embed(&g))
	}
	parser := kong.Must(&c, append(options, kong.Name(name))...)
	kctx, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run()
	stop()
	if err == nil {
		return
	}
	stderr := redact.Writer{Out: os.Stderr}
	if g.LogJSON {
		log := zerolog.New(stderr).With().Timestamp().Logger()
		log.Error().Err(err).Msg(name + " failed")
	} else {
		fmt.Fprintln(stderr, name+":", err)
	}
	os.Exit(modelcmd.ExitCode(err))
}
