package modelcmd

import (
	"context"
	"errors"
	"os/exec"

	"touchline/inference/minicpmo"
	"touchline/internal/child"
)

// Exit codes: the usual one after Ctrl-C, and the one without touchline-model.
const (
	exitInterrupted = 130
	exitNoTool      = 2
)

// ExitCode returns a program's exit code for an error: minicpmo.ExitDeviceLost if only a restart
// helps, touchline-model's code if it failed.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, minicpmo.ErrDeviceLost):
		return minicpmo.ExitDeviceLost
	case errors.Is(err, child.ErrNoModelProgram):
		return exitNoTool
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	return 1
}
