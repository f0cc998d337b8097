package modelcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"touchline/internal/child"
)

// tool runs touchline-model in place of a command, under this program's name and with its command line. touchline-model itself has a Run
// for each command.
type tool struct{}

// Run runs touchline-model.
func (tool) Run(ctx context.Context) error {
	return runTool(ctx, filepath.Base(os.Args[0]), os.Args[1:])
}

// Passed is a command whose flags and help only touchline-model knows.
type Passed struct {
	Args []string `arg:"" optional:"" help:"Flags and arguments; --help lists them."`
}

// Run runs touchline-model with the command's words and arguments.
func (c Passed) Run(ctx context.Context, kctx *kong.Context) error {
	return runTool(ctx, child.ModelProgram, append(strings.Fields(kctx.Selected().Path()), c.Args...))
}

// runTool runs touchline-model with this process's files and waits for its end.
func runTool(ctx context.Context, name string, args []string) error {
	cmd, err := child.ModelCommand(ctx, args...)
	if err != nil {
		return err
	}
	cmd.Args[0] = name
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", child.ModelProgram, err)
	}
	return nil
}
