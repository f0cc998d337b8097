package main

import (
	"fmt"
	"syscall"

	"touchline/media/codec/wire"
)

// largeMemory bounds the memory limit, in bytes, which is raised for a large picture by its declared size (raise_memory in libav.c), and to
// 1 GiB for the decoders of other libraries.
const largeMemory = 3 << 30

// limitMemory sets the kernel's limit of private memory. Beyond it a decoder fails, or this process dies and is replaced; the
// bot and other processes are not affected.
func limitMemory(sound bool) error {
	limit := &syscall.Rlimit{Cur: wire.PictureMemory, Max: largeMemory}
	if sound {
		limit = &syscall.Rlimit{Cur: wire.SoundMemory, Max: wire.SoundMemory}
	}
	const data = 2 // RLIMIT_DATA, setrlimit(2)
	if err := syscall.Setrlimit(data, limit); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}
