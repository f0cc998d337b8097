package codec

import (
	"fmt"
	"slices"
	"time"

	"touchline/media"
	"touchline/media/codec/wire"
)

// next returns all queued units and requests.
func (d *Decoder) next() [][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 && len(d.toAsk) == 0 {
		return nil
	}
	if cap(d.buf) > keepBuffer {
		d.buf = nil
	}
	b := d.buf[:0]
	if to := d.opts.Transcode; to.Choose != nil && d.transcode.Load() {
		to.Codec = to.Choose()
		if setup, err := to.check(); err == nil && setup != d.setup {
			d.setup, d.greeted = setup, false
		}
	}
	if !d.greeted && d.opts.Transcode.OnFrame != nil {
		b = d.setup.Append(b)
	}
	if !d.masked && d.masks.Version != 0 {
		b = d.masks.Append(b)
	}
	d.greeted, d.masked = true, true
	if len(d.out) == 0 {
		d.since = time.Now()
	}
	if len(d.queue) > 0 {
		d.stats.Bursts++
	}
	for _, u := range d.queue {
		b = u.Append(b)
		d.out = append(d.out, sent{u.ID, len(u.Data)})
		if u.Flags&wire.FlagSample != 0 {
			d.owed = u.ID
			d.may.samples = min(d.may.samples+1, maxUnits)
		}
		if u.Flags&wire.FlagEncode != 0 {
			d.may.encoded = min(d.may.encoded+1, maxUnits)
		}
	}
	clear(d.queue)
	d.queue = d.queue[:0]
	for _, l := range d.toAsk {
		b = l.Append(b)
	}
	d.may.answers += len(d.toAsk)
	d.toAsk = d.toAsk[:0]
	d.buf = b
	return [][]byte{b}
}

func (d *Decoder) acked(a wire.Ack) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = a.Done
	n := 0
	for ; n < len(d.out) && d.out[n].id <= a.Done; n++ {
		d.bytes -= d.out[n].bytes
	}
	d.out = slices.Delete(d.out, 0, n)
	if n > 0 {
		d.since = time.Now()
	}
	if t := d.times[a.Newest%remembered]; a.Newest != 0 && t.id == a.Newest {
		if t.id != d.newest.id {
			d.trouble = ""
		}
		d.newest = t
	}
	return nil
}

// expected refuses an answer without a request.
func (d *Decoder) expected(n *int, what string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *n--; *n < 0 {
		return fmt.Errorf("%w: %s without a request", wire.ErrMalformed, what)
	}
	return nil
}

// timesOf returns the times of an access unit.
func (d *Decoder) timesOf(id uint64) (media.EncodedFrame, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range []unitTimes{d.times[id%remembered], d.newest} {
		if id != 0 && t.id == id {
			return t.frame, nil
		}
	}
	return media.EncodedFrame{}, fmt.Errorf("%w: answer for unit %d, which is not pending", wire.ErrMalformed, id)
}

func (d *Decoder) picture(p wire.Picture) error {
	if p.Width == 0 { // the answer before the first picture
		if err := d.expected(&d.may.answers, "answer"); err != nil {
			return err
		}
		d.reply(p.Seq, answer{err: ErrNoPicture})
		return nil
	}
	f, err := d.timesOf(p.ID)
	if err != nil {
		return err
	}
	count := &d.may.samples
	if p.Seq != 0 {
		count = &d.may.answers
	}
	if err := d.expected(count, "picture"); err != nil {
		return err
	}
	v := media.VideoFrame{
		PTS: f.PTS, NTP: f.NTP, Arrival: f.Arrival, Epoch: f.Epoch, Width: p.Width, Height: p.Height, Pix: p.Pix,
	}
	d.passing.Lock()
	defer d.passing.Unlock()
	d.mu.Lock()
	d.stats.Pictures++
	if p.ID >= d.owed {
		d.owed = 0
	}
	late := p.Masks != d.masks.Version
	d.mu.Unlock()
	switch {
	case late && p.Seq != 0:
		d.reply(p.Seq, answer{err: fmt.Errorf("%w with the present masks", ErrNoPicture)})
	case late:
	case p.Seq != 0:
		d.reply(p.Seq, answer{frame: v})
	case d.opts.OnPicture != nil:
		d.opts.OnPicture(v)
	}
	return nil
}

func (d *Decoder) reply(seq uint32, a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.asked[seq]; q != nil {
		q.answer <- a // buffered; there is one answer
		delete(d.asked, seq)
	}
}

func (d *Decoder) encoded(e wire.Encoded) error {
	f, err := d.timesOf(e.ID)
	if err != nil {
		return err
	}
	if err := d.expected(&d.may.encoded, "encoded picture"); err != nil {
		return err
	}
	f.Codec, f.KeyFrame = fromWire(e.Codec), e.Key
	f.Width, f.Height, f.SpatialLayers, f.Turn, f.Data = e.Width, e.Height, 1, 0, e.Data
	if d.opts.Transcode.OnFrame != nil {
		d.opts.Transcode.OnFrame(f)
	}
	return nil
}

// problem reports a failure, at most once a second.
func (d *Decoder) problem(p wire.Problem) error {
	d.mu.Lock()
	d.stats.Undecodable++
	d.fails(p.Text)
	d.mu.Unlock()
	if now := time.Now(); now.Sub(d.reported) >= time.Second {
		d.reported = now
		d.proc.log.Warn().Uint64("unit", p.ID).Str("problem", p.Text).Msg("access unit not decoded")
		if d.opts.OnUndecodable != nil {
			d.opts.OnUndecodable(fmt.Errorf("decode or encode access unit: %s", p.Text))
		}
	}
	return nil
}

func (d *Decoder) up(again bool) {
	if !again {
		return
	}
	d.mu.Lock()
	d.stats.Restarts++
	d.mu.Unlock()
	if d.opts.OnRestart != nil {
		d.opts.OnRestart()
	}
}

// lost drops the units of the ended process. The queue is kept from its last key
// frame on.
func (d *Decoder) lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(ErrRestarted)
	from := len(d.queue)
	for i, u := range d.queue {
		if d.times[u.ID%remembered].frame.KeyFrame {
			from = i
		}
	}
	d.dropQueue(from)
	if len(d.queue) == 0 && d.need == nil {
		d.need = ErrNeedKeyFrame
	}
	if len(d.queue) > 0 {
		d.proc.wake.Set()
	}
}

func (d *Decoder) forget(why error) {
	for _, u := range d.out {
		d.bytes -= u.bytes
	}
	d.out = d.out[:0]
	d.newest, d.owed, d.may = unitTimes{}, 0, mayCome{}
	d.greeted, d.masked = false, false
	for seq, q := range d.asked {
		q.answer <- answer{err: fmt.Errorf("%w: %w", ErrNoPicture, why)}
		delete(d.asked, seq)
	}
	d.toAsk = d.toAsk[:0]
}

func (d *Decoder) waitingSince() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	var since time.Time
	if len(d.out) > 0 {
		since = d.since
	}
	for _, q := range d.asked {
		if since.IsZero() || q.at.Before(since) {
			since = q.at
		}
	}
	return since
}
