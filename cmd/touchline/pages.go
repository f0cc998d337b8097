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

// releasePages unmaps the pages of the program's own file and the code of its libraries, of which the start reads about
// 75 MB: packages that set up their tables, and what the kernel maps around them. They stay in the kernel's cache of
// files, from which the program maps again what it uses; the kernel takes the others back first when memory is short. It
// returns the bytes that it unmapped, or has no effect where there is no /proc.
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
		case strings.Contains(line, " /"):
			var rights string
			var offset int64
			n, _ := fmt.Sscanf(line, "%x-%x %s %x", &from, &to, &rights, &offset)
			// At offset 0 the loader begins to map a library, with all of its parts.
			code := strings.HasPrefix(rights, "r-x") && offset > 0
			if n < 4 || strings.Contains(rights, "w") || !code && !strings.HasSuffix(line, " "+own) {
				from, to = 0, 0
			}
		}
	}
	return bytes
}
