package judge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/speech"
	"touchline/configs"
	"touchline/inference"
	"touchline/media"
	"touchline/media/window"
	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/train/words"
)

// viewing is one film as a session of the agent sees it.
type viewing struct {
	cfg         configs.Config
	profile     prompt.Profile
	model       inference.Model
	session     inference.Session
	instruction string
	length      time.Duration
	seed        uint64
	measured    bool // an answer's time is measured instead of assumedAnswer

	world     *worlds.World
	language  string
	topics    map[string]topic
	book      *words.Book
	slots     slots
	letterbox int

	orders    []order // not given yet
	followed  map[string]claims.Share
	disobeyed []string
	alerts    *alerts // nil if alert rules are not tested

	tally     *claims.Tally
	answering time.Duration
	comments  []string // with their claims

	window *window.Window
	sign   *window.Signature    // of the last look
	next   time.Duration        // when the next look is due
	said   []prompt.PastComment // in the film's time
}

// assumedAnswer is the answer time of small engines: measured times would depend on the number of parallel films.
const assumedAnswer = 100 * time.Millisecond

// watch runs looks over a film at the pace of a live session with voice and a delayed picture: each look is timed so that its comment
// starts one pause after the previous comment ends. The delay of the picture cancels out.
func (v *viewing) watch(ctx context.Context, film *film) error {
	v.window = window.New((v.cfg.Agent.Frames-1)*v.cfg.Agent.Stride + 1)
	var grid window.Grid
	for n := range film.frames {
		at := film.world.PTS(n)
		sampled := grid.Take(media.EncodedFrame{PTS: at}, v.cfg.Media.CaptureFPS)
		look := at >= v.next
		picture, err := film.picture(n, sampled || look)
		if err != nil {
			return err
		}
		if !sampled && !look {
			continue
		}
		picture.Epoch = uint32(v.seed)
		v.window.Push(picture)
		if sampled {
			v.session.Observe(inference.Frame{PTS: at, Epoch: picture.Epoch, Width: picture.Width, Height: picture.Height, Pix: picture.Pix})
			if err := errors.Join(v.obey(ctx, at), v.alert(ctx, at)); err != nil {
				return err
			}
		}
		if look {
			if err := v.look(ctx, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// look asks for a comment on the newest picture.
func (v *viewing) look(ctx context.Context, at time.Duration) error {
	frames := v.window.Select(v.cfg.Agent.Frames, v.cfg.Agent.Stride)
	sign := window.Sign(frames[len(frames)-1].VideoFrame)
	change := window.Difference(v.sign, sign)
	if t := v.cfg.Agent.ChangeThreshold; t > 0 && change.Below(t) {
		v.next = at + v.cfg.Pacing.MinInterval
		return nil
	}
	v.sign = sign
	p := prompt.Look{
		System: v.profile.Prompt, Instruction: v.instruction, Spoken: true, Change: change.Mean,
		Past: v.said, Now: time.Time{}.Add(at), Frames: look.Pictures(frames),
	}.Prompt(v.cfg.Inference.Config, v.model.Capabilities())
	text, took, err := say(ctx, v.session, p)
	if err != nil {
		return err
	}
	v.answering += took
	if !v.measured {
		took = assumedAnswer
	}
	verdicts := v.tally.Add(at, text)
	v.next = at + max(v.cfg.Pacing.MinInterval, took)
	if !claims.Silent(text) {
		v.comments = append(v.comments, commented(at, text, verdicts))
		v.said = append(v.said, prompt.PastComment{Text: strings.TrimSpace(text), At: time.Time{}.Add(at + took)})
		v.next = max(v.next, at+speech.Time(len(text))+v.cfg.Pacing.PauseAfter)
	}
	return nil
}

// commented formats a comment and its claims as a line.
func commented(at time.Duration, text string, verdicts []claims.Verdict) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%7.1f s  %s", at.Seconds(), text)
	for _, v := range verdicts {
		denied, wrong := "", ""
		if v.Claim.Not {
			denied = "not "
		}
		if v.Judged && !v.True {
			wrong = ": WRONG"
		}
		fmt.Fprintf(&out, "  [%s%s%s]", denied, v.Claim.Kind, wrong)
	}
	return out.String()
}
