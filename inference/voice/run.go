package voice

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
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

// run executes a program and reads all it writes. It is killed when ctx ends.
func run(ctx context.Context, program, stdin string, extra bool, args ...string) (result, error) {
	path, err := lookUp(program)
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	out, complaint := &bounded{max: maxOutput}, &bounded{max: maxComplaint}
	cmd.Stdout, cmd.Stderr = out, complaint

	var third bytes.Buffer
	read := make(chan error, 1)
	if extra {
		r, w, err := os.Pipe()
		if err != nil {
			return result{}, fmt.Errorf("make a pipe: %w", err)
		}
		defer r.Close()
		cmd.ExtraFiles = []*os.File{w}
		err = cmd.Start()
		w.Close()
		if err != nil {
			return result{}, fmt.Errorf("start %s: %w", program, err)
		}
		go func() {
			_, err := io.Copy(&third, io.LimitReader(r, maxOutput))
			read <- err
		}()
		err = <-read
		if third.Len() == maxOutput {
			r.Close() // the program gets a broken pipe
		}
		if werr := cmd.Wait(); werr != nil {
			err = werr
		}
		if err != nil {
			return result{}, complain(program, err, complaint)
		}
	} else if err := cmd.Run(); err != nil {
		return result{}, complain(program, err, complaint)
	}
	return result{stdout: out.Bytes(), extra: third.Bytes()}, nil
}

func complain(program string, err error, said *bounded) error {
	if words := strings.TrimSpace(said.String()); words != "" {
		return fmt.Errorf("run %s: %w: %q", program, err, words)
	}
	return fmt.Errorf("run %s: %w", program, err)
}
