// Package claims reads what a commentator says about a generated world, in free
// words, and judges it by the world's truth.
//
// Parse finds the claims of a comment: "Red score, two-one!" claims a goal of Red
// and the score 2-1. Words and patterns lie in the folder words, by language and
// world; a sentence without a known claim is not judged. Judge
// compares claims with the truth around the newest picture of the look that the
// comment is about:
//
//   - A claim about an event is right if such an event begins between 8 s before
//     and 0.5 s after that picture; a goal 20 s before it, since goals are celebrated
//     and shown again. Some events show before they count as begun (a person walks
//     towards the gate before it leaves), and are right 3 s before their beginning.
//   - A claim about a state is right if the state holds within 0.5 s of the picture.
//   - Zones of the pitch overlap by some metres.
//
// A Tally counts the correct and wrong claims and the missed events of one film.
//
// The package keeps no time and reads no files but its embedded ones.
package claims

import (
	"cmp"
	"slices"
	"strings"

	"touchline/worlds/match"
)

// Kind names what a claim is about.
type Kind = string

// The kinds of claims that belong to no world.
const (
	// Cannot is a refusal, such as "I can't see that.".
	Cannot Kind = "cannot"
	// Stranger states that the picture shows neither world.
	Stranger Kind = "stranger"
	// Dark states that the picture shows nothing.
	Dark Kind = "dark"
	// Never is about an event that the worlds do not have, such as a corner.
	Never Kind = "never"

	ignored Kind = "-" // words that look like a claim but are none
)

// The kinds of claims about the match.
const (
	Goal Kind = "goal"
	Joy  Kind = "joy" // about a goal
	Shot Kind = "shot"
	Save Kind = "save" // Team is the goalkeeper's team
	Post Kind = "post"
	Wide Kind = "wide"

	Score      Kind = "score"
	Lead       Kind = "lead"
	Trail      Kind = "trail"
	Level      Kind = "level"
	None       Kind = "none"        // no goals yet
	Count      Kind = "count"       // of goals
	ShotsCount Kind = "shots_count" // of each team

	Clock     Kind = "clock"
	ClockLeft Kind = "clock_left"
	ClockZero Kind = "clock_zero"
	Half      Kind = "half" // 1 is the first half
	Half2     Kind = "half2"
	HalfTime  Kind = "half_time"
	FullTime  Kind = "full_time"
	KickOff   Kind = "kick_off"
	FreeKick  Kind = "free"
	GoalKick  Kind = "goal_kick"
	Still     Kind = "still" // no player moves

	Ball  Kind = "ball" // Team has the ball
	Turn  Kind = "turn" // Team wins the ball
	Own   Kind = "own"  // Team has it in its own half
	Mid   Kind = "mid"
	Final Kind = "final"
	Box   Kind = "box"
	Way   Kind = "way" // the direction in which Team plays

	Crowd  Kind = "crowd"
	Replay Kind = "replay"
	Cut    Kind = "cut"   // what the camera shows, or that this changes
	Flash  Kind = "flash" // a flash over the picture
	Banner Kind = "banner"
	Dim    Kind = "dim"
	Bright Kind = "bright"
	Tint   Kind = "tint"
	White  Kind = "white"

	Teams   Kind = "teams"
	Someone Kind = "player"
)

// The kinds of claims about the yard.
const (
	Arrive Kind = "arrive"
	Leave  Kind = "leave"
	Person Kind = "person" // a person is present
	People Kind = "people" // Count people
	Nobody Kind = "nobody" // nobody is at Place
	Empty  Kind = "empty"  // nobody in sight
	Colour Kind = "colour" // of a coat or a car, if the comment names neither

	ParcelLeft  Kind = "parcel_left"
	ParcelTaken Kind = "parcel_taken"
	Carries     Kind = "carries"
	ParcelThere Kind = "parcel"
	ParcelNone  Kind = "parcel_none"

	CarArrive Kind = "car_arrive"
	CarLeave  Kind = "car_leave"
	Car       Kind = "car"  // is there
	Cars      Kind = "cars" // Count cars
	CarsNone  Kind = "cars_none"

	Dog    Kind = "dog"
	Cat    Kind = "cat"
	Animal Kind = "animal"

	RainStart Kind = "rain_start"
	RainEnd   Kind = "rain_end"
	Rain      Kind = "rain"
	Dry       Kind = "dry"
	LampFails Kind = "lamp_fails"
	LampOn    Kind = "lamp_on" // the lamp comes on
	LampLit   Kind = "lamp_lit"
	NoLit     Kind = "lamp_off"
	Dusk      Kind = "dusk"
	Dawn      Kind = "dawn"
	Night     Kind = "night"
	Day       Kind = "day"
)

// Claim is one statement of a comment. A field that the comment does not mention is "" or -1.
type Claim struct {
	Kind Kind
	// Not claims the opposite.
	Not bool
	// Team acts against Other. Both are shirt colours in lower case: red, blue, yellow, white, violet, sky, orange.
	Team, Other string
	// Number is a shirt number. Count is a number of minutes, goals, people or cars, and More a second count.
	Number, Count, More int
	// Score lists the goals of Team first; without a team, the order is open.
	Score [2]int
	// Colour of a coat, a car or the light.
	Colour string
	// Place in the yard: gate, door, parking, path or yard.
	Place string
	// Way is the direction of play; None if the comment does not mention one.
	Way match.Direction
	// Text is the matched tokens, for reports.
	Text string
}

// Parse returns the claims of a comment about a world ("match" or "yard") in a language ("en" or
// "es"), in no particular order, or none if the comment has no claim.
func Parse(text, language, world string) []Claim {
	l := lexiconOf(language, world)
	line := l.tokens(text)
	var out []Claim
	for _, p := range l.patterns {
		for {
			at := p.find.FindStringSubmatchIndex(line)
			if at == nil {
				break
			}
			from, to := at[3], at[1] // without the context before the pattern
			c, ok := l.claim(p, line, at)
			if ok && !slices.ContainsFunc(out, func(d Claim) bool { d.Text = c.Text; return c == d }) {
				out = append(out, c)
			}
			line = line[:from] + l.consumed(line[from:to], line[to:]) + line[to:]
		}
	}
	return slices.DeleteFunc(out, func(c Claim) bool { // a person who does something is present
		return c.Kind == Person && c.Place == "" && !c.Not &&
			slices.ContainsFunc(out, func(d Claim) bool { return d.Text != c.Text && d.Colour == c.Colour && ofPeople(d.Kind) })
	})
}

// consumed replaces matched tokens by tokens that no pattern matches. The subject stays for a clause after "and".
func (l *lexicon) consumed(tokens, after string) string {
	all := strings.Fields(tokens)
	subject := ""
	if next, _, _ := strings.Cut(after, " "); slices.Contains(l.lists["and"], next) {
		subject = first(all)
	}
	for i := range all {
		all[i] = "_"
	}
	if subject != "" && len(all) > 1 {
		all[len(all)-1] = subject
	}
	return strings.Join(all, " ") + " "
}

// first returns the first team or person among tokens, or "".
func first(tokens []string) string {
	for _, t := range tokens {
		if strings.HasPrefix(t, "T-") || strings.HasPrefix(t, "P-") {
			return t
		}
	}
	return ""
}

// ofPeople reports whether claims of a kind are about a person.
func ofPeople(k Kind) bool {
	return slices.Contains([]Kind{Arrive, Leave, ParcelLeft, ParcelTaken, Carries, Person}, k)
}

// claim converts a match of a pattern. It returns false if the words make no claim.
func (l *lexicon) claim(p pattern, line string, at []int) (Claim, bool) {
	c := Claim{Kind: p.kind, Place: p.place, Number: -1, Count: -1, More: -1, Score: [2]int{-1, -1}}
	before, text := line[:at[3]], line[at[3]:at[1]]
	c.Text = strings.TrimSpace(text)
	for i, name := range p.find.SubexpNames() {
		if name == "" || name == "before" || at[2*i] < 0 {
			continue
		}
		c.set(name, line[at[2*i]:at[2*i+1]])
	}
	ahead := clause(before)
	if !p.negative {
		c.Not = l.says("not", ahead, 3) || l.says("not", strings.Fields(text), 99)
	}
	hoped := l.says("hedge", ahead, 2) || l.hedged(strings.Fields(text)) || slices.Equal(tail(ahead, 1), []string{"to"})
	if happens(c.Kind) && !p.hedged && hoped {
		return Claim{}, false
	}
	if c.Kind == ShotsCount && p.negative { // "none"
		c.Count, c.More = max(c.Count, 0), max(c.More, 0)
	}
	return c, p.kind != ignored
}

func (c *Claim) set(name, value string) {
	switch name {
	case "T":
		if value != "" { // the team of a goalkeeper may be unknown
			c.Team = value
		}
	case "O":
		c.Other = value
	case "n":
		c.Number = atoi(value)
	case "k":
		c.Count = atoi(value)
	case "j", "s":
		c.More = atoi(value)
	case "a":
		c.Score[0] = atoi(value)
	case "b":
		c.Score[1] = atoi(value)
	case "c":
		c.Colour = value
	case "v":
		switch c.Kind {
		case Car, CarArrive, CarLeave:
			c.Colour = value
		}
	case "L":
		c.Place = cmp.Or(c.Place, value)
	case "w":
		c.Way = match.Left
		if value == "right" {
			c.Way = match.Right
		}
	}
}

// happens reports whether a kind is an event, which a comment may also hope for or guess.
func happens(k Kind) bool {
	return slices.Contains([]Kind{
		Goal, Shot, Save, Post, Wide, Arrive, Leave, ParcelLeft, ParcelTaken, CarArrive, CarLeave, RainStart, RainEnd, LampFails, LampOn,
	}, k)
}

// clause returns the tokens since the last punctuation mark.
func clause(before string) []string {
	if i := strings.LastIndexAny(before, ".!,"); i >= 0 {
		before = before[i+1:]
	}
	return strings.Fields(before)
}

func tail(tokens []string, n int) []string { return tokens[max(0, len(tokens)-n):] }

// says reports whether the last tokens include a word of a list.
func (l *lexicon) says(list string, tokens []string, last int) bool {
	return slices.ContainsFunc(tail(tokens, last), func(t string) bool {
		return slices.Contains(l.lists[list], t) || list == "not" && (t == "not" || t == "nobody")
	})
}

// hedged reports whether a phrase expresses a hope or a guess between its first and its last word.
func (l *lexicon) hedged(tokens []string) bool {
	return len(tokens) > 2 && l.says("hedge", tokens[1:len(tokens)-1], 99)
}
