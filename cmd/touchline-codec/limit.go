package main

import (
	"fmt"
	"syscall"
)

// Memory limits of this process, in bytes. Those of pictures are raised for a large one by its declared size (get_buffer in libav.c), up to
// largeMemory. Decoders of other libraries have 1 GiB (tl_decoder_open).
const (
	soundMemory   = 256 << 20
	pictureMemory = 384 << 20
	largeMemory   = 3 << 30
)

// limitMemory sets the kernel's limit of private memory. Beyond it a decoder fails, or this process dies and is replaced; the
// bot and other processes are not affected.
func limitMemory(sound bool) error {
	limit := &syscall.Rlimit{Cur: pictureMemory, Max: largeMemory}
	if sound {
		limit = &syscall.Rlimit{Cur: soundMemory, Max: soundMemory}
	}
	const data = 2 // RLIMIT_DATA, setrlimit(2)
	if err := syscall.Setrlimit(data, limit); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}
