package claims

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"touchline/worlds"
	"touchline/worlds/match"
)

// Tally adds up the comments about one film. It is not safe for concurrent use.
type Tally struct {
	film            Film
	language, world string
	looks           []look
}

// look is one answer of the commentator and its judgement.
type look struct {
	at       time.Duration
	text     string // "" for silence
	verdicts []Verdict
}

// NewTally starts a tally of comments in a language about a film of a world.
func NewTally(film Film, language, world string) *Tally {
	return &Tally{film: film, language: language, world: world}
}

// Add judges the answer to a look whose newest picture was taken at a moment. A text without letters counts as silence.
func (t *Tally) Add(at time.Duration, text string) []Verdict {
	l := look{at: at}
	if !Silent(text) {
		l.text = strings.TrimSpace(text)
		l.verdicts = Judge(Parse(text, t.language, t.world), t.film, at)
	}
	t.looks = append(t.looks, l)
	return l.verdicts
}

// Silent reports whether an answer says nothing: it has no letter and no digit.
func Silent(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// Forget drops the looks before a moment.
func (t *Tally) Forget(before time.Duration) {
	t.looks = slices.DeleteFunc(t.looks, func(l look) bool { return l.at < before })
}

// Share counts the correct cases out of a total.
type Share struct {
	Right int `json:"right"`
	Of    int `json:"of"`
}

// Count adds one case.
func (s *Share) Count(right bool) {
	s.Of++
	if right {
		s.Right++
	}
}

// Told says how many events of a kind were reported.
type Told struct {
	Share
	// Lags are the times from each reported event to the newest picture of the look that first reported it, in seconds.
	Lags []float64 `json:"lags,omitempty"`
}

// Report is a tally in numbers. Reports of several films can be added.
type Report struct {
	Minutes float64 `json:"minutes"`
	// Looks counts all looks, Silent the silent answers.
	Looks  int `json:"looks"`
	Silent int `json:"silent"`
	// Comments counts all comments, Unjudged those without a known claim, Wrong those with a wrong
	// claim.
	Comments int `json:"comments"`
	Unjudged int `json:"unjudged"`
	Wrong    int `json:"wrong"`
	// WrongEvents counts claims of events that did not happen.
	WrongEvents int `json:"wrong_events"`
	// Repeats counts comments that equal the previous one. Distinct is the number of distinct sentences in each ten minutes.
	Repeats  int   `json:"repeats"`
	Distinct []int `json:"distinct"`
	// Score counts the comments that state the score, GoalScore the goals whose first report states the new score.
	Score     Share `json:"score"`
	GoalScore Share `json:"goal_score"`
	// Claims counts, by kind, the true claims.
	Claims map[Kind]Share `json:"claims"`
	// Events counts, by kind, the reported events.
	Events map[string]Told `json:"events"`
	// Examples are wrong comments.
	Examples []string `json:"examples"`
	// Missed lists the events that no comment reported.
	Missed []string `json:"missed"`
}

// distinctIn is the interval in which distinct sentences are counted.
const distinctIn = 10 * time.Minute

// Report counts the looks in [from, to).
func (t *Tally) Report(from, to time.Duration) Report {
	r := Report{Minutes: (to - from).Minutes(), Claims: map[Kind]Share{}, Events: map[string]Told{}}
	last := ""
	distinct := map[string]bool{}
	until := from + distinctIn
	for _, l := range t.looks {
		if l.at < from || l.at >= to {
			continue
		}
		if l.at >= until {
			r.Distinct = append(r.Distinct, len(distinct))
			clear(distinct)
			until += distinctIn
		}
		r.Looks++
		if l.text == "" {
			r.Silent++
			continue
		}
		if l.text == last {
			r.Repeats++
		}
		last = l.text
		for s := range strings.FieldsFuncSeq(l.text, func(c rune) bool { return strings.ContainsRune(".!?¡¿", c) }) {
			if s = strings.TrimSpace(s); s != "" {
				distinct[s] = true
			}
		}
		r.comment(l)
	}
	r.Distinct = append(r.Distinct, len(distinct))
	t.events(&r, from, to)
	return r
}

// comment counts a comment's claims.
func (r *Report) comment(l look) {
	r.Comments++
	judged, wrong := false, false
	score, scored := false, true
	for _, v := range l.verdicts {
		if !v.Judged {
			continue
		}
		judged = true
		s := r.Claims[v.Claim.Kind]
		s.Count(v.True)
		r.Claims[v.Claim.Kind] = s
		if isScore(v.Claim.Kind) {
			score, scored = true, scored && v.True
		}
		if v.True {
			continue
		}
		wrong = true
		if isEvent(v.Claim.Kind) && !v.Claim.Not {
			r.WrongEvents++
		}
	}
	if score {
		r.Score.Count(scored)
	}
	switch {
	case wrong:
		r.Wrong++
		r.Examples = append(r.Examples, l.example())
	case !judged:
		r.Unjudged++
	}
}

// example formats a wrong comment with its wrong claims.
func (l look) example() string {
	var wrong []string
	for _, v := range l.verdicts {
		if v.Judged && !v.True {
			wrong = append(wrong, v.Claim.Kind+" ("+v.Claim.Text+")")
		}
	}
	return l.at.Round(100*time.Millisecond).String() + ": " + l.text + " | " + strings.Join(wrong, ", ")
}

// events counts the reported events.
func (t *Tally) events(r *Report, from, to time.Duration) {
	reported := map[event]look{} // the first look that reported it
	find := func(e worlds.Event) (look, bool) {
		l, ok := reported[eventOf(e)]
		return l, ok
	}
	for _, l := range t.looks {
		for _, v := range l.verdicts {
			for _, e := range v.Events {
				if _, known := find(e); v.True && !known {
					reported[eventOf(e)] = l
				}
			}
		}
	}
	all := t.film.Events(from, to)
	for i, e := range all {
		if !t.visible(e) || e.At() > to-eventFor {
			continue
		}
		l, ok := find(e)
		if !ok && e.Kind() == string(match.ShotAtGoal) { // reported by its outcome
			l, ok = outcome(all[i+1:], e, find)
		}
		k := r.Events[e.Kind()]
		k.Count(ok)
		if ok {
			k.Lags = append(k.Lags, (l.at - e.At()).Seconds())
		} else {
			r.Missed = append(r.Missed, fmt.Sprintf("%.1f s, %s: %s", e.At().Seconds(), e.Kind(), e.Text()))
		}
		r.Events[e.Kind()] = k
		if ok && e.Kind() == string(match.Goal) {
			r.GoalScore.Count(slices.ContainsFunc(l.verdicts, func(v Verdict) bool { return v.True && isScore(v.Claim.Kind) }))
		}
	}
}

// outcome returns the look that reported the outcome of a shot.
func outcome(after []worlds.Event, shot worlds.Event, find func(worlds.Event) (look, bool)) (look, bool) {
	const arrives = 3 * time.Second
	for _, e := range after {
		if e.At() > shot.At()+arrives {
			break
		}
		if e.Match.Number == shot.Match.Number && e.Kind() == string(shot.Match.Outcome) {
			return find(e)
		}
	}
	return look{}, false
}

// event identifies an event: each call of Film.Events makes new ones.
type event struct {
	at         time.Duration
	kind, text string
}

func eventOf(e worlds.Event) event { return event{e.At(), e.Kind(), e.Text()} }

// visible reports whether a commentator should report an event and the live picture shows it.
func (t *Tally) visible(e worlds.Event) bool {
	if e.Yard != nil {
		return true
	}
	k := e.Match.Kind
	if k == match.Cut || k == match.StillStart || k == match.StillEnd {
		return false
	}
	return k == match.Crowd || k == match.Replay || t.film.Truth(e.At()).Match.Live
}

// isEvent reports whether a kind is an event rather than a state.
func isEvent(k Kind) bool {
	return happens(k) || slices.Contains([]Kind{
		Joy, KickOff, FreeKick, GoalKick, HalfTime, FullTime, Turn, Crowd, Replay, Dim, Bright, Tint, White, Never, Dog, Cat, Dusk, Dawn,
	}, k)
}

func isScore(k Kind) bool { return slices.Contains([]Kind{Score, Lead, Trail, Level, None, Count}, k) }

// Add adds the report of another film.
func (r *Report) Add(o Report) {
	r.Minutes += o.Minutes
	r.Looks += o.Looks
	r.Silent += o.Silent
	r.Comments += o.Comments
	r.Unjudged += o.Unjudged
	r.Wrong += o.Wrong
	r.WrongEvents += o.WrongEvents
	r.Repeats += o.Repeats
	r.Distinct = append(r.Distinct, o.Distinct...)
	r.Score = r.Score.Plus(o.Score)
	r.GoalScore = r.GoalScore.Plus(o.GoalScore)
	r.Examples = append(r.Examples, o.Examples...)
	r.Missed = append(r.Missed, o.Missed...)
	if r.Claims == nil {
		r.Claims, r.Events = map[Kind]Share{}, map[string]Told{}
	}
	for k, s := range o.Claims {
		r.Claims[k] = r.Claims[k].Plus(s)
	}
	for k, s := range o.Events {
		r.Events[k] = Told{r.Events[k].Plus(s.Share), append(r.Events[k].Lags, s.Lags...)}
	}
}

// Plus returns the sum of two shares.
func (s Share) Plus(o Share) Share { return Share{s.Right + o.Right, s.Of + o.Of} }
