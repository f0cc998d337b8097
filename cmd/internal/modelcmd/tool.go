package modelcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// toolName is the program with the commands for measuring and comparing.
const toolName = "touchline-model"

// exitNoTool is the exit code without that program.
const exitNoTool = 2

// ErrNoTool is returned if touchline-model is neither next to this program nor in PATH.
var ErrNoTool = errors.New(toolName + " is neither beside this program nor in PATH: build it with `make models`, " +
	"or take it from the release's archive")

// ToolCmd is a command that touchline-model runs.
type ToolCmd struct {
	Args []string `arg:"" optional:"" help:"Flags and arguments; --help lists them."`
}

// Run runs touchline-model with the command's words and arguments, and this process's files. It forwards interrupts and waits for the
// program's end.
func (c ToolCmd) Run(ctx context.Context, words ...string) error {
	path, err := findTool()
	if err != nil {
		return err
	}
	tool := exec.CommandContext(ctx, path, append(words, c.Args...)...)
	tool.Stdin, tool.Stdout, tool.Stderr = os.Stdin, os.Stdout, os.Stderr
	tool.Cancel = func() error { return tool.Process.Signal(syscall.SIGTERM) }
	tool.WaitDelay = time.Minute
	if err := tool.Run(); err != nil {
		return fmt.Errorf("run %s: %w", toolName, err)
	}
	return nil
}

func findTool() (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), toolName)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(toolName)
	if err != nil {
		return "", ErrNoTool
	}
	return path, nil
}
