package modelcmd

import (
	"context"
	"errors"
	"os/exec"

	"touchline/inference/minicpmo"
)

// exitInterrupted is the usual exit code after Ctrl-C.
const exitInterrupted = 130

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
	case errors.Is(err, ErrNoTool):
		return exitNoTool
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	return 1
}
