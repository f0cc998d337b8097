package file

import (
	"context"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"

	"touchline/media"
	"touchline/media/source"
)

const (
	// jump is a step of the clip's clock that starts a new epoch.
	jump = 10 * time.Second
	// late is how far the clip may fall behind before its clock is set anew.
	late = 500 * time.Millisecond
)

// pacer hands access units on when their time has come: by DTS, so that those
// that are decoded ahead of their time go ahead.
type pacer struct {
	now func() time.Time
	out func(media.EncodedFrame)
	// opus takes the sound; may be nil.
	opus func(source.Opus)

	began  bool
	anchor time.Time     // when media time zero was, or would have been
	zero   time.Duration // PTS of the epoch's first unit
	last   time.Duration // DTS
	epoch  uint32
}

func (p *pacer) emit(ctx context.Context, u unit) error {
	now := p.now()
	if !p.began || u.dts < p.last || u.dts > p.last+jump {
		if p.began {
			p.epoch++
		}
		p.began, p.zero = true, u.pts
		p.anchor = now.Add(-u.dts)
	}
	p.last = u.dts
	wait := p.anchor.Add(u.dts).Sub(now)
	if wait < -late {
		p.anchor = now.Add(-u.dts) // the source stood still: what follows keeps its distances
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	f := u.frame
	f.Epoch, f.PTS = p.epoch, u.pts-p.zero
	f.Received = p.now()
	f.Arrival = p.anchor.Add(u.pts)
	p.out(f)
	return nil
}

// sound hands packets of Opus on when their time has come, on the clock of the
// pictures. Those before the first picture are left out.
func (p *pacer) sound(ctx context.Context, pts time.Duration, packets [][]byte) error {
	if p.opus == nil || !p.began || pts < p.zero || pts > p.last+jump {
		return nil
	}
	now := p.now()
	if wait := p.anchor.Add(pts).Sub(now); wait > 0 {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	timestamp := uint32(int64(pts-p.zero) * 48 / int64(time.Millisecond)) // it wraps as timestamps do
	for _, packet := range packets {
		p.opus(source.Opus{Payload: packet, Timestamp: timestamp, Received: p.now()})
		timestamp += uint32(opus.PacketDuration2(packet)) //nolint:gosec // 120 ms at most
	}
	return nil
}
