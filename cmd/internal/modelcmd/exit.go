package modelcmd

import (
	"context"
	"errors"
)

// Exit codes beside 0 and 1.
const (
	exitInterrupted = 130
)

// ExitCode is what a program ends with after an error of these commands.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return 1
}
