package look

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"touchline/inference"
	"touchline/internal/wake"
	"touchline/media/window"
)

// judge decides alert rules by facts, after each look of the detector: that of the engine, or of the sensor beside it.
type judge struct {
	l      *Loop
	looked wake.Signal // set after each look of the detector
	// pictures are those that the detector looked at: an event is certain seconds later.
	pictures album

	mu      sync.Mutex
	keeps   bool           // facts decide a rule
	waiting []window.Frame // that the detector may look at, oldest first
}

const (
	// judgedPictures is the number of pictures that are kept, 16 s at the usual rate of looks.
	judgedPictures = 40
	// maxWaiting bounds the pictures that wait for the detector.
	maxWaiting = 8
)

// watched is called after each look of the engine's detector.
func (j *judge) watched(inference.Sight) { j.looked.Set() }

// run judges after each look until ctx ends.
func (j *judge) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-j.looked:
			j.decide(ctx, time.Now())
		}
	}
}

// decide tells the rules what the last look found.
func (j *judge) decide(ctx context.Context, now time.Time) {
	l := j.l
	rules := l.opts.Rules.ByFacts(now)
	j.keep(len(rules) > 0)
	if len(rules) == 0 {
		return
	}
	sentences := make([]string, len(rules))
	for i, r := range rules {
		sentences[i] = r.When
	}
	var forgets uint64
	l.locked(func() { forgets = l.forgets })
	found, ok := j.facts(sentences)
	if !ok || found.Epoch != l.picture.Source().Epoch || l.forgotSince(forgets) {
		return
	}
	j.look(found.Epoch, found.PTS)
	for i, f := range found.Findings {
		if f.Unknown {
			continue
		}
		anchor, ok := j.show(&f)
		if !ok || l.forgotSince(forgets) {
			return
		}
		l.opts.Rules.Answer(ctx, Answer{Rules: rules[i : i+1], Finding: &f, Anchor: anchor, Answered: now})
	}
	j.pictures.pack()
}

// detector returns what has the facts: the engine, or the sensor beside it; nil without one.
func (j *judge) detector() inference.Judge {
	if j.l.engine.Capabilities().Facts {
		return j.l.engine.current()
	}
	if sensor := j.l.sensing.current(); sensor != nil {
		return sensor
	}
	return nil
}

// facts returns what the last look means for some rules; false without a detector, and before its first look.
func (j *judge) facts(sentences []string) (inference.Judgement, bool) {
	by := j.detector()
	if by == nil {
		return inference.Judgement{}, false
	}
	return by.Judge(sentences, j.l.regions())
}

// show returns the picture of a finding, none if it does not hold. If the picture is not kept, it is the newest one, and the finding has
// no box; false without any picture.
func (j *judge) show(f *inference.Finding) (frame window.Frame, ok bool) {
	if !f.Holds {
		return window.Frame{}, true
	}
	if frame, ok = j.pictures.at(f.PTS); !ok {
		f.Box = nil
		return j.l.picture.Newest()
	}
	return frame, true
}

// keep begins or ends the keeping of pictures.
func (j *judge) keep(keeps bool) {
	j.mu.Lock()
	was := j.keeps
	j.keeps = keeps
	j.mu.Unlock()
	if was && !keeps {
		j.forget()
	}
}

// observe takes a picture that the detector may look at.
func (j *judge) observe(f window.Frame) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.waiting); n > 0 && j.waiting[n-1].Epoch != f.Epoch {
		j.waiting = nil
	}
	if n := len(j.waiting); !j.keeps || n > 0 && f.PTS <= j.waiting[n-1].PTS {
		return
	}
	j.waiting = append(slices.Delete(j.waiting, 0, max(0, len(j.waiting)+1-maxWaiting)), f)
}

// look keeps the picture that the detector looked at, and drops those before it.
func (j *judge) look(epoch uint32, pts time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var looked []window.Frame
	j.waiting = slices.DeleteFunc(j.waiting, func(f window.Frame) bool {
		if f.Epoch == epoch && f.PTS == pts {
			looked = append(looked, f)
		}
		return f.Epoch == epoch && f.PTS <= pts
	})
	if len(looked) > 0 {
		j.pictures.add(looked) // with the lock: forget may come
	}
}

// forget drops all pictures.
func (j *judge) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = nil
	j.pictures.clear()
}

// try returns what the last look means for one rule.
func (j *judge) try(when string) (Trial, error) {
	newest, ok := j.l.picture.Newest()
	if !ok {
		return Trial{}, ErrNoPicture
	}
	t := Trial{Verdict: TrialUnanswered, Reason: "the detector has not looked yet", At: newest.Arrival, FrameID: newest.ID}
	if j.detector() == nil {
		t.Reason = "the detector runs only while a rule by facts is active"
		return t, nil
	}
	began := time.Now()
	found, ok := j.facts([]string{when})
	if t.EngineSec = time.Since(began).Seconds(); !ok {
		return t, nil
	}
	f := found.Findings[0]
	switch t.Reason = f.Reason; {
	case f.Unknown:
		t.Reason = cmp.Or(f.Reason, "the view is new")
	case f.Holds:
		shown, ok := j.show(&f)
		if !ok {
			return Trial{}, ErrNoPicture
		}
		t.Verdict, t.At, t.FrameID = TrialHolds, shown.Arrival, shown.ID
	default:
		t.Verdict = TrialHoldsNot
	}
	return t, nil
}
