package grammar

import (
	"slices"

	"touchline/worlds"
	"touchline/worlds/match"
)

// plain is the time in seconds after the ball's arrival from which the outcome of a shot is clear.
const plain = 0.4

// States of a match, as its pictures show them, other than the phases of package match.
const (
	inPlay   = string(match.Play)
	atGoal   = "goal"
	atCrowd  = "crowd"
	atReplay = "replay"
	atFree   = "free"
	atKick   = string(match.AtKickOff)
	atOut    = string(match.AtGoalKick)
	atSave   = string(match.AfterSave)
	atHalf   = string(match.AtHalfTime)
	atFull   = string(match.AtFullTime)
)

// matchFact is the content of one picture of the match.
type matchFact struct {
	teams       [2]string
	score       [2]int
	clock, half int
	state       string
	camera      match.Shot
	team        side // the team on the ball
	since       float64
	way         match.Direction
	attempt     *match.Attempt
	goal        *match.Scored
	shots       [2]int
	plate       bool
	covered     bool // by flash or banner
	tint        int
	ball        *[2]float64
	pitch       [2]float64
	flow        match.Direction
	still       bool
	signal      bool // the referee's arm is up
}

// live reports whether the picture shows neither a replay nor the crowd.
func (f *matchFact) live() bool {
	return f.camera == match.ShotWide || f.camera == match.ShotLeft || f.camera == match.ShotRight
}

// stage returns the part of the pitch of the play, as seen by the team on the ball.
func (f *matchFact) stage() string {
	x := f.pitch[0]
	if f.way < 0 {
		x = 105 - x
	}
	switch {
	case x < 40:
		return "own"
	case x < 64:
		return "mid"
	case x < 80:
		return "final"
	}
	return "box"
}

// is reports whether the state is one of the given ones.
func (f *matchFact) is(states ...string) bool { return slices.Contains(states, f.state) }

// teamNames are shirt colours.
func teamNames() []string {
	return []string{"Red", "Blue", "Yellow", "White", "Violet", "Sky Blue", "Orange"}
}

func spanishTeams() []string {
	return []string{"Rojo", "Azul", "Amarillo", "Blanco", "Violeta", "Celeste", "Naranja"}
}

// tints are colours of the floodlights.
func tints() []string        { return []string{"white", "blue", "red", "violet"} }
func spanishTints() []string { return []string{"blanca", "azul", "roja", "violeta"} }

func states() []string {
	return []string{inPlay, atGoal, atCrowd, atReplay, atKick, atFree, atOut, atSave, atHalf, atFull}
}

func stages() []string { return []string{"own", "mid", "final", "box"} }

func outcomes() []match.Outcome {
	return []match.Outcome{match.InGoal, match.Saved, match.AtPost, match.WideOfIt}
}

// goalKinds are the kinds of news of a goal.
func goalKinds() []string {
	return []string{"goal", "goal_score", "goal_lead", "goal_level", "goal_back", "goal_more"}
}

func oneOf(kind string, some ...string) bool { return slices.Contains(some, kind) }

// isGoal reports whether a kind of news is about a goal.
func isGoal(kind string) bool { return slices.Contains(goalKinds(), kind) }

// isPlayed reports whether a kind of news is about a team on the ball.
func isPlayed(kind string) bool {
	return oneOf(kind, "play", "own", "mid", "final", "box", "turn", "on", "shot", "ball", "way")
}

type matchWorld struct {
	texts     map[string]*wordings
	tables    *orderTables
	questions map[string]string // the answers' kinds by kind of order
}

// Name implements World.
func (*matchWorld) Name() string { return worlds.Match }

func (m *matchWorld) wordings(language string) *wordings { return m.texts[language] }

func (m *matchWorld) orders() *orderTables { return m.tables }

// fullName returns a team's name for its name on the score board.
func fullName(short string) string {
	if short == "Sky" {
		return "Sky Blue"
	}
	return short
}

func teamName(team, language string) string {
	if language == english {
		return team
	}
	return spanishTeams()[slices.Index(teamNames(), team)]
}

func (*matchWorld) facts(records []worlds.Truth) []Fact {
	out := make([]Fact, len(records))
	for i, r := range records {
		m := r.Match
		f := &matchFact{
			teams: [2]string{fullName(m.Teams[0]), fullName(m.Teams[1])}, score: m.Score, clock: m.Clock, half: m.Half,
			state: stateOf(m), camera: m.Camera, team: sideOf(m.Possession), since: m.Since, way: m.Direction,
			attempt: m.Attempt, goal: m.Goal, shots: m.Shots, plate: m.Plate != "", covered: m.Banner || m.Flash > 0.3,
			tint: slices.Index(tints(), r.Tint), ball: m.Ball, pitch: m.Pitch, flow: m.Flow, still: m.Still, signal: m.Signal != nil,
		}
		out[i] = Fact{Frame: r.Frame, t: seconds(r.At), light: r.Light, matchFact: f}
	}
	return out
}

// stateOf returns the state that a picture shows.
func stateOf(m *match.Truth) string {
	switch {
	case m.Camera == match.ShotCrowd:
		return atCrowd
	case m.Camera == match.ShotReplayLeft, m.Camera == match.ShotReplayRight:
		return atReplay
	case m.Phase == match.AtFreeKick:
		return atFree
	case m.Phase == match.Celebration:
		return atGoal
	}
	return string(m.Phase)
}
