package tts

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/internal/wake"
)

// Wave turns windows of codes into sound. All calls come from one goroutine.
type Wave interface {
	// Begin starts a turn in a slot from a voice's template.
	Begin(slot int, voice string) error
	// Run turns one window of each of some turns into sound: it sets the Wave or the Err of each job. A job that failed can be run again.
	Run(jobs []Job)
}

// Job is one window of a turn.
type Job struct {
	Slot  int
	Codes []int32
	First bool
	// Last windows are shorter, and all of their codes become sound.
	Last bool

	// Wave are samples from -1 to 1 at Rate, without the silence before a turn's first sound. They are valid until the next run.
	Wave []float32
	Err  error
}

const (
	// unheard is how much sound a turn must have ahead to wait for other turns.
	unheard = 400 * time.Millisecond
	// maxBatch is the largest number of windows of one run.
	maxBatch = 32
)

// window is a piece of work of the sounder.
type window struct {
	turn        *Turn
	codes       []int32
	words       []inference.WordTime
	first, last bool
	err         error // of its last run
}

// Sounder turns the windows of all turns into sound, on a goroutine of its own.
type Sounder struct {
	wave Wave
	now  func() time.Time
	// ended is called after each run.
	ended func()
	// fatal reports an error after which the device is lost.
	fatal func(error) bool

	speaking atomic.Int32 // turns that will hand over windows
	wake     wake.Signal

	mu    sync.Mutex
	queue []*window // in order of arrival
}

// NewSounder returns a sounder. ended is called after each run, from its goroutine.
func NewSounder(w Wave, now func() time.Time, fatal func(error) bool, ended func()) *Sounder {
	return &Sounder{wave: w, now: now, fatal: fatal, ended: ended, wake: wake.New()}
}

// submit queues a window.
func (s *Sounder) submit(w *window) {
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	s.wake.Set()
}

// Run works until ctx ends, or the device is lost, whose error it returns.
func (s *Sounder) Run(ctx context.Context) error {
	for {
		batch, wait := s.batch()
		if len(batch) > 0 {
			if err := s.sound(batch); err != nil {
				return err
			}
			s.ended()
			continue
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer:
		}
	}
}

// batch removes the windows of the next run from the queue, one of each turn. If it
// is better to wait for other turns it returns none, and how long at most.
func (s *Sounder) batch() (batch []*window, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	kept := s.queue[:0]
	seen := map[*Turn]bool{}
	urgent, turns := false, 0
	wait = -1
	for _, w := range s.queue {
		if w.turn.cancelled.Load() || w.turn.ended.Load() {
			w.turn.left.Add(-1)
			s.ended() // its slot may be free
			continue
		}
		kept = append(kept, w)
		if seen[w.turn] {
			continue
		}
		seen[w.turn] = true
		turns++
		if spare := w.turn.spare(now) - unheard; w.first || spare <= 0 {
			urgent = true
		} else if wait < 0 || spare < wait {
			wait = spare
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
	if turns == 0 {
		return nil, 0
	}
	if !urgent && turns < int(s.speaking.Load()) {
		return nil, wait
	}
	clear(seen)
	rest := s.queue[:0]
	for _, w := range s.queue {
		if len(batch) < maxBatch && !seen[w.turn] {
			seen[w.turn] = true
			batch = append(batch, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	return batch, 0
}

// sound runs a batch. It returns only the loss of the device.
func (s *Sounder) sound(batch []*window) error {
	var ready []*window
	for _, w := range batch {
		if w.first {
			if err := s.wave.Begin(w.turn.slot, w.turn.voice); err != nil {
				if s.fatal(err) {
					return err
				}
				w.fail(err)
				continue
			}
		}
		ready = append(ready, w)
	}
	failed, err := s.run(ready)
	if err == nil && len(ready) > 1 { // once more, each alone
		again := failed
		failed = nil
		for _, w := range again {
			var alone []*window
			if alone, err = s.run([]*window{w}); err != nil {
				return err
			}
			failed = append(failed, alone...)
		}
	}
	for _, w := range failed {
		w.fail(w.err)
	}
	return err
}

// run runs windows and returns those that failed. The error is the loss of the device.
func (s *Sounder) run(batch []*window) (failed []*window, _ error) {
	jobs := make([]Job, len(batch))
	for i, w := range batch {
		jobs[i] = Job{Slot: w.turn.slot, Codes: w.codes, First: w.first, Last: w.last}
	}
	s.wave.Run(jobs)
	for i, w := range batch {
		switch w.err = jobs[i].Err; {
		case w.err == nil:
			w.done(jobs[i].Wave, s.now())
		case s.fatal(w.err):
			return nil, w.err
		default:
			failed = append(failed, w)
		}
	}
	return failed, nil
}

// fail ends the turn of a window with an error.
func (w *window) fail(err error) {
	w.turn.end(err)
	w.turn.left.Add(-1)
}

// done sends the sound of a window.
func (w *window) done(wave []float32, now time.Time) {
	t := w.turn
	samples := make([]int16, len(wave))
	for i, v := range wave {
		if !(math.Abs(float64(v)) <= math.MaxFloat32) {
			w.fail(ErrNotFinite)
			return
		}
		samples[i] = int16(math.Round(float64(max(-1, min(v, 1))) * math.MaxInt16))
	}
	from := time.Duration(t.sounded) * time.Second / Rate
	for i := range w.words {
		w.words[i].Start -= from
		w.words[i].End -= from
	}
	if t.sounded == 0 {
		t.soundsAt = now
	}
	t.sounded += len(samples)
	t.out.Push(Sound{Samples: samples, Words: w.words})
	if w.last {
		t.end(t.err)
	}
	t.left.Add(-1)
}

// spare returns how long the sound of a turn lasts from now on, if it was heard at once.
func (t *Turn) spare(now time.Time) time.Duration {
	return t.soundsAt.Add(time.Duration(t.sounded) * time.Second / Rate).Sub(now)
}
