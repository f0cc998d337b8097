package main

import (
	"fmt"
	"syscall"
)

// mostMemory is the memory limit of this process in bytes. A picture of the largest size needs 14 MB as 8-bit 4:2:0, and a decoder keeps
// a dozen. For a stream that declares a larger size some decoders would allocate many times as much.
const mostMemory = 1 << 30

// limitMemory sets the kernel's limit of private memory. Beyond it a decoder fails, or this process dies and is replaced; the
// bot and other processes are not affected.
func limitMemory() error {
	const data = 2 // RLIMIT_DATA, setrlimit(2)
	if err := syscall.Setrlimit(data, &syscall.Rlimit{Cur: mostMemory, Max: mostMemory}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}
