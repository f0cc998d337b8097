package modelcmd

import (
	"context"
	"errors"

	"touchline/inference/minicpmo"
)

// exitInterrupted is the exit code after Ctrl-C, as shells have it.
const exitInterrupted = 130

// ExitCode is what a program ends with after an error: minicpmo.ExitDeviceLost
// where only a new start helps.
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
