package file

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/media/source"
)

// A file that this machine transcodes too slowly shows its key frames alone.
const (
	// slack is by how much a clip may fall behind within a span.
	slack, span = 2 * time.Second, 10 * time.Second
	// patience is the time after which all pictures are tried again. It doubles with each try that is shorter, up to patienceMax.
	patience, patienceMax = time.Minute, time.Hour
	// keyFrames bounds the rate of codecs that have nothing else.
	keyFrames = `select=isnan(prev_selected_t)+gte(t-prev_selected_t\,0.2),`
)

// errPace ends a run that continues with other pictures.
var errPace = source.Errorf("the pace has changed")

// slowness is what a clip does about a slow machine. One whose key frames are rare stays as it is.
type slowness struct {
	keysOnly bool
	behind   bool      // all pictures are shown, too late
	retry    time.Time // of all pictures
	patience time.Duration
	resume   time.Duration // position of the next opening
	since    time.Time     // start of the present span
	lost     time.Duration // by how much the clip was behind then
}

// advice returns what is not shown as it should be.
func (p *player) advice() string {
	effect := "only the key frames are shown"
	switch {
	case p.clip.slow.behind:
		effect = "they are shown more slowly"
	case !p.clip.slow.keysOnly:
		return p.stream.advice
	}
	return fmt.Sprintf("This machine is too slow to read and transcode all pictures of %d x %d pixels: %s. "+
		"Convert it to H264 of at most 1920 x 1080 pixels.", p.stream.width, p.stream.height, effect)
}

// hurry leaves out all pictures but key frames for a while.
func (p *player) hurry() {
	s, now := &p.clip.slow, p.clip.opts.Now()
	if now.Sub(s.retry) > s.patience {
		s.patience = patience
	}
	s.keysOnly, s.retry, s.patience = true, now.Add(s.patience), min(2*s.patience, patienceMax)
}

// judge returns errPace when a run cannot keep its pace, or when all pictures are due to be tried again. A short clip is soon repeated
// from memory.
func (p *player) judge() error {
	if p.stream.copied || p.in.info == nil { // a server may be slow itself
		return nil
	}
	s, now, lost := &p.clip.slow, p.clip.opts.Now(), p.pace.behind()
	if now.Sub(s.since) > span {
		if s.behind && !s.since.IsZero() && lost == s.lost {
			s.behind = false
			p.pace.advise(p.advice())
		}
		s.since, s.lost = now, lost
	}
	switch late := !p.stream.brief && lost-s.lost > slack; {
	case p.stream.rare:
		if late && !s.behind {
			s.behind = true
			p.pace.advise(p.advice())
		}
		return nil
	case late && !s.keysOnly:
		p.hurry()
	case s.keysOnly && now.After(s.retry):
		s.keysOnly, s.since = false, time.Time{}
	default:
		return nil
	}
	p.pace.advise(p.advice())
	p.short, p.from = nil, p.at
	return errPace
}

// stalled makes the next opening continue with key frames if the supervisor ended this one, which showed nothing for long.
func (p *player) stalled(ctx context.Context) {
	switch {
	case p.stream.copied || p.in.info == nil || !errors.Is(context.Cause(ctx), source.ErrStalled):
	case p.stream.rare:
		p.clip.slow.behind = true
	default:
		p.hurry()
		p.clip.slow.resume = p.at
	}
}
