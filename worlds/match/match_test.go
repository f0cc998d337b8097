package match_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds/match"
	"touchline/worlds/paint"
)

const width, height = 320, 180

func newMatch(seed uint64) *match.Match { return match.New(seed, width, height, false) }

// Every shot has an outcome 0.7 s later, and board and tallies follow.
func TestShotsHaveOutcomes(t *testing.T) {
	const length = time.Hour
	count := map[match.Kind]int{}
	for seed := range uint64(8) {
		m := newMatch(seed)
		var shot match.Event
		var score, shots [2]int
		for _, e := range m.Events(0, length) {
			count[e.Kind]++
			switch e.Kind {
			case match.ShotAtGoal:
				shot = e
				shots[*e.Team]++
			case match.Goal, match.Save, match.Post, match.Wide:
				require.Equal(t, shot.At+700*time.Millisecond, e.At)
				require.Equal(t, string(shot.Outcome), string(e.Kind))
				require.Equal(t, *shot.Team, *e.Team)
				require.Equal(t, shot.Number, e.Number)
				require.InDelta(t, 8.5, e.Number, 2.5, "strikers and midfielders shoot")
				if e.Kind == match.Goal {
					score[*e.Team]++
					require.Equal(t, score, *e.Score)
					require.LessOrEqual(t, max(score[0], score[1]), 9)
				}
				now := m.Truth(e.At)
				require.Equal(t, score, now.Score)
				require.Equal(t, shots, now.Shots)
				require.Equal(t, shot.Outcome, now.Attempt.Outcome)
				require.Zero(t, now.Attempt.Contact)
				require.InDelta(t, 0.7, now.Attempt.Age, 1e-9)
				before := m.Truth(shot.At - time.Millisecond).Carrier
				require.Equal(t, &match.Player{Team: *e.Team, Number: e.Number}, before, "who shoots has had the ball")
			case match.FullTime:
				require.Equal(t, score, *e.Score)
				score, shots = [2]int{}, [2]int{}
			default:
			}
		}
	}
	goals := count[match.Goal]
	require.InDelta(t, 8*60, goals, 8*12, "about one a minute")
	for _, k := range []match.Kind{match.Save, match.Post, match.Wide} {
		require.InDelta(t, goals, count[k], 0.4*float64(goals), "%s: about as often as goals", k)
	}
}

// The board has one digit for each team: the tenth goal of a team is saved.
func TestNineGoalsAtMost(t *testing.T) {
	for seed := range uint64(1000) {
		full, shots := -1, 0 // the team with nine goals, and its shots since then
		for _, e := range newMatch(seed).Events(0, time.Hour) {
			switch {
			case e.Kind == match.FullTime:
				full, shots = -1, 0
			case e.Kind == match.Goal && e.Score[*e.Team] == 9:
				full = *e.Team
			case e.Kind == match.ShotAtGoal && *e.Team == full:
				require.NotEqual(t, match.InGoal, e.Outcome)
				shots++
			}
			if shots == 5 {
				return
			}
		}
	}
	require.Fail(t, "no team has scored nine times")
}

// The clock stands from the whistle to the next kick-off, which the other team takes; a new match begins at 0-0.
func TestHalves(t *testing.T) {
	for seed := range uint64(8) {
		m := newMatch(seed)
		kicker, started := -1, 0
		var ended match.Kind
		for _, e := range m.Events(0, 40*time.Minute) {
			now, before := m.Truth(e.At), m.Truth(max(0, e.At-time.Millisecond))
			switch e.Kind {
			case match.HalfTime, match.FullTime:
				ended = e.Kind
				soon, late := m.Truth(e.At+time.Second), m.Truth(e.At+11*time.Second)
				phase, clock := match.AtHalfTime, 45*60
				if e.Kind == match.FullTime {
					phase, clock = match.AtFullTime, 90*60
				}
				require.Equal(t, phase, now.Phase)
				require.Equal(t, clock, now.Clock)
				require.Nil(t, now.Possession)
				require.True(t, soon.Banner && late.Banner)
				require.True(t, late.Still, "seed %d: everybody stands at %v", seed, e.At)
			case match.KickOff:
				switch ended {
				case match.HalfTime:
					require.Equal(t, 1-kicker, *e.Team, "seed %d at %v", seed, e.At)
					require.Equal(t, [2]int{45 * 60, 2}, [2]int{before.Clock, before.Half})
					require.Equal(t, 45*60+10, m.Truth(e.At+time.Second).Clock)
				case match.FullTime, "":
					require.Equal(t, [2]int{}, before.Score)
					require.Equal(t, [2]int{}, before.Shots)
					require.Equal(t, [2]int{0, 1}, [2]int{before.Clock, before.Half})
					require.Nil(t, before.Goal)
					kicker = *e.Team
					started++
				default:
				}
				ended = match.KickOff
			default:
			}
		}
		require.GreaterOrEqual(t, started, 4)
	}
}

// The ball never jumps, except while the camera looks away, and who has it is near it.
func TestBall(t *testing.T) {
	const step = 20 * time.Millisecond
	for seed := range uint64(3) {
		m := newMatch(seed)
		before := m.Truth(0)
		for at := step; at < 12*time.Minute; at += step {
			now := m.Truth(at)
			if now.Camera != match.ShotCrowd && now.Camera == before.Camera && now.Since > 0 {
				jump := math.Hypot(now.Pitch[0]-before.Pitch[0], now.Pitch[1]-before.Pitch[1])
				require.Less(t, jump, 5.0, "seed %d at %v: %+v, then %+v", seed, at, before, now)
			}
			if c := now.Carrier; c != nil {
				require.Equal(t, *now.Possession, c.Team)
				torso, ball := now.Torsos[c.Team*11+c.Number-1], *now.Ball
				require.Less(t, math.Hypot(torso[0]-ball[0], torso[1]-ball[1]), 0.2, "seed %d at %v", seed, at)
			}
			require.False(t, now.Carrier != nil && now.Pass != nil)
			before = now
		}
	}
}

// Ball, shirts and plate are in the picture where the truth says.
func TestTruthIsInThePicture(t *testing.T) {
	m := newMatch(4)
	pix := make([]byte, paint.I420Size(width, height))
	c := paint.NewCanvas(pix, width, height)
	luma := func(at [2]float64) int { return int(c.Y.Pix[int(at[1]*height)*width+int(at[0]*width)]) }
	grass := func(at [2]float64) bool {
		i := int(at[1]*height)/2*(width/2) + int(at[0]*width)/2
		return c.U.Pix[i] < 121 && c.V.Pix[i] < 121
	}
	within := func(at [2]float64) bool { return at[0] > 0.02 && at[0] < 0.98 && at[1] > 0.2 && at[1] < 0.8 }
	balls, white, shirts, cloth, plates := 0, 0, 0, 0, 0
	for at := time.Second; at < 9*time.Minute; at += 730 * time.Millisecond {
		now := m.Truth(at)
		if now.Ball == nil || now.Banner || now.Flash > 0 || m.Lamps(at) != (match.Lamps{Level: 1, Tint: "white"}) {
			continue
		}
		m.Draw(at, &c)
		if within(*now.Ball) {
			balls++
			if luma(*now.Ball) > 160 {
				white++
			}
		}
		for _, at := range now.Torsos {
			if within(at) {
				shirts++
				if !grass(at) {
					cloth++
				}
			}
		}
		if now.Plate != "" {
			plates++
			require.Greater(t, luma([2]float64{0.2, 1 - 7.4/56.25}), 180, "at %v", at)
		}
	}
	require.Greater(t, balls, 100)
	require.Greater(t, white*100, balls*85, "%d of %d", white, balls)
	require.Greater(t, cloth*100, shirts*94, "%d of %d", cloth, shirts)
	require.Greater(t, plates, 10)
}

// A shifted clock changes the clock only, and never leaves the half.
func TestShiftClock(t *testing.T) {
	plain, shifted := newMatch(2), newMatch(2)
	shifted.ShiftClock(20 * time.Minute)
	differ := 0
	for at := time.Duration(0); at < 20*time.Minute; at += 3100 * time.Millisecond {
		a, b := plain.Truth(at), shifted.Truth(at)
		if a.Clock != b.Clock {
			differ++
		}
		start := (a.Half - 1) * 45 * 60
		require.GreaterOrEqual(t, b.Clock, start, "at %v", at)
		require.LessOrEqual(t, b.Clock, start+45*60, "at %v", at)
		b.Clock = a.Clock
		require.Equal(t, a, b)
	}
	require.Greater(t, differ, 200)
}

func BenchmarkTruth(b *testing.B) {
	m := newMatch(1)
	m.Truth(10 * time.Minute)
	at := time.Duration(0)
	for b.Loop() {
		m.Truth(at % (10 * time.Minute))
		at += 200 * time.Millisecond
	}
}

// A shifted score changes what is shown of goals and shots only, within their bounds.
func TestShiftScore(t *testing.T) {
	plain, shifted := newMatch(2), newMatch(2)
	shifted.ShiftScore([2]int{3, -20}, [2]int{1, 200})
	for at := time.Duration(0); at < 5*time.Minute; at += 3100 * time.Millisecond {
		a, b := plain.Truth(at), shifted.Truth(at)
		require.Equal(t, [2]int{min(9, a.Score[0]+3), 0}, b.Score, "at %v", at)
		require.Equal(t, [2]int{a.Shots[0] + 1, 99}, b.Shots, "at %v", at)
		b.Score, b.Shots = a.Score, a.Shots
		if a.Plate != "" {
			require.NotEqual(t, a.Plate, b.Plate)
			b.Plate = a.Plate
		}
		require.Equal(t, a, b)
	}
}

// The referee is in the picture, clear of the ball, and keeps an arm up from the whistle for a free kick until the ball has been touched.
func TestReferee(t *testing.T) {
	const frame, look = time.Second / 30, 600 * time.Millisecond
	kicks, seen, frames, beside := 0, 0, 0, 0
	for seed := range uint64(15) {
		m := newMatch(seed)
		pix := make([]byte, paint.I420Size(width, height))
		c := paint.NewCanvas(pix, width, height)
		dark := func(at [2]float64) bool {
			i := int(at[1]*height)*width + int(at[0]*width)
			return slices.Min(c.Y.Pix[i-1:i+2]) < 60
		}
		within := func(at [2]float64) bool { return at[0] > 0.01 && at[0] < 0.99 && at[1] > 0.01 && at[1] < 0.99 }
		for _, e := range m.Events(0, 9*time.Minute) {
			if e.Kind != match.FreeKick || m.Lamps(e.At).Level < 1 { // in less light the grass is dark too
				continue
			}
			require.Nil(t, m.Truth(e.At-frame).Signal)
			kicks++
			shows := false
			at := e.At + look
			for ; m.Truth(at).Phase == match.AtFreeKick; at += look {
				now := m.Truth(at)
				require.NotNil(t, now.Signal, "seed %d at %v", seed, at)
				m.Draw(at, &c)
				shows = shows || within(*now.Signal) && dark(*now.Signal) && dark(*now.Referee)
			}
			if shows {
				seen++
			}
			require.Nil(t, m.Truth(at+2*time.Second).Signal, "seed %d at %v", seed, at)
		}
		for at := time.Second; at < 9*time.Minute; at += 730 * time.Millisecond {
			now := m.Truth(at)
			if now.Referee == nil || !now.Live {
				require.Equal(t, now.Camera == match.ShotCrowd, now.Referee == nil)
				continue
			}
			frames++
			near := math.Hypot(now.Referee[0]-now.Ball[0], (now.Referee[1]-now.Ball[1])*height/width)
			if within(*now.Referee) && near > 0.02 {
				beside++
			}
			require.True(t, now.Signal == nil || now.Phase == match.AtFreeKick || now.Phase == match.Play && now.Since < 0.5)
		}
	}
	require.Greater(t, kicks, 40)
	require.GreaterOrEqual(t, seen*100, kicks*97, "%d of %d", seen, kicks)
	require.Greater(t, beside*100, frames*94, "%d of %d", beside, frames)
}

// A match that hurries has more free kicks, and all of the attack shoot.
func TestHurry(t *testing.T) {
	count := func(hurry bool) (kicks int, shots [12]int) {
		for seed := range uint64(6) {
			m := newMatch(seed)
			if hurry {
				m.Hurry()
			}
			for _, e := range m.Events(0, 20*time.Minute) {
				if e.Kind == match.FreeKick {
					kicks++
				}
				if e.Kind == match.ShotAtGoal {
					shots[e.Number]++
				}
			}
		}
		return kicks, shots
	}
	kicks, shots := count(false)
	more, even := count(true)
	require.Greater(t, more*10, kicks*16, "%d of %d", more, kicks)
	require.Less(t, shots[6]*2, shots[11])
	require.Greater(t, even[6]*2, even[11])
}
