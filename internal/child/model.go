package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ModelProgram is the program with the commands on models, beside touchline.
const ModelProgram = "touchline-model"

// ErrNoModelProgram is returned by ModelCommand if the program is neither beside this one nor in PATH.
var ErrNoModelProgram = errors.New(ModelProgram + " is neither beside this program nor in PATH: build it with `make models`, " +
	"or take it from the release's archive")

// ModelCommand returns a command of ModelProgram. When ctx ends, it is asked to end and has a minute for that.
func ModelCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path := ""
	if self, err := os.Executable(); err == nil {
		path = filepath.Join(filepath.Dir(self), ModelProgram)
	}
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(ModelProgram); err != nil {
			return nil, ErrNoModelProgram
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd, nil
}
