package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
)

// Trial is what the engine sees of a rule in one look.
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

// pastPicture is a picture of past looks.
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

// rememberLookLocked keeps the pictures of a look for TryRule. Looks share their pictures with each other.
func (s *Session) rememberLookLocked(frames []window.Frame) {
	known := map[uint64]*pastPicture{}
	for _, look := range s.looks {
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
	s.looks = append(s.looks, look)
	seen := map[*pastPicture]bool{}
	total := 0
	for i, look := range slices.Backward(s.looks) {
		for _, p := range look {
			if !seen[p] {
				seen[p] = true
				total += len(p.packed)
			}
		}
		if i < len(s.looks)-MaxTrials || total > pastBytes && i < len(s.looks)-1 {
			s.looks = slices.Delete(s.looks, 0, i+1)
			return
		}
	}
}

// packLooks compresses the pictures of past looks that the newest one does not have: pixels take ten times the memory.
func (s *Session) packLooks() {
	var todo []*pastPicture
	var frames []media.VideoFrame
	s.locked(func() {
		for _, look := range s.looks {
			for _, p := range look {
				if p.packed == nil && !slices.Contains(s.looks[len(s.looks)-1], p) {
					todo, frames = append(todo, p), append(frames, p.VideoFrame)
				}
			}
		}
	})
	for i, p := range todo {
		data, err := window.JPEG(frames[i], pastQuality)
		if err != nil {
			continue // it stays as it is
		}
		s.locked(func() { p.packed, p.Pix = data, nil })
	}
}

// TryRule asks the engine whether a rule holds in the present pictures and in those of past looks, the newest first. It
// changes no votes and raises no alert. past is at most MaxTrials; there are fewer results when fewer looks are kept or
// after trialTimeout. The error is of the rule, ErrTrying, ErrNoPicture or ErrRulesUnread.
func (s *Session) TryRule(ctx context.Context, r AlertRule, past int) ([]Trial, error) {
	if s.opts.Alerts == nil {
		return nil, ErrRulesUnread
	}
	if err := s.opts.Alerts.Check(r); err != nil {
		return nil, err
	}
	if !s.readsRules() {
		return nil, fmt.Errorf("%w: %s", ErrRulesUnread, s.unreadRules())
	}
	if !s.trying.TryLock() {
		return nil, ErrTrying
	}
	defer s.trying.Unlock()
	var looks [][]pastPicture
	s.locked(func() { looks = s.triedLooksLocked(past) })
	if len(looks) == 0 {
		return nil, ErrNoPicture
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	out := make([]Trial, 0, len(looks))
	for _, look := range looks {
		frames, err := unpacked(look)
		if err != nil {
			return out, err
		}
		t, err := s.try(ctx, strings.TrimSpace(r.When), frames)
		if _, crash := rescue.Of(err); crash {
			s.work.Go(func() error { return err }) // it ends Run
			return nil, err
		}
		if ctx.Err() != nil && len(out) > 0 {
			break
		}
		out = append(out, t)
	}
	return out, nil
}

// triedLooksLocked returns the pictures to try a rule on: the newest ones, then those of past looks.
func (s *Session) triedLooksLocked(past int) [][]pastPicture {
	present := s.picture.look(s.live.Agent.Frames, s.live.Agent.Stride)
	if len(present) == 0 {
		return nil
	}
	out := [][]pastPicture{make([]pastPicture, len(present))}
	for i, f := range present {
		out[0][i].Frame = f
	}
	for _, look := range slices.Backward(s.looks) {
		if len(out) > past {
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

// try asks for one rule on the pictures of one look. It returns a panic of the engine.
func (s *Session) try(ctx context.Context, when string, frames []window.Frame) (Trial, error) {
	var p inference.Prompt
	s.locked(func() {
		p = prompt.Look{
			System: s.profile.Prompt, Background: s.background, Frames: Pictures(frames), Rules: []prompt.Rule{{Number: 1, When: when}},
		}.Prompt(s.live.Inference, s.engine.Capabilities())
	})
	newest := frames[len(frames)-1]
	t := Trial{Verdict: TrialUnanswered, At: newest.Arrival, FrameID: newest.ID}
	began := time.Now()
	var answer string
	err := rescue.Call(func() error {
		// A session of its own: the commentary's may be in use, and another look's has seen later pictures.
		engine, err := s.engine.current().NewSession()
		if err != nil {
			return err
		}
		answer, err = s.textOf(ctx, engine, LookTrial, frames, p)
		return errors.Join(err, engine.Close())
	})
	t.EngineSec = time.Since(began).Seconds()
	if err != nil {
		t.Reason = err.Error()
		return t, err
	}
	held, reason, ok := s.opts.Alerts.Read(answer, when)
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

// textOf returns the text of an answer.
func (s *Session) textOf(ctx context.Context, engine inference.Session, kind string, frames []window.Frame, p inference.Prompt,
) (string, error) {
	var b strings.Builder
	for chunk, err := range s.ask(ctx, engine, kind, 0, frames, p) {
		if err != nil {
			return "", causeOf(ctx, err)
		}
		b.WriteString(chunk.Text)
	}
	return b.String(), causeOf(ctx, ctx.Err())
}
