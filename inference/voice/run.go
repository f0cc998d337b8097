package voice

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"touchline/inference"
	"touchline/internal/child"
)

// maxOutput bounds the output of a program in bytes: over six minutes of sound.
const maxOutput = 16 << 20

// maxCPU bounds the time of a program on a processor, in seconds.
const maxCPU = 20

// behind is the niceness of programs that are not for live rooms.
const behind = 10

// lookUp finds a program's path.
func lookUp(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("the speech program %s is not installed: apt-get install %s", program, program)
	}
	return path, nil
}

// run runs a program and returns its output. The end of ctx or of this process kills the program.
func run(ctx context.Context, program, stdin string, args ...string) ([]byte, error) {
	path, err := lookUp(program)
	if err != nil {
		return nil, err
	}
	return output(ctx, exec.CommandContext(ctx, path, args...), program, stdin)
}

// runWithFile is run for a program that writes its sound to /dev/fd/3.
func runWithFile(ctx context.Context, program string, args ...string) (stdout, sound []byte, err error) {
	path, err := lookUp(program)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	read := make(chan []byte, 1)
	go func() {
		defer r.Close() // beyond maxOutput the program gets a broken pipe
		b, _ := io.ReadAll(io.LimitReader(r, maxOutput))
		read <- b
	}()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.ExtraFiles = []*os.File{w}
	stdout, err = output(ctx, cmd, program, "")
	w.Close()
	return stdout, <-read, err
}

func output(ctx context.Context, cmd *exec.Cmd, program, stdin string) ([]byte, error) {
	nice := 0
	if inference.IsBehind(ctx) {
		nice = behind
	}
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	out, log, err := child.Run(cmd, child.Limits{CPU: maxCPU, Nice: nice}, maxOutput)
	if err == nil {
		return out, nil
	}
	err = fmt.Errorf("run %s: %w", program, err)
	if log = strings.TrimSpace(log); log != "" {
		err = fmt.Errorf("%w: %q", err, log)
	}
	return nil, err
}
