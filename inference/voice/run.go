package voice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxOutput bounds the output of a program in bytes: over six minutes of sound.
	maxOutput = 16 << 20
	// maxStderr bounds the kept bytes of its standard error.
	maxStderr = 2 << 10
)

// lookUp finds a program's path.
func lookUp(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &MissingError{Program: program}
	}
	return path, nil
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

// result is the output of a program.
type result struct {
	stdout []byte
	extra  []byte // on file descriptor 3
}

// limits are the resource limits of a program, whose old C code parses a model's output.
var limits = map[int]uint64{ //nolint:gochecknoglobals // a table
	unix.RLIMIT_AS: 1 << 30, unix.RLIMIT_CPU: 20, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64,
}

// start starts a command with limits, which ends with this process. Go can set limits only after the start.
func start(cmd *exec.Cmd, nice int) error {
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"} // without this process's secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if nice > 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, nice) // a wish
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

// run runs a program of the machine in its usual priority.
func run(ctx context.Context, program, stdin string, extra bool, args ...string) (result, error) {
	return (&Synthesizer{}).run(ctx, program, stdin, extra, args...)
}

// run runs a program and reads its output. The end of ctx or of this process kills the program.
func (s *Synthesizer) run(ctx context.Context, program, stdin string, extra bool, args ...string) (result, error) {
	path, err := lookUp(program)
	if err != nil {
		return result{}, err
	}
	// The kernel kills the program when the thread that started it ends, so the thread stays locked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	out, stderr := &bounded{max: maxOutput}, &bounded{max: maxStderr}
	cmd.Stdout, cmd.Stderr = out, stderr

	var third bytes.Buffer
	if extra {
		err = startWithExtra(cmd, s.nice, &third)
	} else {
		err = start(cmd, s.nice)
	}
	if err != nil {
		return result{}, err
	}
	if err := cmd.Wait(); err != nil {
		err = fmt.Errorf("run %s: %w", program, err)
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = fmt.Errorf("%w: %q", err, text)
		}
		return result{}, err
	}
	return result{stdout: out.Bytes(), extra: third.Bytes()}, nil
}

// startWithExtra starts a command and reads its output on file descriptor 3 to the end. Beyond maxOutput the command
// gets a broken pipe.
func startWithExtra(cmd *exec.Cmd, nice int, into *bytes.Buffer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	err = start(cmd, nice)
	w.Close()
	if err != nil {
		return err
	}
	if _, err := io.Copy(into, io.LimitReader(r, maxOutput)); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(fmt.Errorf("read the sound: %w", err), cmd.Wait())
	}
	return nil
}
