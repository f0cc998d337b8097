package minicpmo

import (
	"slices"
	"time"

	"touchline/inference/step"
)

// admit takes in a prepared picture.
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

// gather selects up to most images of one grid for a run: the grid of the first
// wanted image or, unless wanted is set, of the oldest. Wanted images go first.
// gather removes images that are no longer needed.
func (l *loop) gather(wanted bool, most int) {
	l.batch = l.batch[:0]
	l.images = slices.DeleteFunc(l.images, func(m *image) bool {
		unneeded := m.owner.state != pictureWaiting || m.owner.useless()
		if unneeded {
			l.workers.done(m)
		}
		return unneeded
	})
	i := slices.IndexFunc(l.images, func(m *image) bool { return !wanted || m.owner.wanted.Load() > 0 })
	if i < 0 {
		return
	}
	first := l.images[i]
	for _, needed := range []bool{true, false} {
		for _, m := range l.images {
			if len(l.batch) < most && m.rows == first.rows && m.cols == first.cols && m.owner.wanted.Load() > 0 == needed {
				l.batch = append(l.batch, m)
			}
		}
	}
}

// encodeImages embeds the gathered images. If the run fails it repeats each image
// separately, so that only the answers of failing images end.
func (l *loop) encodeImages() error {
	took, err := l.embed(l.batch)
	if step.Lost(err) {
		return err
	}
	if err == nil {
		l.visionCost.learn(len(l.batch), took)
		l.demand.took += took
		l.stats.count(func(s *Stats) {
			s.Vision.took(took)
			s.Images.add(float64(len(l.batch)))
		})
	} else {
		l.stats.count(func(s *Stats) { s.FailedRuns++ })
	}
	for i, m := range l.batch {
		failed := err
		if err != nil && len(l.batch) > 1 {
			if _, failed = l.embed(l.batch[i : i+1]); step.Lost(failed) {
				return failed
			}
		}
		l.embedded(m, failed)
	}
	clear(l.batch)
	l.batch = l.batch[:0]
	return nil
}

// embed runs the vision tower.
func (l *loop) embed(images []*image) (time.Duration, error) {
	return l.client.Do(func() error { return l.dev.embed(images) })
}

// embedded records that an image is embedded, or its error.
func (l *loop) embedded(m *image, err error) {
	p := m.owner
	l.workers.done(m)
	if i := slices.Index(l.images, m); i >= 0 {
		l.images = slices.Delete(l.images, i, i+1)
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
