package file

import (
	"fmt"
	"time"

	"touchline/media/source"
)

// A file that this machine transcodes too slowly shows its key frames alone.
const (
	// slack is by how much a clip may fall behind within a span.
	slack, span = 2 * time.Second, 10 * time.Second
	// patience is the time after which all pictures are tried again. It doubles with each try, up to patienceMax.
	patience, patienceMax = time.Minute, time.Hour
	// keyFrames bounds the rate of codecs that have nothing else.
	keyFrames = `select=isnan(prev_selected_t)+gte(t-prev_selected_t\,0.2),`
)

// errPace ends a run that continues with other pictures.
var errPace = source.Errorf("the pace has changed")

// slowness is what a player does about a slow machine.
type slowness struct {
	keysOnly bool
	retry    time.Time // of all pictures
	patience time.Duration
	since    time.Time     // start of the present span
	lost     time.Duration // by how much the clip was behind then
}

// judge returns errPace when a run cannot keep its pace, or when all pictures are due to be tried again. dts is of the newest unit.
func (p *player) judge(dts time.Duration) error {
	if p.stream.copied || p.stream.brief || p.in.info == nil { // a server may be slow itself
		return nil
	}
	s, now, lost := &p.slow, p.clip.opts.Now(), p.pace.behind()
	if now.Sub(s.since) > span {
		s.since, s.lost = now, lost
	}
	switch {
	case !s.keysOnly && lost-s.lost > slack:
		s.keysOnly, s.retry, s.patience = true, now.Add(s.patience), min(2*s.patience, patienceMax)
		p.pace.advise(fmt.Sprintf("This machine is too slow to transcode all its pictures of %d x %d pixels: only the key frames are shown. "+
			"Convert it to H264 of at most 1920 x 1080 pixels.", p.stream.width, p.stream.height))
	case s.keysOnly && now.After(s.retry):
		s.keysOnly, s.since = false, time.Time{}
		p.pace.advise(p.stream.advice)
	default:
		return nil
	}
	p.short, p.from = nil, p.from+max(0, dts-shift)
	return errPace
}
