// Package child runs programs of the machine with limits: old C code that parses untrusted input. They get none of this process's
// environment, and are killed when this process ends. It also finds touchline-model, which runs without limits in this environment.
package child

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxLog bounds the standard error that Run returns.
const maxLog = 4 << 10

// limits are the resource limits of a program.
var limits = map[int]uint64{ //nolint:gochecknoglobals // a table
	unix.RLIMIT_AS: 1 << 30, unix.RLIMIT_CPU: 20, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64,
}

// Run runs a command with limits and a lower priority of nice steps. It returns the first most bytes of the standard output, and
// the beginning of the standard error.
func Run(cmd *exec.Cmd, nice, most int) (out []byte, log string, err error) {
	// The kernel kills the program when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.WaitDelay = time.Second
	stdout, stderr := &bounded{max: most}, &bounded{max: maxLog}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err = start(cmd, nice); err == nil {
		err = cmd.Wait()
	}
	return stdout.Bytes(), stderr.String(), err
}

// start starts a command; Go can set limits only after the start.
func start(cmd *exec.Cmd, nice int) error {
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

// bounded keeps the first max bytes written to it.
type bounded struct {
	bytes.Buffer

	max int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), b.max-b.Len())])
	return len(p), nil
}
