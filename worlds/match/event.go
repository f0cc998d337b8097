package match

import (
	"fmt"
	"slices"
	"time"
)

// Direction is a movement on the picture, as in records: 1, -1 or 0.
type Direction int

// The directions of play; None means no common direction.
const (
	Left  Direction = -1
	None  Direction = 0
	Right Direction = 1
)

// String returns the direction in lower case.
func (d Direction) String() string {
	switch d {
	case Left:
		return "left"
	case Right:
		return "right"
	case None:
	}
	return "none"
}

// Shot is the camera's view.
type Shot uint8

// The shots. Replays show the last seconds before a goal, save or post again, in slow motion.
const (
	ShotWide Shot = iota
	ShotLeft
	ShotRight
	ShotCrowd
	ShotReplayLeft
	ShotReplayRight
)

// String names the shot in plain words.
func (s Shot) String() string {
	switch s {
	case ShotWide:
		return "wide"
	case ShotLeft:
		return "left half"
	case ShotRight:
		return "right half"
	case ShotCrowd:
		return "crowd"
	case ShotReplayLeft, ShotReplayRight:
		return "replay"
	}
	return "unknown"
}

// shotNames are the names of shots in records.
func shotNames() []string {
	return []string{"wide", "left", "right", "crowd", "replay_left", "replay_right"}
}

// MarshalText returns the name in records.
func (s Shot) MarshalText() ([]byte, error) {
	if names := shotNames(); int(s) < len(names) {
		return []byte(names[s]), nil
	}
	return nil, fmt.Errorf("name shot %d: no such shot", s)
}

// UnmarshalText reads the name in records.
func (s *Shot) UnmarshalText(text []byte) error {
	n := slices.Index(shotNames(), string(text))
	if n < 0 {
		return fmt.Errorf("read shot %q: no such shot", text)
	}
	*s = Shot(n)
	return nil
}

// Outcome of a shot at the goal.
type Outcome string

// The outcomes. After a save the goalkeeper holds the ball; from the post it comes back or goes
// out; wide is past the goal.
const (
	InGoal    Outcome = "goal"
	Saved     Outcome = "save"
	AtPost    Outcome = "post"
	WideOfIt  Outcome = "wide"
	noOutcome Outcome = ""
)

// Kind of event.
type Kind string

// The kinds of events. Each is visible in the picture. A new view and its content are two events at
// the same time.
const (
	// ShotAtGoal: a player strikes the ball towards the goal; the event has the outcome.
	ShotAtGoal Kind = "shot"
	// Goal: a flash fills the picture, a banner comes, play stops.
	Goal Kind = "goal"
	// Save: the keeper dives and has the ball.
	Save Kind = "save"
	// Post: the ball hits the post.
	Post Kind = "post"
	// Wide: the ball crosses the goal line outside the goal.
	Wide Kind = "wide"
	// KickOff: the ball is played from the centre spot.
	KickOff Kind = "kick_off"
	// FreeKick: the referee whistles and raises an arm, and everybody stops.
	FreeKick Kind = "free_kick"
	// Turn: the other team has the ball, and the players run the other way.
	Turn Kind = "turn"
	// HalfTime and FullTime: the referee whistles, everybody stands, a banner appears.
	HalfTime Kind = "half_time"
	FullTime Kind = "full_time"
	// Cut: the camera changes from one frame to the next.
	Cut Kind = "cut"
	// Replay: a cut to a replay of a past moment.
	Replay Kind = "replay"
	// Crowd: a cut to the crowd.
	Crowd Kind = "crowd"
	// StillStart: nothing moves from here on, except the match clock and the frame counter.
	StillStart Kind = "still"
	// StillEnd: play begins again.
	StillEnd Kind = "play_on"
	// Dim and Brighten: the floodlights change within 0.6 s.
	Dim      Kind = "dim"
	Brighten Kind = "brighten"
	// Tint: the floodlights' colour changes within 0.6 s.
	Tint Kind = "tint"
)

// Kinds lists all kinds of events.
func Kinds() []Kind {
	return []Kind{
		ShotAtGoal, Goal, Save, Post, Wide, KickOff, FreeKick, Turn, HalfTime, FullTime,
		Cut, Replay, Crowd, StillStart, StillEnd, Dim, Brighten, Tint,
	}
}

// Event is one thing that happens, for tests and judges to compare with.
type Event struct {
	// At is when it becomes visible, since the world's start; "t" in records, in seconds.
	At   time.Duration `json:"-"`
	Kind Kind          `json:"kind"`
	// Team is the acting team, 0 or 1: it shoots, scores, wins a free kick or takes the ball.
	Team *int `json:"team,omitempty"`
	// Number is the shirt of the player who shoots, 0 for other events.
	Number int `json:"number,omitempty"`
	// Outcome of a shot.
	Outcome Outcome `json:"outcome,omitempty"`
	// Score is the score from then on (Goal, HalfTime, FullTime).
	Score *[2]int `json:"score,omitempty"`
	// Direction is the direction of play from then on (Turn, StillEnd), or of a shot.
	Direction Direction `json:"direction,omitempty"`
	// Camera is the view after a Cut.
	Camera *Shot `json:"camera,omitempty"`
	// Tint is the new colour of the floodlights.
	Tint string `json:"tint,omitempty"`
	// Where is a cell of a 3x3 grid such as "left"; "" means the whole picture.
	Where string `json:"where,omitempty"`
	// Text describes the event in plain words.
	Text string `json:"text"`
}
