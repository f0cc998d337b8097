package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/stage"
)

// published is one comment that the bot published.
type published struct {
	segment      string
	cycle        uint64
	text         string // all that was shown
	begun, ended time.Time
	final        bool
}

// span is a stretch of time, open-ended when to is zero.
type span struct{ from, to time.Time }

// overlaps reports whether one of the spans overlaps the time between two moments.
func overlaps(spans []span, from, to time.Time) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.from.Before(to) && (s.to.IsZero() || s.to.After(from)) })
}

// ledger records a bot's comments and disconnections. It implements agent.TextOutput. What is settled is forgotten.
type ledger struct {
	mu       sync.Mutex
	comments map[string]*published
	records  map[uint64]look.Record
	away     []span
	account  account
	outcomes map[string]int
	aligned  []aligned
	newest   time.Time // begin of the inference of the newest aligned comment
}

// aligned is a spoken comment, with the distance of its voice from its picture.
type aligned struct {
	at  time.Time
	off time.Duration
}

func newLedger() *ledger {
	return &ledger{comments: map[string]*published{}, records: map[uint64]look.Record{}, outcomes: map[string]int{}}
}

// Caption implements agent.TextOutput.
func (l *ledger) Caption(c agent.Caption) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.comments[c.Segment]
	if s == nil {
		s = &published{segment: c.Segment, cycle: c.Cycle, begun: time.Now()}
		l.comments[c.Segment] = s
	}
	s.text, s.ended, s.final = c.Text, time.Now(), c.Final
}

// Record implements agent.TextOutput.
func (l *ledger) Record(r look.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[r.Cycle] = r
	l.outcomes[r.Outcome]++
	if r.Outcome == look.OutcomeSpoken && r.Aligned {
		l.aligned = append(l.aligned, aligned{r.StartedAt, seconds(r.AlignmentError).Abs()})
		l.newest = r.InferenceStart
	}
}

// commentedAfter reports whether a comment whose inference began after a moment was spoken with its picture.
func (l *ledger) commentedAfter(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest.After(at)
}

// offsSince returns the distances of the comments since a moment.
func (l *ledger) offsSince(at time.Time) (offs []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.aligned {
		if c.at.After(at) {
			offs = append(offs, c.off)
		}
	}
	return offs
}

// State implements agent.TextOutput.
func (l *ledger) State(s agent.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.away) - 1
	open := last >= 0 && l.away[last].to.IsZero()
	switch away := s.Activity == agent.ActivityReconnecting; {
	case away && !open:
		l.away = append(l.away, span{from: time.Now()})
	case !away && open:
		l.away[last].to = time.Now()
	}
}

// account sums up the comments that began while bot and reader were in the room.
type account struct {
	delivered, cut int
	// inFlight counts comments that ended less than lossWindow before the connection broke: data in flight is not acknowledged.
	inFlight int
	// missed counts comments that were published while the reader was out of the room.
	missed int
	lost   []string // described
}

// add adds the account of another room.
func (a *account) add(b account) {
	a.delivered, a.cut, a.inFlight, a.missed = a.delivered+b.delivered, a.cut+b.cut, a.inFlight+b.inFlight, a.missed+b.missed
	a.lost = append(a.lost, b.lost...)
}

// lossWindow is the time until a broken connection is noticed.
const lossWindow = time.Second

// balance compares the comments that ended before a moment with the texts a reader received, and returns the account of all so far.
func (l *ledger) balance(got map[string][]string, absent []span, before time.Time) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.account
	for _, s := range l.comments {
		if s.ended.After(before) {
			continue
		}
		delete(l.comments, s.segment)
		if overlaps(l.away, s.begun, s.begun.Add(time.Millisecond)) || overlaps(absent, s.begun, s.begun.Add(time.Millisecond)) {
			continue // not begun while connected
		}
		r, recorded := l.records[s.cycle]
		end := s.ended.Add(lossWindow)
		switch {
		case slices.Contains(got[s.segment], s.text) && s.final:
			a.delivered++
		case recorded && (r.Outcome == look.OutcomeCut || r.Outcome == look.OutcomeDropped) && r.Reason != "":
			a.cut++
		case overlaps(absent, s.begun, end):
			a.missed++
		case s.final && overlaps(l.away, s.ended, end):
			a.inFlight++
		default:
			outcome := "without a record"
			if recorded {
				outcome = fmt.Sprintf("recorded as %q %q", r.Outcome, r.Reason)
			}
			a.lost = append(a.lost, fmt.Sprintf("cycle %d at %s, %q: %s; the reader received %q",
				s.cycle, s.begun.Format(time.TimeOnly), s.text, outcome, got[s.segment]))
		}
	}
	for cycle, r := range l.records {
		if r.InferenceStart.Before(before.Add(-longest)) {
			delete(l.records, cycle)
		}
	}
	slices.Sort(a.lost)
	return *a
}

// longest bounds the time from the begin of a comment's inference to its end.
const longest = 2 * time.Minute

// rejoiner is a reader that rejoins whenever its connection breaks.
type rejoiner struct {
	stage *stage.Stage
	url   string // of the server, also after a restart

	mu     sync.Mutex
	now    *stage.Viewer       // in this stay
	got    map[string][]string // texts by segment
	absent []span
}

// addRejoiner adds one to the stage and returns once it has joined. What it received is complete when the stage is closed.
func addRejoiner(r *run, s *stage.Stage) *rejoiner {
	t := &rejoiner{stage: s, url: s.URL(), got: map[string][]string{}, absent: []span{{from: time.Now()}}}
	s.Run(t.run)
	r.until(20*time.Second, "the reader to join", func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.now != nil && !t.now.Seen().In.IsZero()
	})
	return t
}

func (t *rejoiner) run(ctx context.Context) error {
	for ctx.Err() == nil {
		token, err := conn.ViewerToken(t.stage.Keys, conn.Person{Room: t.stage.Room(), Identity: "reader"})
		if err != nil {
			return fmt.Errorf("mint the reader's token: %w", err)
		}
		v, err := stage.NewViewer(stage.ViewerOptions{URL: t.url, Token: token, Reader: true, Log: t.stage.Log})
		if err != nil {
			return err
		}
		t.mu.Lock()
		t.now = v
		t.mu.Unlock()
		_ = v.Run(ctx) // it joins again
		t.left()
		if err := stage.Wait(ctx, 200*time.Millisecond); err != nil {
			return nil //nolint:nilerr // the stage was closed
		}
	}
	return nil
}

// collect keeps the texts received so far.
func (t *rejoiner) collect() stage.Seen {
	seen := t.now.Take()
	for _, c := range seen.Closed {
		t.got[c.Segment] = append(t.got[c.Segment], strings.Clone(c.Text))
	}
	return seen
}

// left ends one stay in the room. It begins one second after the join: the data channel is up then.
func (t *rejoiner) left() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen := t.collect(); !seen.In.IsZero() {
		t.absent[len(t.absent)-1].to = seen.In.Add(time.Second)
		t.absent = append(t.absent, span{from: seen.Out})
	}
}

// settle compares the comments that ended before a moment, and forgets their texts.
func (t *rejoiner) settle(l *ledger, before time.Time) account {
	t.mu.Lock()
	defer t.mu.Unlock()
	absent := t.absent
	if seen := t.collect(); !seen.In.IsZero() && seen.Out.IsZero() { // the stay goes on
		absent = slices.Clone(absent)
		absent[len(absent)-1].to = seen.In.Add(time.Second)
	}
	a := l.balance(t.got, absent, before)
	l.mu.Lock()
	defer l.mu.Unlock()
	for segment := range t.got {
		if l.comments[segment] == nil {
			delete(t.got, segment)
		}
	}
	return a
}
