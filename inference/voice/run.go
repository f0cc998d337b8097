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
	"time"

	"touchline/internal/child"
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
		return "", fmt.Errorf("the speech program %s is not installed: apt-get install %s", program, program)
	}
	return path, nil
}

// result is the output of a program.
type result struct {
	stdout []byte
	extra  []byte // on file descriptor 3
}

// run runs a program of a niceness and reads its output. The end of ctx or of this process kills the program.
func run(ctx context.Context, nice int, program, stdin string, extra bool, args ...string) (result, error) {
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
	out, stderr := &child.Bounded{Max: maxOutput}, &child.Bounded{Max: maxStderr}
	cmd.Stdout, cmd.Stderr = out, stderr

	var third bytes.Buffer
	if extra {
		err = startWithExtra(cmd, nice, &third)
	} else {
		err = child.Start(cmd, nice)
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
	err = child.Start(cmd, nice)
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
