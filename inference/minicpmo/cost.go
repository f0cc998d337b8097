package minicpmo

import "time"

// cost estimates the duration of n units of work as a line. Its offset is
// measured at warm-up; its slope follows later measurements.
type cost struct{ fixed, each time.Duration }

// lineThrough returns the line through two measurements.
func lineThrough(n1 int, t1 time.Duration, n2 int, t2 time.Duration) cost {
	if n2 <= n1 || t2 <= t1 {
		return cost{fixed: min(t1, t2)}
	}
	each := (t2 - t1) / time.Duration(n2-n1)
	return cost{fixed: max(t1-time.Duration(n1)*each, 0), each: each}
}

func (c *cost) of(n int) time.Duration { return c.fixed + time.Duration(n)*c.each }

// learn moves the slope toward a measurement.
func (c *cost) learn(n int, took time.Duration) {
	if n <= 0 {
		return
	}
	each := max(took-c.fixed, 0) / time.Duration(n)
	if c.each == 0 {
		c.each = each
		return
	}
	c.each += (each - c.each) / 4
}

// fitting returns the number of units that fit into t.
func (c *cost) fitting(t time.Duration, most int) int {
	if c.each <= 0 {
		return most
	}
	return int(min(max((t-c.fixed)/c.each, 1), time.Duration(most)))
}

// mean is the mean of the last values, newer ones weigh more.
type mean struct{ n, value float64 }

func (m *mean) add(v float64) {
	const last = 128
	m.n = min(m.n+1, last)
	m.value += (v - m.value) / m.n
}

// demand estimates the work that comes.
type demand struct {
	gaps, prompts, tokens mean // seconds from one answer to the next, of its pictures and prompt; tokens of an answer
	lastSeen              time.Time
	took                  time.Duration // of pictures and prompts since the last prompt's end
}

// prompt records the end of a prompt, whose pictures were seen at a time.
func (d *demand) prompt(seen time.Time) {
	const most = 1 // a longer gap is a pause of all rooms
	if !d.lastSeen.IsZero() {
		d.gaps.add(min(seen.Sub(d.lastSeen).Seconds(), most))
	}
	d.prompts.add(d.took.Seconds())
	d.lastSeen, d.took = seen, 0
}

// exceeds reports whether more work comes than the device can do if a token takes step.
func (d *demand) exceeds(step time.Duration) bool {
	return d.prompts.value+d.tokens.value*step.Seconds() > d.gaps.value
}
