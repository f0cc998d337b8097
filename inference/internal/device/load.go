package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"touchline/inference/internal/ort"
)

const (
	loadReaders = 4
	loadBuffer  = 16 << 20 // bytes of a read and of a copy
	loadAlign   = 256      // as the device's allocations
)

// Part is a byte range of a file.
type Part struct {
	File          string
	Offset, Bytes int64
}

// piece is as much of a part as fits a buffer.
type piece struct {
	Part
	to     ort.Pointer
	buffer *ort.Memory
}

// Load copies parts of files to memory of the device, which lives as long as the arena, and returns the start of each part, aligned to 256
// bytes. Several goroutines read, 4 if readers is 0, while the caller copies what they have read. All copies are complete on return.
func (a *Arena) Load(ctx context.Context, what string, parts []Part, readers int) ([]ort.Pointer, error) {
	var size int64
	starts := make([]int64, len(parts))
	for i, p := range parts {
		if p.Offset < 0 || p.Bytes < 0 {
			return nil, fmt.Errorf("load %s: expected a part of %s, got %d bytes at %d", what, p.File, p.Bytes, p.Offset)
		}
		starts[i] = size
		size += (p.Bytes + loadAlign - 1) / loadAlign * loadAlign
	}
	memory := a.Memory(what, size)
	if memory == nil {
		return nil, a.failed
	}
	places := make([]ort.Pointer, len(parts))
	var pieces []piece
	for i, p := range parts {
		places[i] = memory.At(starts[i])
		for at := int64(0); at < p.Bytes; at += loadBuffer {
			part := Part{p.File, p.Offset + at, min(loadBuffer, p.Bytes-at)}
			pieces = append(pieces, piece{Part: part, to: memory.At(starts[i] + at)})
		}
	}
	if err := a.load(ctx, pieces, cmp.Or(readers, loadReaders)); err != nil {
		return nil, fmt.Errorf("load %s: %w", what, err)
	}
	return places, nil
}

func (a *Arena) load(ctx context.Context, pieces []piece, readers int) error {
	host := NewArena(a.runtime, a.dev)
	defer host.Close()
	buffers := min(readers+2, len(pieces)) // two wait for their copies
	free, filled := make(chan *ort.Memory, buffers), make(chan piece, buffers)
	for range buffers {
		free <- host.Host("reading", loadBuffer)
	}
	if host.Err() != nil {
		return host.Err()
	}
	todo := make(chan piece, len(pieces))
	for _, p := range pieces {
		todo <- p
	}
	close(todo)

	ctx, stop := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop(nil)
	for range readers {
		reading.Go(func() {
			for p := range todo {
				select {
				case p.buffer = <-free:
				case <-ctx.Done():
					return
				}
				if err := p.read(); err != nil {
					stop(err)
					return
				}
				filled <- p // has room for all buffers
			}
		})
	}
	for range pieces {
		select {
		case p := <-filled:
			if err := errors.Join(a.dev.CopyIn(p.to, p.buffer.Bytes()[:p.Bytes]), a.dev.Synchronize()); err != nil {
				return err
			}
			free <- p.buffer
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return context.Cause(ctx)
}

func (p piece) read() error {
	f, err := os.Open(p.File)
	if err == nil {
		defer f.Close()
		_, err = f.ReadAt(p.buffer.Bytes()[:p.Bytes], p.Offset)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read %d bytes of %s at %d: %w", p.Bytes, p.File, p.Offset, err)
	}
	return nil
}
