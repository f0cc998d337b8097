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

// ledger records a bot's comments and disconnections. It implements agent.TextOutput.
type ledger struct {
	mu       sync.Mutex
	comments map[string]*published
	records  map[uint64]look.Record
	away     []span
}

func newLedger() *ledger {
	return &ledger{comments: map[string]*published{}, records: map[uint64]look.Record{}}
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

// lossWindow is the time until a broken connection is noticed.
const lossWindow = time.Second

// balance compares the published comments with the texts a reader received.
func (l *ledger) balance(got map[string][]string, absent []span) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	var a account
	for _, s := range l.comments {
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
	slices.Sort(a.lost)
	return a
}

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
		token, err := conn.ViewerToken(t.stage.Keys, conn.Person{Room: stage.RoomName, Identity: "reader"})
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
		t.collect(v.Seen())
		if err := stage.Wait(ctx, 200*time.Millisecond); err != nil {
			return nil //nolint:nilerr // the stage was closed
		}
	}
	return nil
}

// collect keeps the texts of one stay in the room. It begins one second after the join: the data channel is up then.
func (t *rejoiner) collect(seen stage.Seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range seen.Closed {
		t.got[c.Segment] = append(t.got[c.Segment], strings.Clone(c.Text))
	}
	if !seen.In.IsZero() {
		t.absent[len(t.absent)-1].to = seen.In.Add(time.Second)
		t.absent = append(t.absent, span{from: seen.Out})
	}
}
