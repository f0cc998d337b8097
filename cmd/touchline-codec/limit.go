package main

import (
	"fmt"
	"syscall"
)

// The memory limit of this process, in bytes. A picture of 4096 x 2304 pixels needs 14 MB as 8-bit 4:2:0, and a decoder keeps a dozen. The
// decoder raises the limit for a larger picture by its declared size, up to largeMemory.
const (
	mostMemory  = 1 << 30
	largeMemory = 3 << 30
)

// limitMemory sets the kernel's limit of private memory. Beyond it a decoder fails, or this process dies and is replaced; the
// bot and other processes are not affected.
func limitMemory() error {
	const data = 2 // RLIMIT_DATA, setrlimit(2)
	if err := syscall.Setrlimit(data, &syscall.Rlimit{Cur: mostMemory, Max: largeMemory}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}
