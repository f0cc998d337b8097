package codec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// SoundFormat is a format that EncodeSound writes.
type SoundFormat string

// The formats: MP3 frames, and AAC-LC with ADTS headers.
const (
	MP3 SoundFormat = "mp3"
	AAC SoundFormat = "aac"
)

// maxSoundError bounds the kept text of the process, in bytes.
const maxSoundError = 1 << 10

// EncodeSound encodes mono sound, s16le of a rate in Hz, in a codec process of its own, to the end of pcm, and writes it as it is
// made. The end of ctx ends the process. Path is as in Options. If pcm can block, close it when EncodeSound returns.
func EncodeSound(ctx context.Context, path string, format SoundFormat, rate int, pcm io.Reader, out io.Writer) error {
	found, err := Find(path)
	if err != nil {
		return err
	}
	// Without a parent it reads the end of its input.
	cmd := exec.CommandContext(ctx, found, "-sound", string(format), "-rate", strconv.Itoa(rate)) //nolint:gosec // a configured path
	cmd.Env = []string{"GOTRACEBACK=single", "GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"}
	cmd.WaitDelay = time.Second
	var text bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pcm, out, &limitedWriter{to: &text, left: maxSoundError}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("encode %s: %w: %q", format, err, strings.TrimSpace(text.String()))
	}
	return nil
}

// limitedWriter keeps the first bytes.
type limitedWriter struct {
	to   io.Writer
	left int
}

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	_, _ = w.to.Write(p[:n])
	return len(p), nil
}
