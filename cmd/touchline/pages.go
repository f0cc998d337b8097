package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// started is the time by which a command that serves has loaded its model, and no longer needs what only its start does.
const started = time.Minute

// releasePagesAfter calls releasePages once the program has started, unless ctx ends before.
func releasePagesAfter(ctx context.Context, start time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(start):
		releasePages()
	}
}

// releasePages unmaps the pages of the program's own file, of which the start reads about 60 MB: packages that set up
// their tables, and what the kernel maps around them. They stay in the kernel's cache of files, from which the program
// maps again what it uses, about half; the kernel takes the others back first when memory is short. It returns the bytes
// that it unmapped, or has no effect where there is no /proc.
func releasePages() (bytes int64) {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0
	}
	defer func() { _ = maps.Close() }()
	var from, to uintptr
	var resident, changed int64
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		var rights string
		switch {
		case strings.HasPrefix(line, "Rss:"):
			_, _ = fmt.Sscanf(line, "Rss: %d kB", &resident)
		case strings.HasPrefix(line, "Anonymous:"): // pages that differ from the file, which would be lost
			_, _ = fmt.Sscanf(line, "Anonymous: %d kB", &changed)
			if to > from && changed == 0 {
				if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED); errno == 0 {
					bytes += resident << 10
				}
			}
			from, to = 0, 0
		case strings.HasSuffix(line, " "+own):
			if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n < 3 || strings.Contains(rights, "w") {
				from, to = 0, 0
			}
		}
	}
	return bytes
}
