package look

import (
	"slices"
	"strings"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
)

// A comment must not repeat one of the last maxPast within repeatsWithin: what happens again after a while is news.
const (
	maxPast       = 8
	repeatsWithin = 2 * time.Minute
)

// Bounds of the remarks in a prompt.
const (
	maxRemarks    = 6
	remarkLetters = 200
	remarkAge     = time.Minute
)

// memory has the last comments, and the last remarks of participants. Its slices are replaced, never changed: prompts hold them.
type memory struct {
	past    []prompt.PastComment // the last maxPast, oldest first
	remarks []prompt.Remark      // the last maxRemarks, oldest first
}

// said adds a comment.
func (m *memory) said(text string, facts []Fact, at time.Time) {
	said := prompt.PastComment{Text: strings.TrimSpace(text), At: at}
	for _, f := range facts {
		said.Facts = append(said.Facts, f.Text)
	}
	m.past = append(slices.Clone(m.past[max(0, len(m.past)+1-maxPast):]), said)
}

// unsaid removes a comment.
func (m *memory) unsaid(text string) {
	m.past = slices.DeleteFunc(slices.Clone(m.past), func(p prompt.PastComment) bool { return p.Text == text })
}

// recent returns the comments that the next one must not repeat, oldest first; repeats is a setting.
func (m *memory) recent(now time.Time, repeats string) []prompt.PastComment {
	if repeats == settings.RepeatsAllow {
		return nil
	}
	return fresh(m.past, now)
}

// lacks reports whether one of some facts was not told a short time ago.
func (m *memory) lacks(facts []Fact, now time.Time) bool {
	past := fresh(m.past, now)
	return slices.ContainsFunc(facts, func(f Fact) bool {
		return !slices.ContainsFunc(past, func(p prompt.PastComment) bool { return slices.Contains(p.Facts, f.Text) })
	})
}

// fresh returns the comments that are not too old to be repeated.
func fresh(past []prompt.PastComment, now time.Time) []prompt.PastComment {
	from := slices.IndexFunc(past, func(c prompt.PastComment) bool { return now.Sub(c.At) <= repeatsWithin })
	if from < 0 {
		return nil
	}
	return past[from:]
}

// heard adds a remark if it has words.
func (m *memory) heard(r prompt.Remark) {
	r.Text = strings.TrimSpace(r.Text)
	if inference.ClassifyAnswer(r.Text, true) != inference.HasWords {
		return
	}
	if letters := []rune(r.Text); len(letters) > remarkLetters {
		r.Text = string(letters[:remarkLetters]) + "…"
	}
	m.remarks = append(slices.Clone(m.remarks[max(0, len(m.remarks)+1-maxRemarks):]), r)
}

// forget removes the remarks of an identity, or of all if it is "".
func (m *memory) forget(by string) {
	m.remarks = slices.DeleteFunc(slices.Clone(m.remarks), func(r prompt.Remark) bool { return by == "" || r.Identity == by })
}

// heardAt returns the remarks that are not too old for a prompt.
func (m *memory) heardAt(now time.Time) []prompt.Remark {
	return slices.DeleteFunc(slices.Clone(m.remarks), func(r prompt.Remark) bool { return now.Sub(r.At) > remarkAge })
}
