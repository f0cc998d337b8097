// Package alert decides which alert rules of a room a look checks, and what its answer means for them.
//
// It owns the rules of a room, their hours and cadences, the votes of the looks and the parsing of answers. The session
// (agent) runs the looks and publishes the alerts. The package starts no goroutine and reads no clock.
package alert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/pacing"
)

// Set is the alert rules of one room. It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	rules   []*rule
	last    int     // number of the last id
	pending []Alert // phases that Expire returns
	tests   []Alert // not cleared
	changed func()  // may be nil
	accepts Accepts // may be nil
}

// Accepts reports whether facts decide a rule, or why neither they nor the engine can.
type Accepts func(r RuleText) (facts bool, err error)

// rule is a rule with its state.
type rule struct {
	terms

	id     string
	text   RuleText
	votes  *pacing.Votes
	looked time.Time // begin of the last look; zero: due at once
	alert  Alert     // the last one

	snoozedUntil time.Time
	snoozedBy    string

	looks, late, unanswered uint64
}

// NewSet returns a room's rules, with the ids r1, r2 and so on.
func NewSet(cfg Config) (*Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Set{}
	for _, r := range cfg.Rules {
		if _, err := s.Add(RuleText(r)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Accept sets the check of rules, whose results may change. Add, Replace and Check refuse a rule that fails the check; looks skip
// such a rule. Call Accept before the Set is shared.
func (s *Set) Accept(check Accepts) { s.accepts = check }

// accept is accepts; without it the engine decides all rules.
func (s *Set) accept(r RuleText) (facts bool, err error) {
	if s.accepts == nil {
		return false, nil
	}
	return s.accepts(r)
}

// parse is the function parse with the check of rules; facts reports whether facts decide the rule.
func (s *Set) parse(r RuleText) (text RuleText, t terms, facts bool, err error) {
	if text, t, err = parse(r); err == nil {
		if facts, err = s.accept(text); err != nil {
			err = fmt.Errorf("when: %w", err)
		}
	}
	return text, t, facts, err
}

// Add adds a rule and returns its id. It returns ErrTooManyRules beyond the limit, or all errors of the rule, joined.
func (s *Set) Add(r RuleText) (id string, err error) {
	text, t, _, err := s.parse(r)
	if err != nil {
		return "", err
	}
	defer s.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rules) >= MaxRules {
		return "", ErrTooManyRules
	}
	s.last++
	added := &rule{terms: t, id: "r" + strconv.Itoa(s.last), text: text, votes: t.votes()}
	s.rules = append(s.rules, added)
	return added.id, nil
}

// Check reports whether facts decide a rule. It returns all errors of the rule, joined.
func (s *Set) Check(r RuleText) (facts bool, err error) {
	_, _, facts, err = s.parse(r)
	return facts, err
}

// Read reads the answer to a look for a single rule; ok is false for an answer in another form.
func (*Set) Read(answer, when string) (held bool, reason string, ok bool) {
	fired, ok := ReadAnswer(answer)
	for _, f := range fired {
		if f.Rule == 1 {
			return true, sentence(f.Reason, when), true
		}
	}
	return false, "", ok
}

// Replace replaces a rule, which keeps its id, stays snoozed and loses its votes. An alert of the old rule is cleared. It
// returns ErrNoRule for an unknown id.
func (s *Set) Replace(id string, r RuleText) error {
	text, t, _, err := s.parse(r)
	if err != nil {
		return err
	}
	defer s.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.withdrawLocked(id, "the rule was changed")
	if err != nil {
		return err
	}
	old := s.rules[i]
	if facts, _ := s.accept(old.text); old.text.Votes == "" && text.Votes == old.text.votes(facts) {
		text.Votes = "" // the client returns the default that List showed
	}
	s.rules[i] = &rule{
		terms: t, id: id, text: text, votes: t.votes(), snoozedUntil: old.snoozedUntil, snoozedBy: old.snoozedBy,
	}
	return nil
}

// Remove removes a rule and clears its alert. It returns ErrNoRule for an unknown id.
func (s *Set) Remove(id string) error {
	defer s.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.withdrawLocked(id, "the rule was removed")
	if err != nil {
		return err
	}
	s.rules = slices.Delete(s.rules, i, i+1)
	return nil
}

// Snooze stops the looks for a rule for a time, and clears its alert. A time of 0 ends the snooze. It returns
// ErrNoRule for an unknown id.
func (s *Set) Snooze(id, length, by string, now time.Time) error {
	d, ok := parseTime(length, 0, maxSnooze)
	if !ok {
		return fmt.Errorf("for: must be a time between 0s (which ends it) and %v, such as \"10m\", is %s", maxSnooze, short(length))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(id)
	if err != nil {
		return err
	}
	if r.snoozedUntil, r.snoozedBy = now.Add(d), by; d > 0 {
		s.endLocked(r, "the rule is snoozed")
	}
	return nil
}

// Test makes Expire return a test alert of the rule, and its end after a few seconds. It changes no votes, and does nothing
// during a test of the rule. It returns ErrNoRule for an unknown id.
func (s *Set) Test(id string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(id)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.tests, func(t Alert) bool { return t.Rule == id }) {
		return nil
	}
	a := r.newAlert("test-"+alertID(id, now), now)
	a.Reason, a.Test = "Test: "+r.text.When, true
	s.pending, s.tests = append(s.pending, a), append(s.tests, a)
	return nil
}

// Acknowledge records the first person who has seen the last alert of a rule, or a test. It returns ErrNoAlert for any
// other alert.
func (s *Set) Acknowledge(alert, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *Alert
	for _, r := range s.rules {
		if r.alert.ID == alert {
			found = &r.alert
		}
	}
	for i := range s.tests {
		if s.tests[i].ID == alert {
			found = &s.tests[i]
		}
	}
	switch {
	case alert == "" || found == nil:
		return ErrNoAlert
	case found.AckedBy != "":
		return nil
	}
	found.AckedBy = by
	a := *found
	a.Phase = PhaseAcked
	s.pending = append(s.pending, a)
	return nil
}

// List returns the rules with their state, in the order in which they were added.
func (s *Set) List(now time.Time) []RuleStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]RuleStatus, 0, len(s.rules))
	for _, r := range s.rules {
		st := RuleStatus{
			ID: r.id, RuleText: r.text, Active: r.hours.active(now), On: r.votes.On(),
			Alert: r.alert.ID, AckedBy: r.alert.AckedBy, Looks: r.looks, Late: r.late, Unanswered: r.unanswered,
		}
		facts, err := s.accept(r.text)
		if st.Votes = r.text.votes(facts); err != nil {
			st.Problem = err.Error()
		}
		if r.snoozed(now) {
			st.SnoozedUntil, st.SnoozedBy = r.snoozedUntil, r.snoozedBy
		}
		out = append(out, st)
	}
	return out
}

// ByFacts returns the active rules that facts decide.
func (s *Set) ByFacts(now time.Time) []prompt.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []prompt.Rule
	for _, r := range s.rules {
		if s.looksFor(r, true, now) {
			out = append(out, prompt.Rule{Number: 1, When: r.text.When, ID: r.id})
		}
	}
	return out
}

// Due returns the rules for a look of the engine that begins now, numbered from 1, and restarts their cadences. Critical rules come
// first.
func (s *Set) Due(now time.Time) []prompt.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*rule
	for _, r := range s.rules {
		if !s.looksFor(r, false, now) || r.dueAt(now).After(now) {
			continue
		}
		if !r.looked.IsZero() && now.Sub(r.looked) > 2*r.cadence {
			r.late++
		}
		r.looked = now
		due = append(due, r)
	}
	slices.SortStableFunc(due, func(a, b *rule) int { return rank(a.text.Level) - rank(b.text.Level) })
	out := make([]prompt.Rule, len(due))
	for i, r := range due {
		out[i] = prompt.Rule{Number: i + 1, When: r.text.When, ID: r.id, Urgent: r.text.Level == LevelCritical}
	}
	return out
}

// Next returns when a separate look of the engine for rules should begin: one cadence after a rule was due, in case no other look checks
// it before. Critical rules and rules without a look do not wait for other looks. ok is false without an active rule.
func (s *Set) Next(now time.Time) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if !s.looksFor(r, false, now) {
			continue
		}
		next := r.dueAt(now)
		if r.text.Level != LevelCritical && !r.looked.IsZero() {
			next = next.Add(r.cadence)
		}
		if !ok || next.Before(at) {
			at, ok = next, true
		}
	}
	return at, ok
}

// Answer handles the answer to a look, or what facts say about one rule, and returns the alerts that begin or end with it.
func (s *Set) Answer(a look.Answer) []Alert {
	fired, ok := ReadAnswer(a.Text)
	ok = ok && a.Err == nil || a.Finding != nil
	if f := a.Finding; f != nil && f.Holds {
		fired = []Fired{{Rule: 1, Reason: f.Reason}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reasons := map[int]string{}
	for _, f := range fired {
		if _, twice := reasons[f.Rule]; !twice {
			reasons[f.Rule] = f.Reason
		}
	}
	var out []Alert
	for _, asked := range a.Rules {
		i := s.indexLocked(asked.ID)
		if i < 0 || s.rules[i].text.When != asked.When || s.rules[i].snoozed(a.Answered) { // changed since
			continue
		}
		r := s.rules[i]
		if !ok {
			r.unanswered++
			continue
		}
		r.looks++
		reason, held := reasons[asked.Number]
		out = append(out, r.take(a, held, reason)...)
	}
	return out
}

// Expire returns phases of alerts without a look: the ends of alerts whose rules were removed or snoozed, are outside of their
// hours, or were not confirmed for long; tests; and acknowledgements.
func (s *Set) Expire(now time.Time) []Alert {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		switch {
		case !r.hours.active(now):
			s.endLocked(r, "the hours of the rule are over")
		case r.votes.Wait(now) == pacing.VerdictCleared:
			s.pending = append(s.pending, r.cleared(now, "no look confirmed it"))
		}
	}
	s.tests = slices.DeleteFunc(s.tests, func(a Alert) bool {
		over := now.Sub(a.At) >= testLength
		if over {
			a.Phase, a.Reason = PhaseCleared, "the test is over"
			s.pending = append(s.pending, a)
		}
		return over
	})
	out := s.pending
	s.pending = nil
	for i := range out {
		out[i].At = now
	}
	return out
}

// Forget deletes all votes after a change of the source. Expire then clears the alerts.
func (s *Set) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		s.endLocked(r, "the source changed")
	}
}

func (s *Set) indexLocked(id string) int {
	return slices.IndexFunc(s.rules, func(r *rule) bool { return r.id == id })
}

// findLocked returns a rule, or ErrNoRule.
func (s *Set) findLocked(id string) (*rule, error) {
	i := s.indexLocked(id)
	if i < 0 {
		return nil, ErrNoRule
	}
	return s.rules[i], nil
}

// withdrawLocked clears the alert of a rule before its removal, and returns its index.
func (s *Set) withdrawLocked(id, why string) (int, error) {
	i := s.indexLocked(id)
	if i < 0 {
		return 0, ErrNoRule
	}
	s.endLocked(s.rules[i], why)
	return i, nil
}

// endLocked deletes the votes of a rule and clears its alert.
func (s *Set) endLocked(r *rule, why string) {
	r.looked = time.Time{}
	if r.votes.Reset() == pacing.VerdictCleared {
		s.pending = append(s.pending, r.cleared(time.Time{}, why))
	}
}

// snoozed reports whether a client stopped the looks for the rule.
func (r *rule) snoozed(now time.Time) bool { return now.Before(r.snoozedUntil) }

// looksFor reports whether looks of the engine, or facts, check a rule.
func (s *Set) looksFor(r *rule, facts bool, now time.Time) bool {
	if !r.hours.active(now) || r.snoozed(now) {
		return false
	}
	byFacts, err := s.accept(r.text)
	return err == nil && byFacts == facts
}

// dueAt returns when the next look is due.
func (r *rule) dueAt(now time.Time) time.Time {
	if r.looked.IsZero() {
		return now
	}
	return r.looked.Add(r.cadence)
}

// take handles the result of a look.
func (r *rule) take(a look.Answer, held bool, reason string) []Alert {
	need, of, _ := parseVotes(r.text.votes(a.Finding != nil))
	r.votes.Require(need, of)
	switch r.votes.Look(a.Answered, held) {
	case pacing.VerdictNew:
		r.alert = r.newAlert(alertID(r.id, a.Answered), a.Answered)
		r.alert.Reason = sentence(reason, r.text.When)
		r.alert.AnchorPTS, r.alert.FrameID = a.Anchor.PTS.Seconds(), a.Anchor.ID
		r.alert.Agreed, r.alert.Looks = r.votes.Agreed(), of
		if a.Finding != nil {
			r.alert.Box = a.Finding.Box
		}
		r.alert.LatencySec = a.Answered.Sub(a.Anchor.Arrival).Seconds()
		return []Alert{r.alert}
	case pacing.VerdictCleared:
		return []Alert{r.cleared(a.Answered, fmt.Sprintf("%d looks in a row did not see it", clearLooks))}
	case pacing.VerdictOff, pacing.VerdictOn:
	}
	return nil
}

func alertID(rule string, at time.Time) string {
	return rule + "-" + strconv.FormatInt(at.UnixMilli(), 36)
}

// newAlert returns the first phase of an alert of the rule, without its look.
func (r *rule) newAlert(id string, at time.Time) Alert {
	return Alert{
		Type: "alert", ID: id, Phase: PhaseNew, At: at, Rule: r.id, Name: r.name(), Level: r.text.Level, Interrupt: r.text.Interrupt,
	}
}

// cleared returns the last phase of the rule's alert.
func (r *rule) cleared(at time.Time, why string) Alert {
	a := r.alert
	a.Phase, a.At, a.Reason = PhaseCleared, at, why
	return a
}

func (r *rule) name() string {
	if r.text.Name != "" {
		return r.text.Name
	}
	return r.text.When
}

func rank(level string) int {
	return slices.Index([]string{LevelCritical, LevelWarning, LevelInfo}, level)
}

// maxReason bounds the reason of an alert, in characters.
const maxReason = 200

// sentence returns a reason in one line, or the rule's condition without a reason.
func sentence(reason, when string) string {
	words := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(reason, "")), " "))
	switch {
	case len(words) == 0:
		return when
	case len(words) > maxReason:
		return strings.TrimSpace(string(words[:maxReason-1])) + "…"
	}
	return string(words)
}
