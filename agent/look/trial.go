package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"touchline/agent/prompt"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
)

// Trial is the engine's verdict on a rule in one look.
type Trial struct {
	// Verdict is TrialHolds, TrialHoldsNot or TrialUnanswered.
	Verdict string `json:"verdict"`
	// Reason why the rule holds, or why there is no answer.
	Reason string `json:"reason,omitempty"`
	// At is the arrival of the newest picture of the look, FrameID its number.
	At      time.Time `json:"at"`
	FrameID uint64    `json:"frame_id"`
	// EngineSec is the time that the answer took.
	EngineSec float64 `json:"engine_sec"`
}

// Verdicts of a Trial.
const (
	TrialHolds      = "holds"
	TrialHoldsNot   = "does not hold"
	TrialUnanswered = "no answer"
)

// MaxTrials is the largest number of past looks that a rule is tried on.
const MaxTrials = 20

// pastBytes bounds the pictures of past looks. 20 looks of four pictures of 448x252 take about 2 MiB.
const pastBytes = 8 << 20

// pastQuality is the JPEG quality of these pictures.
const pastQuality = 90

// trialTimeout bounds one call of TryRule.
const trialTimeout = time.Minute

// Errors of TryRule.
var (
	// ErrRulesUnread is returned when the engine cannot be asked for rules.
	ErrRulesUnread = errors.New("rules cannot be tried")
	// ErrTrying is returned while another rule is tried in the room.
	ErrTrying = errors.New("another rule is being tried in this room; wait for its result")
	// ErrNoPicture is returned before the first picture.
	ErrNoPicture = errors.New("there is no picture yet; wait for a camera")
)

type pastPicture struct {
	window.Frame        // without pixels when packed
	packed       []byte // JPEG
}

// unpacked returns the pictures of a look with their pixels.
func unpacked(look []pastPicture) ([]window.Frame, error) {
	frames := make([]window.Frame, len(look))
	for i, p := range look {
		frames[i] = p.Frame
		if p.packed != nil {
			f, err := window.FromJPEG(p.packed)
			if err != nil {
				return nil, err
			}
			frames[i].Pix = f.Pix
		}
	}
	return frames, nil
}

// album keeps the pictures of the last looks. Looks share their pictures with each other.
type album struct {
	most int // looks

	mu    sync.Mutex
	looks [][]*pastPicture // oldest first
}

// add keeps the pictures of a look.
func (a *album) add(frames []window.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := map[uint64]*pastPicture{}
	for _, look := range a.looks {
		for _, p := range look {
			known[p.ID] = p
		}
	}
	look := make([]*pastPicture, len(frames))
	for i, f := range frames {
		if look[i] = known[f.ID]; look[i] == nil {
			look[i] = &pastPicture{Frame: f}
		}
	}
	a.looks = append(a.looks, look)
	seen := map[*pastPicture]bool{}
	total := 0
	for i, look := range slices.Backward(a.looks) {
		for _, p := range look {
			if !seen[p] {
				seen[p] = true
				total += len(p.packed)
			}
		}
		if i < len(a.looks)-a.most || total > pastBytes && i < len(a.looks)-1 {
			a.looks = slices.Delete(a.looks, 0, i+1)
			return
		}
	}
}

// clear forgets all looks.
func (a *album) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks = nil
}

// pack compresses the pictures that the newest look does not have: pixels take ten times the memory.
func (a *album) pack() {
	var pending []*pastPicture
	var frames []media.VideoFrame
	a.mu.Lock()
	for _, look := range a.looks {
		for _, p := range look {
			if p.packed == nil && !slices.Contains(a.looks[len(a.looks)-1], p) {
				pending, frames = append(pending, p), append(frames, p.VideoFrame)
			}
		}
	}
	a.mu.Unlock()
	for i, p := range pending {
		data, err := window.JPEG(frames[i], pastQuality)
		if err != nil {
			continue // it stays as it is
		}
		a.mu.Lock()
		p.packed, p.Pix = data, nil
		a.mu.Unlock()
	}
}

// at returns the picture with a media time, with its pixels.
func (a *album) at(pts time.Duration) (window.Frame, bool) {
	var found []pastPicture
	a.mu.Lock()
	for _, look := range a.looks {
		if i := slices.IndexFunc(look, func(p *pastPicture) bool { return p.PTS == pts }); i >= 0 {
			found = []pastPicture{*look[i]}
		}
	}
	a.mu.Unlock()
	frames, err := unpacked(found)
	if err != nil || len(frames) == 0 {
		return window.Frame{}, false
	}
	return frames[0], true
}

// last returns the pictures of the last looks, newest first.
func (a *album) last(looks int) (out [][]pastPicture) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, look := range slices.Backward(a.looks) {
		if len(out) == looks {
			break
		}
		pictures := make([]pastPicture, len(look))
		for i, p := range look {
			pictures[i] = *p
		}
		out = append(out, pictures)
	}
	return out
}

// TryRule asks whether a sentence holds. By facts that is the last look of the detector. The engine is asked about the present pictures
// and those of past looks, the newest first. It changes no votes and raises no alert. past is at most MaxTrials; there are fewer
// results when fewer looks are kept or after trialTimeout. The error is ErrTrying, ErrNoPicture or ErrRulesUnread.
func (l *Loop) TryRule(ctx context.Context, when string, facts bool, past int) ([]Trial, error) {
	if facts {
		t, err := l.judge.try(when)
		if err != nil {
			return nil, err
		}
		return []Trial{t}, nil
	}
	if !l.ReadsRules() {
		return nil, fmt.Errorf("%w: %s", ErrRulesUnread, l.engine.RulesUnread())
	}
	if !l.trying.TryLock() {
		return nil, ErrTrying
	}
	defer l.trying.Unlock()
	task := l.now()
	present := l.picture.Select(task.Agent.Frames, task.Agent.Stride)
	if len(present) == 0 {
		return nil, ErrNoPicture
	}
	looks := [][]pastPicture{make([]pastPicture, len(present))}
	for i, f := range present {
		looks[0][i].Frame = f
	}
	looks = append(looks, l.album.last(past)...)
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	out := make([]Trial, 0, len(looks))
	for _, look := range looks {
		frames, err := unpacked(look)
		if err != nil {
			return out, err
		}
		t, err := l.try(ctx, when, frames)
		if _, crash := rescue.Of(err); crash {
			l.work.Fail(err) // it ends Run
			return nil, err
		}
		if ctx.Err() != nil && len(out) > 0 {
			break
		}
		out = append(out, t)
	}
	return out, nil
}

// try asks the engine about one rule, with the pictures of one look. A panic of the engine is returned as an error.
func (l *Loop) try(ctx context.Context, when string, frames []window.Frame) (Trial, error) {
	p := l.rulesPrompt(l.now(), frames, []prompt.Rule{{Number: 1, When: when}})
	newest := frames[len(frames)-1]
	t := Trial{Verdict: TrialUnanswered, At: newest.Arrival, FrameID: newest.ID}
	began := time.Now()
	var answer string
	err := rescue.Call(func() error {
		// A session of its own: the commentary's may be in use, and another look's has seen later pictures.
		engine, err := l.engine.NewSession()
		if err != nil {
			return err
		}
		answer, err = l.traces.text(ctx, engine, l.engine.Name(), TraceTrial, frames, p)
		return errors.Join(err, engine.Close())
	})
	t.EngineSec = time.Since(began).Seconds()
	if err != nil {
		t.Reason = err.Error()
		return t, err
	}
	held, reason, ok := l.opts.Rules.Read(answer, when)
	switch {
	case !ok:
		t.Reason = "the engine answered in another form"
	case held:
		t.Verdict, t.Reason = TrialHolds, reason
	default:
		t.Verdict = TrialHoldsNot
	}
	return t, nil
}
