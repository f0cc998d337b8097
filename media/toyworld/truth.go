package toyworld

import (
	"math"
	"sort"
	"time"
)

// Truth is what the picture shows at a moment.
type Truth struct {
	// Shot is what the camera shows.
	Shot Shot
	// Still: nothing moves but the match clock and the frame counter.
	Still bool
	// Light is the floodlights' level, 1 = full. Tinted says that they are not white.
	Light  float64
	Tinted bool
	// Flash is how white the picture is, 0 to 1. Banner says that one lies across the middle.
	Flash  float64
	Banner bool
	// Score and Clock are what the score board shows.
	Score [2]int
	Clock time.Duration
	// Ball on the picture, in fractions of its width and height from the top left
	// corner; outside 0 to 1 it is out of sight. BallWay is where it goes.
	BallX, BallY float64
	BallWay      Direction
	// Flow is where the figures in sight stream, None when they do not move
	// together; Speed is their mean speed in picture widths a second.
	Flow  Direction
	Speed float64
	// Regions holds each cell's share of the moving figures in sight: a 3x3 grid, row by row from the top left.
	Regions [9]float64
}

// Events lists what happens from one moment (included) to another (not
// included), in order.
func (w *World) Events(from, to time.Duration) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script.until(max(0, to.Milliseconds()))
	var out []Event
	for _, e := range w.script.events {
		if e.At >= from && e.At < to {
			out = append(out, e)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].At < out[j].At })
	return out
}

// Truth returns what the picture of a moment shows.
func (w *World) Truth(at time.Duration) Truth {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := max(0, at.Milliseconds())
	w.script.until(t)
	now := w.script.showing(t)
	out := Truth{
		Shot:   now.shot,
		Light:  float64(now.light.level) / 256,
		Tinted: now.light.du != 0 || now.light.dv != 0,
		Score:  w.script.scoreAt(t),
		Clock:  time.Duration(w.kickedOff)*time.Second + at.Truncate(time.Second),
	}
	if g, ok := w.script.goalBefore(t); ok && now.live {
		out.Flash = g.flashAt(t)
		out.Banner = t-g.at >= bannerInMS+slideMS/2 && t-g.at <= bannerOutMS-slideMS/2
	}
	if now.shot == ShotCrowd {
		out.BallX, out.BallY = -1, -1
		return out
	}
	w.flow(now, &out)
	lights := w.script.lights
	j := sort.Search(len(lights), func(i int) bool { return lights[i].start > t }) - 1
	fading := j > 0 && t-lights[j].start < rampMS
	sliding := false
	if g, ok := w.script.goalBefore(t); ok && now.live {
		since := t - g.at
		in, out := since-bannerInMS, bannerOutMS-since
		sliding = in >= 0 && in < slideMS || out >= 0 && out < slideMS
	}
	out.Still = out.Speed < 0.001 && out.Flash == 0 && !sliding && !fading
	return out
}

// flow measures movement over a tenth of a second, seen by the camera.
func (w *World) flow(now showing, out *Truth) {
	const step = 100 // ms
	speed := 1.0
	if !now.live {
		speed = slowMotion
	}
	cam := now.shot.camera()
	tall := float64(w.height) / float64(w.width)
	before := now.moment - step
	if w.script.at(max(0, before)).kickOff != w.script.at(now.moment).kickOff {
		before = now.moment // no player walks to the kick-off
	}
	at := func(p vec) (float64, float64, bool) {
		x, y, _ := cam.project(p)
		return x, y, math.Abs(x) <= 0.5 && math.Abs(y) <= 0.5*tall
	}
	sumX, sum, moving, seen := 0.0, 0.0, 0.0, 0.0
	for i := range w.team {
		p, q := w.script.place(&w.team[i], before), w.script.place(&w.team[i], now.moment)
		px, py, _ := at(p)
		x, y, in := at(q)
		if !in {
			continue
		}
		if top, bottom := bannerEdges(1); out.Banner && y/tall+0.5 > top && y/tall+0.5 < bottom {
			continue // out of sight
		}
		seen++
		dx, dy := (x-px)*1000/step*speed, (y-py)*1000/step*speed
		sumX += dx
		sum += math.Hypot(dx, dy)
		if math.Hypot(dx, dy) > 0.003 {
			moving++
			out.Regions[cell(x, y, tall)]++
		}
	}
	for i := range out.Regions {
		out.Regions[i] /= max(moving, 1)
	}
	out.Speed = sum / max(seen, 1)
	if math.Abs(sumX) > 0.5*sum && out.Speed > 0.01 {
		out.Flow = way(sumX)
	}
	px, _, _ := at(w.ball(before))
	x, y, _ := at(w.ball(now.moment))
	out.BallX, out.BallY = x+0.5, y/tall+0.5
	if math.Abs(x-px)*1000/step > 0.01 {
		out.BallWay = way(x - px)
	}
}

func way(dx float64) Direction {
	if dx > 0 {
		return Right
	}
	return Left
}

// cell of the 3x3 grid for a place from the picture's centre, in picture widths.
func cell(x, y, tall float64) int {
	col := max(0, min(2, int((x+0.5)*3)))
	row := max(0, min(2, int((y/tall+0.5)*3)))
	return row*3 + col
}
