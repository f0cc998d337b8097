package sphinx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"touchline/internal/child"
)

const (
	program = "pocketsphinx_batch"
	// modelFolder is where Debian's package pocketsphinx-en-us puts the English model.
	modelFolder = "/usr/share/pocketsphinx/model/en-us"
	// frameRate is the frame rate of the model, Hz.
	frameRate = 100
	maxOutput = 1 << 20
	maxCPU    = 20 // seconds
	// runTime bounds the time of one process.
	runTime = 15 * time.Second
)

// ErrMissing is wrapped by the error of a program or model that is not installed.
var ErrMissing = errors.New("not installed")

// installed finds the program and the model.
func installed(folder string) (path string, err error) {
	const advice = "install the packages pocketsphinx and pocketsphinx-en-us, or choose another inference.recognizer.program"
	if path, err = exec.LookPath(program); err != nil {
		return "", fmt.Errorf("%s: %w; %s", program, ErrMissing, advice)
	}
	for _, name := range []string{"en-us/mdef", dictionaryFile, phonesFile} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return "", fmt.Errorf("the English model of pocketsphinx, %s: %w; %s", filepath.Join(folder, name), ErrMissing, advice)
		}
	}
	return path, nil
}

const (
	dictionaryFile = "cmudict-en-us.dict"
	phonesFile     = "en-us-phone.lm.bin"
)

// The files of a process, by descriptor.
const (
	soundFile = iota + 3
	listFile
	wordsFile
	pausesFile
	searchFile
)

// search is the task of one process.
type search struct {
	args  []string
	words string // the dictionary
	text  string // the grammar, or the wake words with their thresholds
}

// enter waits for a slot. One process at a time is in line for the next, and those that go first are behind that one at most.
func (r *Recognizer) enter(ctx context.Context, first bool) error {
	if !first {
		select {
		case r.line <- struct{}{}:
			defer func() { <-r.line }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run decodes 16-bit PCM in a process and returns the words that it found. Its files exist in memory only.
func (r *Recognizer) run(ctx context.Context, pcm []byte, s search, first bool) ([]segment, error) {
	if err := r.enter(ctx, first); err != nil {
		return nil, err
	}
	defer func() { <-r.slots }()
	ctx, cancel := context.WithTimeoutCause(ctx, runTime, fmt.Errorf("no answer of %s within %v", program, runTime))
	defer cancel()
	args := append([]string{
		"-hmm", filepath.Join(r.model, "en-us"), "-dict", fd(wordsFile), "-fdict", fd(pausesFile),
		"-adcin", "yes", "-cepdir", "/dev/fd", "-cepext", "", "-ctl", fd(listFile), "-hypseg", "/dev/stdout",
		"-remove_silence", "no", "-compallsen", "yes",
	}, s.args...)
	cmd := exec.CommandContext(ctx, r.path, args...)
	for _, content := range [][]byte{pcm, fmt.Append(nil, soundFile, "\n"), []byte(s.words), []byte(pauses), []byte(s.text)} {
		f, err := inMemory(content)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out, log, err := child.Run(cmd, child.Limits{CPU: maxCPU, Read: []string{r.model}}, maxOutput)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("run %s: %w%s", program, err, lastError(log))
	}
	found, err := parseSegments(string(out))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w%s", program, err, lastError(log))
	}
	return found, nil
}

// pauses is the dictionary of all that is not a word.
const pauses = "<s> SIL\n</s> SIL\n<sil> SIL\n"

func fd(n int) string { return fmt.Sprintf("/dev/fd/%d", n) }

// lastError returns the last line of a log that is an error, for a message.
func lastError(log string) string {
	text := ""
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "ERROR") || strings.HasPrefix(line, "FATAL") {
			text = fmt.Sprintf(": %.200q", strings.TrimSpace(line))
		}
	}
	return text
}

// inMemory returns a file without a name on any disk.
func inMemory(content []byte) (*os.File, error) {
	n, err := unix.MemfdCreate("touchline", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(n), "touchline")
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(fmt.Errorf("fill a file in memory: %w", err), f.Close())
	}
	return f, nil
}
