package tts

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/inference/step"
	"touchline/internal/ticks"
	"touchline/internal/wake"
)

// Wave turns windows of codes into sound. All calls come from one goroutine.
type Wave interface {
	// Begin starts a turn in a slot from a voice's template.
	Begin(slot int, voice string) error
	// Run turns one window of each of some turns into sound: it sets the Wave or the Err of each job. A job that failed can be run again.
	Run(jobs []Job)
	// SharedSlots returns up to which slot others can share a run with a slot at no cost: those below the number. 0 is for none: a run
	// of several would be as long as theirs together.
	SharedSlots(slot int) int
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
	// minBuffered is how much sound a turn must have ahead to wait for other turns.
	minBuffered = 400 * time.Millisecond
	// maxBatch is the largest number of windows of one run.
	maxBatch = 32
)

// window is a piece of work of the sounder.
type window struct {
	turn        *Turn
	codes       []int32
	words       []inference.WordTime
	first, last bool
	ends        bool  // the last window of the turn is queued
	err         error // of its last run
}

// Sounder turns the windows of all turns into sound, on a goroutine of its own.
type Sounder struct {
	wave   Wave
	client *step.Client
	now    func() time.Time
	// changed is called when a run begins and when it has ended.
	changed func()

	speaking atomic.Int32 // turns that will hand over windows
	short    atomic.Bool  // turns wait for a slot
	lost     atomic.Pointer[error]
	running  atomic.Bool // during a run
	wake     wake.Signal

	mu     sync.Mutex
	starts []*Turn   // that have a slot, and no voice in it yet
	queue  []*window // in order of arrival
}

// NewSounder returns a sounder. changed is called when a run begins and when it has ended, from its goroutine.
func NewSounder(w Wave, c *step.Client, now func() time.Time, changed func()) *Sounder {
	return &Sounder{wave: w, client: c, now: now, changed: changed, wake: wake.New()}
}

// start prepares a slot for a turn, before its first window comes.
func (s *Sounder) start(t *Turn) {
	s.mu.Lock()
	s.starts = append(s.starts, t)
	s.mu.Unlock()
	s.wake.Set()
}

// begin starts the turns that have got a slot. It returns only the loss of the device.
func (s *Sounder) begin() error {
	s.mu.Lock()
	starts := s.starts
	s.starts = nil
	s.mu.Unlock()
	for _, t := range starts {
		if t.ended.Load() {
			continue // another one may have its slot
		}
		if t.begun = s.wave.Begin(t.slot, t.voice); t.begun != nil && step.Lost(t.begun) {
			return t.begun
		}
	}
	return nil
}

// submit queues a window.
func (s *Sounder) submit(w *window) {
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	s.wake.Set()
}

// Run works until ctx ends, or the device is lost, whose error it returns, and the talker's Intake too.
func (s *Sounder) Run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.lost.Store(&err)
			s.changed()
		}
	}()
	for {
		if err := s.begin(); err != nil {
			return err
		}
		batch, wait := s.batch()
		if len(batch) > 0 {
			s.running.Store(true)
			_, err := s.client.Do(func() error {
				s.changed()
				return s.sound(batch)
			})
			s.running.Store(false)
			if err != nil {
				return err
			}
			s.changed()
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
	s.dropEnded()
	turns, spare := s.next(), func(w *window) time.Duration { return w.turn.buffered(now) - minBuffered }
	if len(turns) == 0 {
		return nil, 0
	}
	share := 0 // slots below share the run
	run := func(w *window) {
		batch = append(batch, w)
		share = max(share, s.wave.SharedSlots(w.turn.slot))
	}
	short := s.short.Load()
	for _, w := range turns {
		if w.first || spare(w) <= 0 || short && w.ends {
			run(w)
		}
	}
	if len(batch) == 0 {
		least := slices.MinFunc(turns, func(a, b *window) int { return cmp.Compare(spare(a), spare(b)) })
		more := int(s.speaking.Load()) // turns that will hand over more
		for _, w := range turns {
			if !w.ends {
				more--
			}
		}
		if more > 0 {
			return nil, spare(least)
		}
		run(least)
		for _, w := range turns {
			share = max(share, s.wave.SharedSlots(w.turn.slot))
		}
	}
	for _, w := range turns {
		if w.turn.slot < share && !slices.Contains(batch, w) {
			batch = append(batch, w)
		}
	}
	if share == 0 { // one after another: the most urgent one need not wait for all
		batch = batch[:1]
	}
	batch = batch[:min(len(batch), maxBatch)]
	s.queue = slices.DeleteFunc(s.queue, func(w *window) bool { return slices.Contains(batch, w) })
	return batch, 0
}

// dropEnded removes the windows of turns that have ended.
func (s *Sounder) dropEnded() {
	s.queue = slices.DeleteFunc(s.queue, func(w *window) bool {
		gone := w.turn.cancelled.Load() || w.turn.ended.Load()
		if gone {
			w.turn.left.Add(-1)
			s.changed() // its slot may be free
		}
		return gone
	})
}

// next returns the next window of each turn.
func (s *Sounder) next() (turns []*window) {
	of := map[*Turn]*window{}
	for _, w := range s.queue {
		if first := of[w.turn]; first != nil {
			first.ends = w.last
			continue
		}
		w.ends = w.last
		of[w.turn] = w
		turns = append(turns, w)
	}
	return turns
}

// sound runs a batch. It returns only the loss of the device.
func (s *Sounder) sound(batch []*window) error {
	if err := s.begin(); err != nil { // of turns that came with their windows
		return err
	}
	var ready []*window
	for _, w := range batch {
		if w.turn.begun != nil {
			w.fail(w.turn.begun)
			continue
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

// run runs windows and returns the failed ones. The error is the loss of the device.
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
		case step.Lost(w.err):
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
	from := ticks.Duration(int64(t.sounded), Rate)
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

// buffered returns how long the sound of a turn lasts from now on, if it was played at once.
func (t *Turn) buffered(now time.Time) time.Duration {
	return t.soundsAt.Add(ticks.Duration(int64(t.sounded), Rate)).Sub(now)
}
