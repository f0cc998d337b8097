package tts

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/step"
)

// LM is the language model of codes, with a slot of keys and values for each turn.
// All calls come from the goroutine that owns its device. Results are valid until
// the next call.
type LM interface {
	// Clear zeroes a slot.
	Clear(slot int) error
	// Feed reads a piece in a slot that holds length positions, and returns how many it added.
	Feed(slot, length int, p Piece) (int, error)
	// TurnBack moves the first length positions of a slot back by one, relative to the positions that follow: their keys are rotated in
	// place.
	TurnBack(slot, length int) error
	// Step feeds the last code of history[slot] at position lengths[slot] to each slot of a range. A slot that draws nothing has no
	// history; its position receives data that no step reads.
	Step(r kvcache.Range, history [][]int32, lengths []int32) error
	// Logits returns a slot's whole row of the last Feed or Step.
	Logits(slot int) ([]float32, error)
	// Best returns the slot's row of the last Step in short. ok is false if there is only the whole row, as after Feed.
	Best(slot int) (r Row, ok bool)
}

// TalkerOptions of a talker.
type TalkerOptions struct {
	LM       LM
	Layout   kvcache.Layout
	Settings Settings
	// End is the code that ends a piece, Silence the code of silence.
	End, Silence int32
	Now          func() time.Time
	// Client of the GPU's owner, for codes and sound.
	Client *step.Client
	// Wake is called when there is new work, from any goroutine.
	Wake func()
}

// PieceCodes is the largest number of codes of a piece.
const PieceCodes = 500

const (
	// lead is how far the codes of a turn may be ahead of its voice: a cancelled
	// comment should not have cost much. With less than underrun a voice may soon fall silent.
	// With more than enough it draws only while sound is made, unless turns wait for slots: the device is busy
	// then anyway, and the fewer steps have more voices (32 that speak on an H200: 11.8 instead of 16.3 % of its time).
	lead     = 5 * time.Second
	enough   = time.Second
	underrun = 600 * time.Millisecond
	// wordMargin is how much later than usual a window may come without a late word.
	wordMargin = 100 * time.Millisecond
)

// needs reports whether a turn needs codes: its sound is at most enough ahead, or at most lead while sound is made or turns wait for a
// slot. With pressing set: it has no sound yet, or may soon fall silent.
func (k *Talker) needs(t *Turn, now time.Time, pressing bool) bool {
	ahead := t.ahead(now)
	if pressing {
		return t.sent == 0 || ahead <= underrun
	}
	return ahead <= enough || (k.sounder.running.Load() || k.sounder.short.Load()) && ahead <= lead
}

// Talker draws the codes of all turns. The goroutine that owns the device calls
// all of its methods but Submit.
type Talker struct {
	o       TalkerOptions
	sounder *Sounder
	pool    *kvcache.Pool
	sampler *Sampler

	// By slot: turns, and for the next step their codes so far and positions.
	turns   []*Turn
	history [][]int32
	lengths []int32
	waiting []*Turn // without a slot, in order of arrival

	feedCost, stepCost average
	window             average      // between two windows of a turn that is not far ahead
	held               atomic.Int32 // slots

	mu       sync.Mutex
	incoming []*Turn
	stopped  error
}

// average follows a duration.
type average time.Duration

func (a *average) learn(d time.Duration) {
	if *a == 0 {
		*a = average(d)
		return
	}
	*a += (average(d) - *a) / 4
}

// NewTalker returns a talker that hands its windows to a sounder.
func NewTalker(o TalkerOptions, s *Sounder) (*Talker, error) {
	pool, err := kvcache.NewPool(o.Layout)
	if err != nil {
		return nil, err
	}
	n := o.Layout.Slots
	k := &Talker{
		o: o, sounder: s, pool: pool, sampler: New(o.Settings),
		turns: make([]*Turn, n), history: make([][]int32, n), lengths: make([]int32, n),
	}
	return k, nil
}

// Submit queues a turn. After Stop it returns Stop's error.
func (k *Talker) Submit(t *Turn) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped != nil {
		return k.stopped
	}
	t.mu.Lock()
	t.changed = k.o.Wake
	t.mu.Unlock()
	k.incoming = append(k.incoming, t)
	k.o.Wake()
	return nil
}

// Intake adds new turns and removes ended ones. It returns only the loss of the device.
func (k *Talker) Intake() error {
	defer k.post()
	if err := k.sounder.lost.Load(); err != nil {
		return *err
	}
	k.mu.Lock()
	k.waiting = append(k.waiting, k.incoming...)
	clear(k.incoming)
	k.incoming = k.incoming[:0]
	k.mu.Unlock()
	for slot, t := range k.turns {
		if t == nil {
			continue
		}
		if t.cancelled.Load() || t.ended.Load() {
			k.finish(t, ErrCancelled)
		}
		if t.complete && t.left.Load() == 0 {
			k.turns[slot] = nil
			if err := k.pool.Release(slot); err != nil {
				return err
			}
			k.held.Add(-1)
		}
	}
	k.waiting = slices.DeleteFunc(k.waiting, func(t *Turn) bool {
		if t.cancelled.Load() {
			t.end(ErrCancelled)
		}
		return t.cancelled.Load()
	})
	return k.place()
}

// place gives free slots to waiting turns that have something to say.
func (k *Talker) place() error {
	defer func() {
		if short := k.pool.Free() == 0 && slices.ContainsFunc(k.waiting, (*Turn).hasPiece); k.sounder.short.Swap(short) != short {
			k.sounder.wake.Set()
		}
	}()
	slices.SortStableFunc(k.waiting, func(a, b *Turn) int { return cmp.Compare(a.rank(), b.rank()) })
	for i := 0; i < len(k.waiting) && k.pool.Free() > 0; {
		t := k.waiting[i]
		if !t.hasPiece() || t.behind && k.pool.InUse() > 0 && k.pool.Free() == 1 { // the last one is for others
			i++
			continue
		}
		k.waiting = slices.Delete(k.waiting, i, i+1)
		slot, dirty, _ := k.pool.Take()
		t.slot, t.windows = slot, NewWindows(k.o.Silence)
		k.turns[slot] = t
		k.held.Add(1)
		k.sounder.speaking.Add(1)
		k.sounder.start(t)
		if !dirty {
			continue
		}
		if err := k.o.LM.Clear(slot); err != nil {
			if step.Lost(err) {
				return err
			}
			k.finish(t, err)
		}
	}
	return nil
}

// Work does one piece of work: the first of a round in any case, a further one if it
// fits into the time left. A step is one of all voices; it is done only if some voice needs it, or if some voice is pressing. Work reports
// whether it did any.
func (k *Talker) Work(left time.Duration, further, pressing bool) (bool, error) {
	defer k.post()
	now := k.o.Now()
	work, of := k.step, &k.stepCost
	if t := k.toFeed(now); t != nil {
		work, of = func() error { return k.feed(t) }, &k.feedCost
	} else if !k.wanted(now, pressing) {
		return false, nil
	}
	if further && time.Duration(*of) > left {
		return false, nil
	}
	took, err := k.o.Client.Do(work)
	of.learn(took)
	return true, err
}

// post tells the owner of the GPU whether a voice has words and no sound yet: its first sound is due.
func (k *Talker) post() {
	var due time.Time
	if slices.ContainsFunc(k.turns, func(t *Turn) bool {
		return t != nil && (t.sent == 0 && !t.complete && (t.drawing || t.hasPiece()) || t.sent == 1 && t.left.Load() > 0)
	}) {
		due = k.o.Now()
	}
	k.o.Client.Post(due)
}

// Busy returns how long the device has worked for voices, from any goroutine. Codes and sound at the same time count once.
func (k *Talker) Busy() time.Duration { return k.o.Client.Busy() }

// Held returns the number of slots that turns have, from any goroutine.
func (k *Talker) Held() int { return int(k.held.Load()) }

// Active reports whether a turn has a slot.
func (k *Talker) Active() bool { return k.pool.InUse() > 0 }

// toFeed returns the turn whose next piece is the most urgent. Pieces are read early, because their codes then come with the steps
// for others, and turns end sooner.
func (k *Talker) toFeed(now time.Time) *Turn {
	var best *Turn
	for _, t := range k.turns {
		if t == nil || t.complete || t.drawing || !t.hasPiece() || !k.needs(t, now, false) {
			continue
		}
		if best == nil || t.sent == 0 && best.sent > 0 || cmp.Compare(t.ahead(now), best.ahead(now)) < 0 {
			best = t
		}
	}
	return best
}

// wanted reports whether some turn needs codes.
func (k *Talker) wanted(now time.Time, pressing bool) bool {
	return slices.ContainsFunc(k.turns, func(t *Turn) bool {
		return t != nil && t.drawing && !t.complete && k.needs(t, now, pressing)
	})
}

// feed reads the next piece of a turn and draws its first code.
func (k *Talker) feed(t *Turn) error {
	p, ok := t.next()
	if !ok {
		return nil
	}
	if p.Last && p.Cut && len(p.IDs) == 0 { // nothing more to read
		k.flush(t, nil)
		return nil
	}
	const marks = 2 // around the text
	if k.pool.Room(t.slot) < len(p.IDs)+marks {
		k.flush(t, ErrTooLong)
		return nil
	}
	t.line.Begin(p.Text, len(t.windows.Codes()), p.Last)
	if t.sent == 0 {
		t.emittedAt = k.o.Now()
	}
	n, err := k.read(t, p)
	if err == nil {
		err = k.pool.Advance(t.slot, n)
	}
	if err != nil {
		return k.failed(t, err)
	}
	t.drawing, t.last, t.inPiece = true, p.Last, 0
	return k.draw(t)
}

// read reads a piece. The official code counts the last code of a full piece as a position and never feeds it, so what follows is one
// position further away.
func (k *Talker) read(t *Turn, p Piece) (int, error) {
	length := k.pool.Length(t.slot)
	if t.inPiece == PieceCodes {
		if err := k.o.LM.TurnBack(t.slot, length); err != nil {
			return 0, err
		}
	}
	return k.o.LM.Feed(t.slot, length, p)
}

// step feeds the last code of every turn and draws the next.
func (k *Talker) step() error {
	low, high := -1, -1
	for slot, t := range k.turns {
		if t != nil && k.history[slot] != nil {
			if low < 0 {
				low = slot
			}
			high = slot
		}
	}
	if low < 0 {
		return nil
	}
	r := k.o.Layout.Cover(low, high)
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		k.lengths[slot] = int32(k.pool.Length(slot)) //nolint:gosec // bounded by the memory of a slot
	}
	err := k.o.LM.Step(r, k.history, k.lengths)
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		t := k.turns[slot]
		if t == nil || k.history[slot] == nil {
			continue
		}
		failed := err
		if err != nil && !step.Lost(err) && r.Size > 1 { // once more, alone: only what fails then ends
			failed = k.o.LM.Step(kvcache.Range{Start: slot, Size: 1}, k.history, k.lengths)
		}
		if failed == nil {
			failed = k.pool.Advance(slot, 1)
		}
		if failed == nil {
			failed = k.draw(t)
		} else {
			failed = k.failed(t, failed)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// draw draws a turn's next code.
func (k *Talker) draw(t *Turn) error {
	k.history[t.slot] = nil
	code, err := k.choose(t)
	if err != nil {
		return k.failed(t, err)
	}
	if code != k.o.End {
		if window := t.windows.Push(code); window != nil {
			k.emit(t, window, false)
		}
		t.inPiece++
		switch {
		case t.inPiece >= PieceCodes:
		case k.pool.Room(t.slot) == 0:
			k.flush(t, ErrTooLong)
			return nil
		default:
			k.history[t.slot] = t.windows.Codes()
			return nil
		}
	}
	t.drawing = false
	t.line.End(len(t.windows.Codes()), t.last)
	if t.last {
		k.flush(t, nil)
	}
	return nil
}

// choose draws from the turn's row.
func (k *Talker) choose(t *Turn) (int32, error) {
	history := t.windows.Codes()
	u := t.draw()
	if t.inPiece > 0 && len(history) > 0 {
		if row, ok := k.o.LM.Best(t.slot); ok {
			return k.sampler.Best(row, history, u)
		}
	}
	row, err := k.o.LM.Logits(t.slot)
	if err != nil {
		return 0, err
	}
	return k.sampler.Full(row, history, u)
}

// emit gives a window to the sounder.
func (k *Talker) emit(t *Turn, codes []int32, last bool) {
	now := k.o.Now()
	switch {
	case t.sent == 0:
		t.started = now
		k.window.learn(now.Sub(t.emittedAt))
	case t.ahead(now) < lead/2:
		k.window.learn(now.Sub(t.emittedAt))
	}
	t.emittedAt = now
	t.sent++
	t.left.Add(1)
	// The part of the drawn codes that is played before the next window.
	due := min(now.Sub(t.started)+time.Duration(k.window)+wordMargin, Start(len(t.windows.Codes())))
	k.sounder.submit(&window{turn: t, codes: codes, words: t.line.Words(due), first: t.sent == 1, last: last})
}

// flush hands over the last window of a turn, which then ends with err.
func (k *Talker) flush(t *Turn, err error) {
	if len(t.windows.Codes()) == 0 {
		k.finish(t, cmp.Or(err, ErrMute))
		return
	}
	t.line.End(len(t.windows.Codes()), true)
	t.err = err
	k.emit(t, t.windows.End(), true)
	k.finish(t, nil)
}

// finish ends the drawing of a turn. With an error its reader gets that at once.
func (k *Talker) finish(t *Turn, err error) {
	if t.complete {
		return
	}
	t.complete, t.drawing = true, false
	k.history[t.slot] = nil
	k.sounder.speaking.Add(-1)
	if err != nil {
		t.end(err)
	}
	k.sounder.wake.Set()
	k.o.Wake() // its slot may be free
}

// failed ends a turn with an error. It returns the error only if the device is lost.
func (k *Talker) failed(t *Turn, err error) error {
	if step.Lost(err) {
		return err
	}
	k.finish(t, err)
	return nil
}

// Stop ends every turn and refuses new ones.
func (k *Talker) Stop(err error) {
	k.mu.Lock()
	k.stopped = cmp.Or(err, errors.New("stopped"))
	k.waiting = append(k.waiting, k.incoming...)
	k.incoming = nil
	k.mu.Unlock()
	for _, t := range slices.Concat(k.waiting, k.turns) {
		if t != nil {
			t.end(err)
		}
	}
	k.waiting = nil
	clear(k.turns)
}
