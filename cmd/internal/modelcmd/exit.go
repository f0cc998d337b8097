package modelcmd

import (
	"context"
	"errors"

	"touchline/inference/minicpmo"
)

// exitInterrupted is the usual exit code after Ctrl-C.
const exitInterrupted = 130

// ExitCode returns a program's exit code after an error: minicpmo.ExitDeviceLost
// if only a restart helps.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, minicpmo.ErrDeviceLost):
		return minicpmo.ExitDeviceLost
	}
	return 1
}
