package minicpmo

// admit takes a picture that a worker prepared.
func (l *loop) admit(p *picture) {
	switch {
	case p.err != nil:
		p.state = pictureFailed
		l.cache.remove(p)
	case p.useless():
		for _, m := range p.images {
			l.workers.done(m)
		}
	default:
		p.state = pictureWaiting
		l.images = append(l.images, p.images...)
	}
}

// gather picks images of one grid for a run: wanted ones if any answer waits
// for some, and others of the same grid with them; else, unless only wanted
// ones are asked for, the oldest. Images that nobody needs any more go.
func (l *loop) gather(wanted bool, most int) {
	l.batch = l.batch[:0]
	kept := l.images[:0]
	for _, m := range l.images {
		if p := m.owner; p.state != pictureWaiting || p.useless() {
			l.workers.done(m)
			continue
		}
		kept = append(kept, m)
	}
	clear(l.images[len(kept):])
	l.images = kept
	var first *image
	for _, m := range l.images {
		if !wanted || m.owner.wanted.Load() > 0 {
			first = m
			break
		}
	}
	if first == nil {
		return
	}
	for _, needed := range []bool{true, false} {
		for _, m := range l.images {
			if len(l.batch) < most && m.rows == first.rows && m.cols == first.cols && m.owner.wanted.Load() > 0 == needed {
				l.batch = append(l.batch, m)
			}
		}
	}
}

// see embeds the gathered images. If that fails each is tried by itself, so
// that only the answers of those that fail again end.
func (l *loop) see() error {
	begin := l.now()
	err := l.dev.see(l.batch)
	if fatal(err) {
		return err
	}
	if err == nil {
		took := l.now().Sub(begin)
		l.visionCost.learn(len(l.batch), took)
		l.stats.saw(len(l.batch), took)
		for _, m := range l.batch {
			l.seen(m, nil)
		}
	} else {
		l.stats.failedRuns.Add(1)
		for _, m := range l.batch {
			if len(l.batch) > 1 {
				err = l.dev.see([]*image{m})
			}
			if fatal(err) {
				return err
			}
			l.seen(m, err)
		}
	}
	clear(l.batch)
	l.batch = l.batch[:0]
	return nil
}

// seen notes that an image is embedded, or cannot be.
func (l *loop) seen(m *image, err error) {
	p := m.owner
	l.workers.done(m)
	for i, other := range l.images {
		if other == m {
			copy(l.images[i:], l.images[i+1:])
			l.images[len(l.images)-1] = nil
			l.images = l.images[:len(l.images)-1]
			break
		}
	}
	if err != nil {
		p.state, p.err = pictureFailed, err
		l.cache.remove(p)
		return
	}
	if p.left--; p.left == 0 && p.state == pictureWaiting {
		p.state = pictureDone
	}
}
