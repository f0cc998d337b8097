package codec

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"touchline/internal/child"
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
	cmd, text := soundCommand(ctx, found, pcm, "-sound", string(format), "-rate", strconv.Itoa(rate))
	cmd.Stdout = out
	wait, err := child.Start(cmd, child.Limits{Self: true}, environment()...)
	if err != nil {
		return err
	}
	if err := wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("encode %s: %w: %q", format, err, strings.TrimSpace(text.String()))
	}
	return nil
}

// soundCommand returns a codec process that reads in to its end, and the begin of its error output.
func soundCommand(ctx context.Context, path string, in io.Reader, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, path, args...)
	text := &bytes.Buffer{}
	cmd.Stdin, cmd.Stderr = in, &limitedWriter{to: text, left: maxSoundError}
	return cmd, text
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

// maxPiece bounds the samples of a piece of decoded sound, and maxRate their rate.
const (
	maxPiece = 1 << 20
	maxRate  = 768000
)

// ErrNoSound is returned by DecodeSound for a file without sound that can be decoded.
var ErrNoSound = errors.New("decode the sound")

// DecodeSound decodes the sound of a file of any usual format, in a codec process of its own that can open nothing else. emit
// gets the means of the channels with their rate, piece by piece; its error ends the decoding and is returned. Path is as in Options.
func DecodeSound(ctx context.Context, path string, file *os.File, emit func(mono []float32, rate int) error) error {
	found, err := Find(path)
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, text := soundCommand(ctx, found, file, "-unpack")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	wait, err := child.Start(cmd, child.Limits{Self: true}, environment()...)
	if err != nil {
		return err
	}
	if err := readPieces(bufio.NewReader(out), emit); err != nil {
		cancel()
		_ = wait() // it was killed
		return err
	}
	if err := wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, child.ErrMemory) {
			return err
		}
		why := strings.TrimPrefix(strings.TrimSpace(text.String()), "touchline-codec: ")
		return fmt.Errorf("%w: %q", ErrNoSound, why)
	}
	return nil
}

// readPieces reads the output of the process.
func readPieces(in io.Reader, emit func(mono []float32, rate int) error) error {
	var head [8]byte
	var raw []byte
	var mono []float32
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil //nolint:nilerr // the process says why it ended
		}
		rate, n := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
		if n == 0 || n > maxPiece || rate == 0 || rate > maxRate {
			return fmt.Errorf("%w: expected up to %d samples, got %d at %d Hz", ErrNoSound, maxPiece, n, rate)
		}
		raw = append(raw[:0], make([]byte, 4*n)...)
		if _, err := io.ReadFull(in, raw); err != nil {
			return nil //nolint:nilerr // as above
		}
		mono = mono[:0]
		for b := raw; len(b) > 0; b = b[4:] {
			mono = append(mono, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		if err := emit(mono, int(rate)); err != nil {
			return err
		}
	}
}
