package match

import (
	"fmt"

	"touchline/worlds/paint"
)

// A broadcaster's graphics: score board, clock, plate, banners, replay sign.

const (
	flashMS       = 450
	bannerInMS    = 300 // after the goal, or the whistle
	bannerOutMS   = 3200
	intervalOutMS = breakMS - 100 // end of the banner at half time and full time
	slideMS       = 260
)

// slide returns the position of a graphic that is visible in an interval: 0 is out, 1 is in place. The interval and now count from the
// same event.
func slide(now, in, out int64) float64 {
	if now < in || now > out {
		return 0
	}
	k := min(1, float64(now-in)/slideMS, float64(out-now)/slideMS)
	return k * k * (3 - 2*k)
}

// sliding reports whether a graphic is moving.
func sliding(now, in, out int64) bool {
	k := slide(now, in, out)
	return k > 0 && k < 1 || now == in || now == out
}

// board draws score board and match clock.
func (m *Match) board(c *paint.Canvas, t int64) {
	u := float64(m.width) / 100
	x, y, h := 3*u, 3*u, 4*u
	navy, ink := paint.RGB{18, 24, 44}, paint.RGB{246, 248, 252}
	score := m.scoreAt(t)
	side := func(x float64, k kit) {
		c.Rect(x, y, x+7.6*u, y+h, navy, 1)
		c.Rect(x, y, x+0.9*u, y+h, k.shirt, 1)
		c.Text(x+1.9*u, y+1.15*u, 1.7*u, k.code, ink, 0.085)
	}
	side(x, m.kits[0])
	c.Rect(x+7.6*u, y, x+14.8*u, y+h, ink, 1)
	c.Text(x+8.5*u, y+0.95*u, 2.1*u, fmt.Sprintf("%d-%d", score[0], score[1]), navy, 0.1)
	side(x+14.8*u, m.kits[1])
	c.Rect(x+22.4*u, y, x+31.8*u, y+h, navy, 0.8)
	total := m.script.clockAt(t, m.shift)
	c.Text(x+23.3*u, y+1.15*u, 1.7*u, fmt.Sprintf("%02d:%02d", total/60%100, total%60), ink, 0.08)
}

// sign draws the mark of a replay.
func (m *Match) sign(c *paint.Canvas) {
	u := float64(m.width) / 100
	x, y := 80.6*u, 3*u
	c.Rect(x, y, x+16.4*u, y+4*u, paint.RGB{190, 24, 44}, 0.95)
	c.Text(x+1.8*u, y+1.1*u, 1.8*u, "REPLAY", paint.RGB{255, 255, 255}, 0.1)
}

// overlay draws the graphics over the live picture: flash, banners and plate.
func (m *Match) overlay(c *paint.Canvas, t int64) {
	if p := m.script.at(t); p.phase == AtHalfTime || p.phase == AtFullTime {
		m.intervalBanner(c, p, t)
	}
	a := m.script.arrivedAt(t)
	if a == nil {
		return
	}
	if a.outcome == InGoal {
		if k := a.flashAt(t); k > 0 {
			c.Fade(paint.RGB{255, 255, 255}, k)
		}
		m.goalBanner(c, a, t)
	}
	m.plate(c, a, t)
}

// goalBanner slides in after a goal, stays and goes.
func (m *Match) goalBanner(c *paint.Canvas, a *attempt, t int64) {
	k := slide(t-a.at, bannerInMS, bannerOutMS)
	if k == 0 {
		return
	}
	kit, u := m.kits[a.team], float64(m.width)/100
	left, top := m.banner(c, k, kit.shirt)
	c.Text(left+12*u, top+3*u, 9.6*u, "GOAL!", paint.RGB{255, 255, 255}, 0.105)
	c.Text(left+61*u, top+3.4*u, 4.4*u, m.label(a.figure), kit.shirt.Mix(paint.RGB{255, 255, 255}, 0.35), 0.09)
	score := shifted(a.score, m.goals, mostGoals)
	c.Text(left+61*u, top+9.4*u, 3*u, fmt.Sprintf("%d - %d", score[0], score[1]), paint.RGB{220, 226, 240}, 0.09)
}

// intervalBanner slides in when a half has ended, and stays with the score.
func (m *Match) intervalBanner(c *paint.Canvas, p *passage, t int64) {
	k := slide(t-p.start, bannerInMS, intervalOutMS)
	if k == 0 {
		return
	}
	u := float64(m.width) / 100
	left, top := m.banner(c, k, paint.RGB{226, 230, 236})
	text := "HALF TIME"
	if p.phase == AtFullTime {
		text = "FULL TIME"
	}
	white := paint.RGB{255, 255, 255}
	score := m.scoreAt(t)
	c.Text(left+12*u, top+2.2*u, 6.6*u, text, white, 0.105)
	x, y, h := left+12*u, top+10.4*u, 4*u
	for i, side := range m.kits {
		c.Text(x, y, h, side.code, side.shirt.Mix(white, 0.35), 0.09)
		x += 3.6 * h
		if i == 0 {
			c.Text(x, y, h, fmt.Sprintf("%d-%d", score[0], score[1]), white, 0.1)
			x += 3.6 * h
		}
	}
}

// banner draws an empty banner at a position k between 0 and 1, and returns its upper left corner.
func (m *Match) banner(c *paint.Canvas, k float64, stripe paint.RGB) (left, top float64) {
	u := float64(m.width) / 100
	top, bottom := bannerEdges(float64(m.height))
	left = 100*u*(k-1) + 4*u
	right := left + 92*u
	c.Rect(left, top, right, bottom, paint.RGB{14, 20, 40}, 0.96)
	c.Rect(left, top, left+6*u, bottom, stripe, 1)
	c.Rect(left, bottom-0.9*u, right, bottom, stripe, 1)
	return left, top
}

// plate draws the lower third after a shot at the goal, with the shooter and both teams' shots.
func (m *Match) plate(c *paint.Canvas, a *attempt, t int64) {
	k := slide(t-a.at, plateInMS, plateOutMS)
	if k == 0 {
		return
	}
	u := float64(m.width) / 100
	navy, ink := paint.RGB{18, 24, 44}, paint.RGB{246, 248, 252}
	who, tally := m.label(a.figure), m.tally(a)
	const letters = 2.0
	first, second := (2.8+paint.TextWidth(who)*letters)*u, (2+paint.TextWidth(tally)*letters)*u
	x, y, h := 3*u-(first+second+4*u)*(1-k), float64(m.height)-8*u, 4.4*u
	c.Rect(x, y, x+first, y+h, navy, 1)
	c.Rect(x, y, x+0.9*u, y+h, m.kits[a.team].shirt, 1)
	c.Text(x+1.8*u, y+1.2*u, letters*u, who, ink, 0.09)
	c.Rect(x+first, y, x+first+second, y+h, ink, 1)
	c.Text(x+first+u, y+1.2*u, letters*u, tally, navy, 0.095)
}

// label names a figure on graphics, such as "RED 9".
func (m *Match) label(figure int) string {
	p := player(figure)
	return fmt.Sprintf("%s %d", m.kits[p.Team].code, p.Number)
}

// tally formats the attempts for graphics.
func (m *Match) tally(a *attempt) string {
	n := shifted(a.shots, m.shots, mostShots)
	return fmt.Sprintf("SHOTS %d-%d", n[0], n[1])
}

// bannerEdges returns the banner's upper and lower edge in a picture of the given height.
func bannerEdges(height float64) (top, bottom float64) { return 0.36 * height, 0.66 * height }

// flashAt returns the brightness of the flash, 0 to 1.
func (a *attempt) flashAt(t int64) float64 {
	since := t - a.at
	if since < 0 || since >= flashMS {
		return 0
	}
	return 0.9 * (1 - float64(since)/flashMS)
}
