package modelcmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// bar draws one line that is rewritten while a long work goes on; where the
// output is no terminal it writes a line every few seconds. Safe for
// concurrent use.
type bar struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	mu    sync.Mutex
	last  time.Time
	drawn bool
}

// How often the bar is drawn, and how often a line is written without a terminal.
const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 5 * time.Second
	barWidth     = 30
)

// step shows done of total bytes. rate is in bytes per second, left is what
// remains at that rate; both may be 0 when they are not known yet.
func (b *bar) step(what string, done, total int64, rate float64, left time.Duration) {
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

// note writes a line of its own above the bar.
func (b *bar) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
	fmt.Fprintln(b.out, text)
}

// end leaves the line.
func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.drawn {
		fmt.Fprintln(b.out)
	}
	b.drawn = false
}

// size writes bytes in the unit that suits them, in powers of 1000 as disks
// and model cards count.
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
