package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// bar shows progress: one line that is redrawn on a terminal, else a line every
// few seconds. It is safe for concurrent use.
type bar struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	mu    sync.Mutex
	last  time.Time
	drawn bool
}

// newBar returns a progress bar on standard error.
func newBar() *bar {
	info, err := os.Stderr.Stat()
	return &bar{out: os.Stderr, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: time.Now}
}

// The minimum intervals of the bar on a terminal and of lines elsewhere.
const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 5 * time.Second
	barWidth     = 30
)

// Step shows done of total bytes. rate is in bytes per second, left is the
// remaining time; both are 0 if unknown.
func (b *bar) Step(what string, done, total int64, rate float64, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	interval := lineInterval
	if b.terminal {
		interval = barInterval
	}
	now := b.now()
	if done < total && b.drawn && now.Sub(b.last) < interval {
		return
	}
	b.last, b.drawn = now, true
	share := 0.0
	if total > 0 {
		share = min(1, float64(done)/float64(total))
	}
	line := fmt.Sprintf("%3.0f %%  %s of %s", 100*share, size(done), size(total))
	if rate > 0 {
		line += fmt.Sprintf("  %s/s", size(int64(rate)))
	}
	if left > 0 {
		line += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	if what != "" {
		line += "  " + what
	}
	if !b.terminal {
		fmt.Fprintln(b.out, line)
		return
	}
	full := int(share * barWidth)
	fmt.Fprintf(b.out, "\r\x1b[K%s%s %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), line)
}

// Note writes a line above the bar.
func (b *bar) Note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
	fmt.Fprintln(b.out, text)
}

// End ends the bar's line.
func (b *bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.drawn {
		fmt.Fprintln(b.out)
	}
	b.drawn = false
}

// size formats bytes with a decimal unit, like disks and model cards.
func size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	v, i := float64(n), 0
	for v >= 1000 && i < len(units)-1 {
		v /= 1000
		i++
	}
	if i == 0 || v >= 100 {
		return fmt.Sprintf("%.0f %s", v, units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// rate returns bytes per second since start; 0 in the first half second.
func rate(done int64, start time.Time) float64 {
	if seconds := time.Since(start).Seconds(); seconds > 0.5 {
		return float64(done) / seconds
	}
	return 0
}
