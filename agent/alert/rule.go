package alert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/internal/check"
	"touchline/pacing"
)

const (
	maxWhen = 200 // characters
	maxName = 64  // characters
	maxWord = 64  // bytes of each other text: a rule must fit an answer in the room
	// clearLooks is the number of consecutive looks without the rule that end an alert.
	clearLooks = 5
	// unconfirmed is the number of cadences without a confirming look that end an alert, but not before minUnconfirmed: looks
	// are late while an engine is busy, and there are none without a picture.
	unconfirmed    = 3 * clearLooks
	minUnconfirmed = 30 * time.Second
)

// maxSnooze is the longest time without looks for a rule.
const maxSnooze = 24 * time.Hour

// testLength is how long the alert of a test lasts.
const testLength = 5 * time.Second

// Defaults of a rule's empty fields.
const (
	defaultLevel   = LevelWarning
	defaultVotes   = "2 of 3"
	factVotes      = "1 of 1" // of rules that facts decide: these have their own patience
	defaultCadence = "2s"
	defaultPause   = "30s"
)

// terms are the values of a rule.
type terms struct {
	need, of       int
	cadence, pause time.Duration
	hours          hours
}

// parse checks a rule, and returns it with its defaults and its values. Each of the joined errors begins with the field.
func parse(r RuleText) (RuleText, terms, error) {
	var s check.Settings
	var t terms
	r.When, r.Name = strings.TrimSpace(r.When), strings.TrimSpace(r.Name)
	s.That(line(r.When, maxWhen) && r.When != "", "when",
		fmt.Sprintf("a sentence of at most %d characters in one line", maxWhen), short(r.When))
	s.That(line(r.Name, maxName), "name", fmt.Sprintf("at most %d characters in one line", maxName), short(r.Name))
	r.Level = cmp.Or(r.Level, defaultLevel)
	levels := []string{LevelInfo, LevelWarning, LevelCritical}
	s.That(slices.Contains(levels, r.Level), "level", "info, warning or critical", short(r.Level))
	r.By = cmp.Or(r.By, ByAuto)
	s.That(slices.Contains([]string{ByAuto, ByFacts, ByModel}, r.By), "by", "auto, facts or model", short(r.By))
	var ok bool
	t.need, t.of, ok = parseVotes(r.votes(false))
	s.That(ok, "votes", fmt.Sprintf(`"K of N" looks with K from 1 to N and N at most %d, such as "2 of 3"`, pacing.MaxVotes), short(r.Votes))
	r.Cadence, r.Pause = cmp.Or(r.Cadence, defaultCadence), cmp.Or(r.Pause, defaultPause)
	t.cadence, ok = parseTime(r.Cadence, 200*time.Millisecond, time.Hour)
	s.That(ok, "cadence", "a time between 200ms and 1h", short(r.Cadence))
	t.pause, ok = parseTime(r.Pause, 0, 24*time.Hour)
	s.That(ok, "pause", "a time between 0s and 24h", short(r.Pause))
	var err error
	t.hours, err = parseHours(r.Hours, r.Zone, r.Days)
	s.Add(err)
	r.Days = slices.Clone(r.Days)
	return r, t, s.Err()
}

// votes returns how many looks must agree, by facts or by a model.
func (r RuleText) votes(facts bool) string {
	if facts {
		return cmp.Or(r.Votes, factVotes)
	}
	return cmp.Or(r.Votes, defaultVotes)
}

func (t terms) votes() *pacing.Votes {
	return pacing.NewVotes(pacing.VotesConfig{
		Need: t.need, Of: t.of, Pause: t.pause, ClearLooks: clearLooks, ClearAfter: max(unconfirmed*t.cadence, minUnconfirmed),
	})
}

// parseVotes reads "2 of 3".
func parseVotes(s string) (need, of int, ok bool) {
	k, n, _ := strings.Cut(s, " of ")
	need, err1 := strconv.Atoi(strings.TrimSpace(k))
	of, err2 := strconv.Atoi(strings.TrimSpace(n))
	return need, of, len(s) <= maxWord && err1 == nil && err2 == nil && 1 <= need && need <= of && of <= pacing.MaxVotes
}

func parseTime(s string, low, high time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, len(s) <= maxWord && err == nil && check.Within(d, low, high)
}

// line reports whether a text is one line of at most some characters.
func line(s string, most int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= most &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// short quotes the beginning of a value for an error.
func short(s string) string { return fmt.Sprintf("%.60q", s) }
