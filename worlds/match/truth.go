package match

import (
	"math"
	"sort"
	"time"

	"touchline/worlds/paint"
)

// Phase is the state of the match.
type Phase string

// The phases of a match.
const (
	Play        Phase = "play"
	AtFreeKick  Phase = "free_kick"
	AtKickOff   Phase = "kick_off"
	Celebration Phase = "celebration"
	AtGoalKick  Phase = "goal_kick"
	AfterSave   Phase = "save"
	AtHalfTime  Phase = "half_time"
	AtFullTime  Phase = "full_time"
)

// Player is a player by team, 0 or 1, and shirt number; the goalkeeper wears 1.
type Player struct {
	Team   int `json:"team"`
	Number int `json:"number"`
}

func player(figure int) Player {
	return Player{Team: figure / teamSize, Number: figure%teamSize + 1}
}

// Pass is a ball in flight between two players of a team.
type Pass struct {
	// From and To are shirt numbers.
	From int `json:"from"`
	To   int `json:"to"`
	// DX and DY are the vector of the pass, in metres on the pitch: to the right of the picture, and away from the camera.
	DX float64 `json:"dx"`
	DY float64 `json:"dy"`
}

// Attempt is a shot at the goal, from the strike until 3 s after the ball's arrival.
type Attempt struct {
	Player

	Outcome Outcome `json:"outcome"`
	// Age is the number of seconds since the strike.
	Age float64 `json:"age"`
	// Contact is the number of seconds since the ball reached goal, goalkeeper, post or line; negative before.
	Contact float64 `json:"contact"`
}

// Scored is a goal.
type Scored struct {
	Player

	// Age is the number of seconds since the ball was in the net.
	Age float64 `json:"age"`
}

// Truth is the content of the picture at a moment. Places on the picture are fractions of its width
// and height from the top left corner; values outside 0 to 1 are out of sight. A replay shows a
// past moment: phase, players and ball are of that moment, the graphics are of the present.
type Truth struct {
	// Teams are the names of the two teams, which are the colours of their shirts.
	Teams [2]string `json:"teams"`
	// Score and Clock, in seconds, are the values on the score board.
	Score [2]int `json:"score"`
	Clock int    `json:"clock"`
	// Half is 1 or 2.
	Half  int   `json:"half"`
	Phase Phase `json:"phase"`
	// Camera is the current view. Live is false in replays.
	Camera Shot `json:"camera"`
	Live   bool `json:"live"`
	// Possession is the team that has the ball or is about to play it; nil if neither does.
	Possession *int `json:"possession"`
	// Carrier is the player with the ball at the feet.
	Carrier *Player `json:"carrier"`
	// Since is the number of seconds since this stretch of the match began.
	Since float64 `json:"since"`
	// Direction is the direction of play.
	Direction Direction `json:"direction"`
	Pass      *Pass     `json:"pass"`
	Attempt   *Attempt  `json:"attempt"`
	// Goal is the last goal of the match.
	Goal *Scored `json:"goal"`
	// Shots counts each team's attempts in this match, goals included.
	Shots [2]int `json:"shots"`
	// Plate is the graphic at the bottom left, "" for none.
	Plate string `json:"plate"`
	// Flash is the brightness of the flash, 0 to 1. Banner means that a banner lies across the middle.
	Flash  float64 `json:"flash"`
	Banner bool    `json:"banner"`
	// Ball is its place on the picture, nil in the crowd shot. BallWay is its direction on the picture.
	Ball    *[2]float64 `json:"ball"`
	BallWay Direction   `json:"ball_way"`
	// Pitch is the ball's place on the pitch in metres: from the left goal line, and from the near touchline.
	Pitch [2]float64 `json:"pitch"`
	// Torsos are the places of the 22 players' shirts on the picture, team 0 first; keepers are 0 and 11. Empty in the crowd shot.
	Torsos [][2]float64 `json:"torsos"`
	// Referee is the place of the referee's shirt, nil in the crowd shot. Signal is the place of the raised hand, from a free kick's
	// whistle until the ball is touched; nil while the arm is down.
	Referee *[2]float64 `json:"referee"`
	Signal  *[2]float64 `json:"signal"`
	// Flow is the common direction of the figures in sight, or None; Speed is their mean speed in
	// picture widths per second.
	Flow  Direction `json:"flow"`
	Speed float64   `json:"speed"`
	// Still means that nothing moves but the match clock and the frame counter.
	Still bool `json:"still"`
	// Regions holds each cell's share of the moving figures in sight: a 3x3 grid, row by row from the top left.
	Regions [9]float64 `json:"regions"`
}

// Lamps is the state of the floodlights.
type Lamps struct {
	// Level is 1 at full brightness.
	Level float64
	// Tint is the colour: white, blue, red or violet.
	Tint string
}

// Lamps returns the floodlights at a moment.
func (m *Match) Lamps(at time.Duration) Lamps {
	t := max(0, at.Milliseconds())
	m.script.until(t)
	l := m.script.showing(t).light
	return Lamps{Level: round(float64(l.Level)/256, 3), Tint: tint(l)}
}

// Events lists the events in [from, to), in order.
func (m *Match) Events(from, to time.Duration) []Event {
	m.script.until(max(0, to.Milliseconds()))
	var out []Event
	for _, e := range m.script.events {
		if e.At >= from && e.At < to {
			out = append(out, e)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].At < out[j].At })
	return out
}

// Truth returns the content of the picture at a moment.
func (m *Match) Truth(at time.Duration) Truth {
	t := max(0, at.Milliseconds())
	m.script.until(t)
	now := m.script.showing(t)
	p := m.script.at(now.moment)
	half := m.script.halfAt(t)
	out := Truth{
		Teams: m.script.names, Score: m.scoreAt(t), Shots: m.shotsAt(t),
		Clock: int(m.script.clockAt(t, m.shift)), Half: half.number,
		Phase: p.phase, Camera: now.shot, Live: now.live || now.shot == ShotCrowd,
		Since: seconds(now.moment - p.start), Torsos: [][2]float64{},
	}
	if g := m.script.goalAt(t); g != nil {
		out.Goal = &Scored{Player: player(g.figure), Age: seconds(t - g.at)}
	}
	if now.live {
		m.graphics(t, &out)
	}
	if now.shot == ShotCrowd {
		out.Phase = now.phase
		return out
	}
	m.play(now, p, &out)
	m.flow(now, &out)
	out.Still = out.Speed < 0.001 && out.Flash == 0 && out.BallWay == None && !m.changing(t, now)
	return out
}

// graphics sets the graphics over the live picture.
func (m *Match) graphics(t int64, out *Truth) {
	const half = 0.5
	if p := m.script.at(t); p.phase == AtHalfTime || p.phase == AtFullTime {
		out.Banner = slide(t-p.start, bannerInMS, intervalOutMS) >= half
	}
	a := m.script.arrivedAt(t)
	if a == nil {
		return
	}
	if a.outcome == InGoal {
		out.Flash = round(a.flashAt(t), 3)
		out.Banner = out.Banner || slide(t-a.at, bannerInMS, bannerOutMS) >= half
	}
	if slide(t-a.at, plateInMS, plateOutMS) >= half {
		out.Plate = m.label(a.figure) + "  " + m.tally(a)
	}
}

// changing reports whether graphics, a goalkeeper or the referee's arm are moving. The lights change during play only.
func (m *Match) changing(t int64, now showing) bool {
	if m.script.signal(now.moment) != m.script.signal(now.moment-100) {
		return true
	}
	for team := range 2 {
		_, before := m.script.dive(team, now.moment-100)
		if _, lean := m.script.dive(team, now.moment); lean != before {
			return true
		}
	}
	if !now.live {
		return false
	}
	if p := m.script.at(t); (p.phase == AtHalfTime || p.phase == AtFullTime) && sliding(t-p.start, bannerInMS, intervalOutMS) {
		return true
	}
	a := m.script.arrivedAt(t)
	return a != nil && (sliding(t-a.at, plateInMS, plateOutMS) || a.outcome == InGoal && sliding(t-a.at, bannerInMS, bannerOutMS))
}

// play sets the state of ball and players.
func (m *Match) play(now showing, p *passage, out *Truth) {
	t := now.moment
	if p.phase != AtHalfTime && p.phase != AtFullTime {
		out.Possession = new(p.team)
	}
	if p.moving() {
		out.Direction = Direction(p.dir)
	}
	shooting := false
	if a := m.script.attemptAt(t); a != nil && t < a.at+newsMS {
		out.Attempt = &Attempt{Player: player(a.figure), Outcome: a.outcome, Age: seconds(t - a.struck), Contact: seconds(t - a.at)}
		shooting = t < a.at
	}
	if !shooting {
		m.carry(p, t, out)
	}
	ball := m.script.ballAt(t)
	out.Pitch = [2]float64{round(ball.X, 1), round(ball.Y, 1)}
	size, tall := float64(m.width), float64(m.height)
	out.Torsos = make([][2]float64, 2*teamSize)
	for _, f := range m.cast(now.shot.camera(), t) {
		at := func(right, up float64) [2]float64 {
			x, y := f.spot(right*f.size, up*f.size)
			return [2]float64{round(x/size, 4), round(y/tall, 4)}
		}
		if f.index != referee {
			out.Torsos[f.index] = at(0, torsoUp)
			continue
		}
		out.Referee = new(at(0, torsoUp))
		if f.signal == 1 {
			out.Signal = new(at(handRight, handUp))
		}
	}
}

// carry sets the player with the ball, or the receiver of a pass.
func (m *Match) carry(p *passage, t int64, out *Truth) {
	who := p.carrier
	switch p.phase {
	case AtKickOff, Celebration, AtHalfTime, AtFullTime:
		return
	case AtFreeKick:
		if p.from != atFeet && t < p.start+carriedMS {
			return
		}
	case AtGoalKick:
		if t < p.start+outMS+fetchMS {
			return
		}
	case Play:
		n, k := p.pass(t)
		from, to := p.receiver(n-1), p.receiver(n)
		if n == 0 && p.from == onSpot || from/teamSize != to/teamSize {
			from = to
		}
		if k < 1 {
			if from != to {
				a, b := m.script.place(from, t), m.script.place(to, t)
				out.Pass = &Pass{From: player(from).Number, To: player(to).Number, DX: round(b.X-a.X, 1), DY: round(b.Y-a.Y, 1)}
			}
			return
		}
		who = to
	case AfterSave:
	}
	out.Carrier = new(player(who))
}

// flow measures movement over a tenth of a second, as seen by the camera.
func (m *Match) flow(now showing, out *Truth) {
	const step = 100 // ms
	speed := 1.0
	if !now.live {
		speed = slowMotion
	}
	cam := now.shot.camera()
	tall := float64(m.height) / float64(m.width)
	before := now.moment - step
	if (m.script.at(max(0, before)).phase == AtKickOff) != (m.script.at(now.moment).phase == AtKickOff) {
		before = now.moment // no player walks to the kick-off
	}
	at := func(p paint.Vec) (float64, float64, bool) {
		x, y, _ := cam.Project(p)
		return x, y, math.Abs(x) <= 0.5 && math.Abs(y) <= 0.5*tall
	}
	sumX, sum, moving, seen := 0.0, 0.0, 0.0, 0.0
	for i := range m.team {
		p, q := m.script.place(i, before), m.script.place(i, now.moment)
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
		out.Regions[i] = round(out.Regions[i]/max(moving, 1), 3)
	}
	out.Speed = round(sum/max(seen, 1), 4)
	if math.Abs(sumX) > 0.5*sum && out.Speed > 0.01 {
		out.Flow = way(sumX)
	}
	px, _, _ := at(m.script.ballAt(before))
	x, y, _ := at(m.script.ballAt(now.moment))
	out.Ball = &[2]float64{round(x+0.5, 4), round(y/tall+0.5, 4)}
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

// cell returns the cell of the 3x3 grid for a place, given from the picture's centre in picture
// widths.
func cell(x, y, tall float64) int {
	col := max(0, min(2, int((x+0.5)*3)))
	row := max(0, min(2, int((y/tall+0.5)*3)))
	return row*3 + col
}

// seconds converts milliseconds to seconds.
func seconds(ms int64) float64 { return float64(ms) / 1000 }

// round rounds to a number of decimals, for short records.
func round(v float64, decimals int) float64 {
	k := math.Pow10(decimals)
	v = math.Round(v*k) / k
	if v == 0 {
		return 0 // not -0
	}
	return v
}
