// Command touchline-model converts, checks and benchmarks model bundles. It has
// the model commands of touchline without LiveKit and video codecs, for example
// for a GPU machine that prepares bundles. Touchline runs it for `bench`, `models check` and `models synth`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"touchline/cmd/internal/modelcmd"
)

type cli struct {
	Models modelsCmd `cmd:"" help:"Create and check model bundles."`
	Bench  benchCmd  `cmd:"" help:"Benchmark this machine."`
}

// modelsCmd holds the commands under "models": touchline's, and commands that only measure and compare.
type modelsCmd struct {
	modelcmd.Models

	Synth synthCmd `cmd:"" help:"Create a bundle with random weights, for benchmarks."`
	Check checkCmd `cmd:"" help:"Compare the engine with recorded inputs and outputs of the official code."`
}

const description = "Converts, checks and benchmarks model bundles for Touchline."

func main() {
	// ONNX Runtime reads it when it is loaded, and by then other threads may read the environment.
	_ = os.Setenv("ORT_DISABLE_TELEMETRY", "1")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var c cli
	parser := kong.Must(&c, kong.Name("touchline-model"), kong.UsageOnError(), kong.Description(description))
	kctx, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "touchline-model:", err)
		os.Exit(modelcmd.ExitCode(err))
	}
}
