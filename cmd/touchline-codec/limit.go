package main

import (
	"fmt"
	"syscall"
)

// mostMemory of this process, in bytes. A picture of the largest size takes 14 MB as 8-bit 4:2:0, and a decoder
// keeps a dozen; a stream that claims a larger one would have some decoders take many times that.
const mostMemory = 1 << 30

// limitMemory has the kernel refuse more private memory than that: then a decoder fails, or this process
// dies and is replaced, and the bot and others on the machine are not touched.
func limitMemory() error {
	const data = 2 // RLIMIT_DATA, setrlimit(2)
	if err := syscall.Setrlimit(data, &syscall.Rlimit{Cur: mostMemory, Max: mostMemory}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}
