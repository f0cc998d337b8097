package look

import (
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
	j.look(found.PTS)
	for i, f := range found.Findings {
		anchor := j.show(&f)
		l.opts.Rules.Answer(ctx, Answer{Rules: rules[i : i+1], Finding: &f, Anchor: anchor, Answered: now})
	}
	j.pictures.pack()
}

// facts returns what the last look means for some rules; false without a detector, and before its first look.
func (j *judge) facts(sentences []string) (inference.Judgement, bool) {
	l := j.l
	var by inference.Judge = l.engine.current()
	if !l.engine.Capabilities().Facts {
		sensor := l.sensing.current()
		if sensor == nil {
			return inference.Judgement{}, false
		}
		by = sensor
	}
	var regions []inference.Region
	if l.opts.Regions != nil {
		regions = l.opts.Regions()
	}
	return by.Judge(sentences, regions)
}

// show returns the picture of a finding. If that is not kept, it is the newest one, and the finding has no box.
func (j *judge) show(f *inference.Finding) window.Frame {
	if !f.Holds {
		return window.Frame{}
	}
	frame, ok := j.pictures.at(f.PTS)
	if !ok {
		frame, _ = j.l.picture.Newest()
		f.Box = nil
	}
	return frame
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
	if n := len(j.waiting); !j.keeps || n > 0 && f.PTS <= j.waiting[n-1].PTS {
		return
	}
	j.waiting = append(slices.Delete(j.waiting, 0, max(0, len(j.waiting)+1-maxWaiting)), f)
}

// look keeps the picture that the detector looked at, and drops those before it.
func (j *judge) look(pts time.Duration) {
	j.mu.Lock()
	var looked []window.Frame
	j.waiting = slices.DeleteFunc(j.waiting, func(f window.Frame) bool {
		if f.PTS == pts {
			looked = append(looked, f)
		}
		return f.PTS <= pts
	})
	j.mu.Unlock()
	if len(looked) > 0 {
		j.pictures.add(looked)
	}
}

// forget drops all pictures.
func (j *judge) forget() {
	j.mu.Lock()
	j.waiting = nil
	j.mu.Unlock()
	j.pictures.clear()
}

// try returns what the last look means for one rule.
func (j *judge) try(when string) (Trial, error) {
	newest, ok := j.l.picture.Newest()
	if !ok {
		return Trial{}, ErrNoPicture
	}
	began := time.Now()
	t := Trial{Verdict: TrialUnanswered, Reason: "the detector has not looked yet", At: newest.Arrival, FrameID: newest.ID}
	found, ok := j.facts([]string{when})
	if t.EngineSec = time.Since(began).Seconds(); !ok {
		return t, nil
	}
	f := found.Findings[0]
	if t.Verdict, t.Reason = TrialHoldsNot, f.Reason; f.Holds {
		shown := j.show(&f)
		t.Verdict, t.At, t.FrameID = TrialHolds, shown.Arrival, shown.ID
	}
	return t, nil
}
