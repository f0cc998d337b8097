package modelcmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Bar shows progress: one line that is redrawn on a terminal, else a line every
// few seconds. It is safe for concurrent use.
type Bar struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	mu    sync.Mutex
	last  time.Time
	drawn bool
}

// The minimum intervals of the bar on a terminal and of lines elsewhere.
const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 5 * time.Second
	barWidth     = 30
)

// Step shows done of total bytes. rate is in bytes per second, left is the
// remaining time; both are 0 if unknown.
func (b *Bar) Step(what string, done, total int64, rate float64, left time.Duration) {
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
	line := fmt.Sprintf("%3.0f %%  %s of %s", 100*share, Size(done), Size(total))
	if rate > 0 {
		line += fmt.Sprintf("  %s/s", Size(int64(rate)))
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
func (b *Bar) Note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
	fmt.Fprintln(b.out, text)
}

// End ends the bar's line.
func (b *Bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.drawn {
		fmt.Fprintln(b.out)
	}
	b.drawn = false
}

// Size formats bytes with a decimal unit, like disks and model cards.
func Size(n int64) string {
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
