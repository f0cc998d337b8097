package match

import (
	"fmt"

	"touchline/media/toyworld/paint"
)

// What a broadcaster lays over the picture: score board, clock, banner, replay sign.

const (
	flashMS     = 450
	bannerInMS  = 300 // after the goal
	bannerOutMS = 3200
	slideMS     = 260
)

// board draws score board and match clock.
func (m *Match) board(c *paint.Canvas, t int64) {
	u := float64(m.width) / 100
	x, y, h := 3*u, 3*u, 4*u
	navy, ink := paint.RGB{18, 24, 44}, paint.RGB{246, 248, 252}
	score := m.script.scoreAt(t)
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
	total := m.kickedOff + t/1000
	c.Text(x+23.3*u, y+1.15*u, 1.7*u, fmt.Sprintf("%02d:%02d", total/60%100, total%60), ink, 0.08)
}

// sign draws the mark of a replay.
func (m *Match) sign(c *paint.Canvas) {
	u := float64(m.width) / 100
	x, y := 80.6*u, 3*u
	c.Rect(x, y, x+16.4*u, y+4*u, paint.RGB{190, 24, 44}, 0.95)
	c.Text(x+1.8*u, y+1.1*u, 1.8*u, "REPLAY", paint.RGB{255, 255, 255}, 0.1)
}

// banner of a goal, which slides in, stays and goes.
func (m *Match) banner(c *paint.Canvas, g goalMark, t int64) {
	since := t - g.at
	if since < bannerInMS || since > bannerOutMS {
		return
	}
	k := 1.0
	if since < bannerInMS+slideMS {
		k = float64(since-bannerInMS) / slideMS
	} else if since > bannerOutMS-slideMS {
		k = float64(bannerOutMS-since) / slideMS
	}
	k = k * k * (3 - 2*k)
	u, h := float64(m.width)/100, float64(m.height)
	kit := m.kits[g.team]
	top, bottom := bannerEdges(h)
	left := 100*u*(k-1) + 4*u
	right := left + 92*u
	c.Rect(left, top, right, bottom, paint.RGB{14, 20, 40}, 0.96)
	c.Rect(left, top, left+6*u, bottom, kit.shirt, 1)
	c.Rect(left, bottom-0.9*u, right, bottom, kit.shirt, 1)
	c.Text(left+12*u, top+3*u, 9.6*u, "GOAL!", paint.RGB{255, 255, 255}, 0.105)
	c.Text(left+61*u, top+3.4*u, 4.4*u, kit.code, kit.shirt.Mix(paint.RGB{255, 255, 255}, 0.35), 0.09)
	c.Text(left+61*u, top+9.4*u, 3*u, fmt.Sprintf("%d - %d", g.score[0], g.score[1]), paint.RGB{220, 226, 240}, 0.09)
}

// bannerEdges are the banner's upper and lower edge in a picture of the given height.
func bannerEdges(height float64) (top, bottom float64) { return 0.36 * height, 0.66 * height }

// flashAt is how white the picture is, 0 to 1.
func (g goalMark) flashAt(t int64) float64 {
	since := t - g.at
	if since < 0 || since >= flashMS {
		return 0
	}
	return 0.9 * (1 - float64(since)/flashMS)
}
