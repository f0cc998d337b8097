// Package child starts programs of the machine with limits: old C code that parses untrusted input. They inherit nothing of this
// process's environment, and end with it.
package child

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// limits are the resource limits of a program.
var limits = map[int]uint64{ //nolint:gochecknoglobals // a table
	unix.RLIMIT_AS: 1 << 30, unix.RLIMIT_CPU: 20, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64,
}

// Start starts a command with limits and a priority lowered by nice steps; Go can set limits only after the start. The kernel kills the
// program when the thread that started it ends, so the caller keeps its thread locked until the program ends.
func Start(cmd *exec.Cmd, nice int) error {
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"} // without this process's secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if nice > 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, nice) // best effort
	}
	for resource, most := range limits {
		err := unix.Prlimit(cmd.Process.Pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			_ = cmd.Process.Kill()
			return errors.Join(fmt.Errorf("limit %s: %w", cmd.Path, err), cmd.Wait())
		}
	}
	return nil
}

// Bounded keeps the first Max bytes written to it.
type Bounded struct {
	bytes.Buffer

	Max int
}

// Write implements io.Writer.
func (b *Bounded) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), b.Max-b.Len())])
	return len(p), nil
}
