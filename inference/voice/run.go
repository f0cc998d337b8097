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
	// maxOutput bounds what is read from a program: over six minutes of sound.
	maxOutput = 16 << 20
	// maxComplaint bounds what of its standard error is kept.
	maxComplaint = 2 << 10
)

// lookUp finds a program's path.
func lookUp(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &MissingError{Program: program, Package: program}
	}
	return path, nil
}

// bounded keeps the first max bytes written to it, and says by full that more came.
type bounded struct {
	bytes.Buffer
	max  int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if room := b.max - b.Len(); n > room {
		b.full = true
		p = p[:max(room, 0)]
	}
	_, _ = b.Buffer.Write(p)
	return n, nil
}

// result is what a program wrote.
type result struct {
	stdout []byte
	extra  []byte // on file descriptor 3
}

// limits confine a program, beside its stripped environment: its input is a model's output, and its parser old C.
var limits = map[int]uint64{ //nolint:gochecknoglobals // a table
	unix.RLIMIT_AS: 1 << 30, unix.RLIMIT_CPU: 20, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64,
}

// start runs a command that ends with this process, within limits. Go can set them only once it runs.
func start(cmd *exec.Cmd) error {
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"} // ours holds secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
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

// run executes a program and reads all that it writes. The program is killed when ctx or this process ends.
func run(ctx context.Context, program, stdin string, extra bool, args ...string) (result, error) {
	path, err := lookUp(program)
	if err != nil {
		return result{}, err
	}
	// The kernel kills the program when the thread that started it ends, so that thread is kept for it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	out, complaint := &bounded{max: maxOutput}, &bounded{max: maxComplaint}
	cmd.Stdout, cmd.Stderr = out, complaint

	var third bytes.Buffer
	if extra {
		err = startWithExtra(cmd, &third)
	} else {
		err = start(cmd)
	}
	if err != nil {
		return result{}, err
	}
	if err := cmd.Wait(); err != nil {
		return result{}, complain(program, err, complaint)
	}
	return result{stdout: out.Bytes(), extra: third.Bytes()}, nil
}

// startWithExtra starts a command and reads what it writes to file descriptor 3, to the end of it. A command that
// writes too much gets a broken pipe.
func startWithExtra(cmd *exec.Cmd, into *bytes.Buffer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	err = start(cmd)
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

func complain(program string, err error, said *bounded) error {
	if words := strings.TrimSpace(said.String()); words != "" {
		return fmt.Errorf("run %s: %w: %q", program, err, words)
	}
	return fmt.Errorf("run %s: %w", program, err)
}
