package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/internal/wake"
)

var (
	// ErrCancelled ends a cancelled answer.
	ErrCancelled = errors.New("cancelled")
	// ErrNotFinite ends an answer whose logits are not numbers.
	ErrNotFinite = errors.New("the model's output is not finite: " +
		"check the bundle with `touchline models verify`; a checkpoint that overflows float16 needs a conversion with --weights bf16")
)

// Loop decodes the answers of an engine together: each turn feeds the last id of every active answer in one run, then does as many
// bounded pieces of other work as the answers may pause for.
//
// Submit, Cancel, Wake and Waiting may be called from any goroutine; all other methods and fields belong to the goroutine of Run.
type Loop[A answer] struct {
	Pool *kvcache.Pool
	// Rows are the decoding answers, by slot; Queue the answers that wait for a slot.
	Rows  []A
	Queue []A
	// Active is the number of answers that decode.
	Active int

	o       Options
	engine  Engine[A]
	sampler *sample.Sampler
	states  []*sample.State // by slot
	held    []A             // by slot
	tokens  []int32         // the next id of each slot; -1 for none
	lengths []int32
	stepAt  time.Time // end of the last step
	took    time.Duration

	wake  wake.Signal
	mu    sync.Mutex
	inbox []A
	count int // waiting answers
	err   error
}

// New returns a loop that does not run yet.
func New[A answer](o Options, e Engine[A]) (*Loop[A], error) {
	pool, err := kvcache.NewPool(o.Layout)
	if err != nil {
		return nil, err
	}
	n := o.Layout.Slots
	l := &Loop[A]{
		Pool: pool, Rows: make([]A, n), o: o, engine: e, sampler: sample.New(o.Vocab), states: make([]*sample.State, n),
		held: make([]A, n), tokens: make([]int32, n), lengths: make([]int32, n), wake: wake.New(),
	}
	for i := range n {
		l.states[i], l.tokens[i] = sample.NewState(o.Vocab), -1
	}
	return l, nil
}

// Submit queues an answer, or refuses it with inference.ErrOverloaded.
func (l *Loop[A]) Submit(a A) error {
	b := a.Base()
	b.Slot = -1
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case l.count >= l.o.Waiting && b.Rank > 0:
		return fmt.Errorf("%w: %s", inference.ErrOverloaded, device.Plural(l.count, "answer waits", "answers wait"))
	}
	l.count++
	l.inbox = append(l.inbox, a)
	l.wake.Set()
	return nil
}

// Cancel ends an answer within one step. It has no effect on one that has ended.
func (l *Loop[A]) Cancel(answers ...A) {
	for _, a := range answers {
		a.Base().cancelled.Store(true)
	}
	l.wake.Set()
}

// Wake makes the loop look for new work.
func (l *Loop[A]) Wake() { l.wake.Set() }

// Waiting returns the number of answers that wait.
func (l *Loop[A]) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Layout returns the layout of the cache.
func (l *Loop[A]) Layout() kvcache.Layout { return l.o.Layout }

// Vocab returns the number of ids.
func (l *Loop[A]) Vocab() int { return l.o.Vocab }

// Run works until ctx ends or the device is lost, then ends every answer, with closed or with the loss. It returns nil if ctx ended.
func (l *Loop[A]) Run(ctx context.Context, closed error) error {
	defer l.o.Client.Leave()
	for ctx.Err() == nil {
		err := l.TakeIn()
		worked, rest := false, time.Duration(0)
		if err == nil {
			worked, rest, err = l.turn(ctx)
		}
		if err != nil {
			l.stop(err)
			return err
		}
		if !worked && rest <= 0 {
			rest = l.engine.Idle()
		}
		if !worked {
			l.Await(ctx, rest)
		}
	}
	l.stop(closed)
	return nil
}

// Await waits until Wake or the end of ctx, for the given time at most; 0 has no limit.
func (l *Loop[A]) Await(ctx context.Context, most time.Duration) {
	var timer <-chan time.Time
	if most > 0 {
		timer = time.After(most)
	}
	select {
	case <-ctx.Done():
	case <-l.wake:
	case <-timer:
	}
}

// turn does a step, unless the answers rest, and pieces of other work.
func (l *Loop[A]) turn(ctx context.Context) (worked bool, rest time.Duration, err error) {
	if l.Active > 0 {
		rest = l.o.Client.Delay(Run{Due: l.engine.Due(l.stepAt), Last: l.stepAt, Cost: l.took})
	}
	if l.Active > 0 && rest <= 0 {
		worked = true
		select { // so that it tells of something new; the next turn takes in the rest
		case <-l.wake:
		default:
		}
		if err = l.step(); err == nil {
			err = l.engine.Stepped(ctx)
		}
		if err != nil {
			return worked, 0, err
		}
	}
	more, err := l.pieces()
	return worked || more, rest, err
}

// TakeIn takes in new answers and ends cancelled ones, as at the beginning of each turn. It returns only the loss of the device.
func (l *Loop[A]) TakeIn() error {
	l.mu.Lock()
	now := l.o.Now()
	for _, a := range l.inbox {
		a.Base().Since = now
		l.enqueue(a)
	}
	clear(l.inbox)
	l.inbox = l.inbox[:0]
	l.mu.Unlock()
	if err := l.engine.Intake(); err != nil {
		return err
	}
	for _, a := range slices.Clone(l.Queue) {
		err := l.engine.Failed(a)
		if a.Base().Cancelled() {
			err = ErrCancelled
		}
		if err != nil {
			l.Finish(a, err)
		}
	}
	var none A
	for _, a := range l.held {
		if a != none && a.Base().Cancelled() {
			l.Finish(a, ErrCancelled)
		}
	}
	return nil
}

// enqueue adds an answer to the queue, behind all of its rank.
func (l *Loop[A]) enqueue(a A) {
	at := len(l.Queue)
	if i := slices.IndexFunc(l.Queue, func(o A) bool { return o.Base().Rank > a.Base().Rank }); i >= 0 {
		at = i
	}
	l.Queue = slices.Insert(l.Queue, at, a)
}

// Dequeue removes an answer from the queue.
func (l *Loop[A]) Dequeue(a A) {
	i := slices.Index(l.Queue, a)
	if i < 0 {
		return
	}
	l.Queue = slices.Delete(l.Queue, i, i+1)
	l.mu.Lock()
	l.count--
	l.mu.Unlock()
}

// pieces does the work other than decode steps, and reports whether there was any.
func (l *Loop[A]) pieces() (worked bool, err error) {
	const endless = time.Duration(1 << 60)
	begin := l.o.Now()
	for {
		left := endless
		if l.Active > 0 {
			left = l.engine.Pause() - l.o.Now().Sub(begin)
		}
		did, err := l.engine.Piece(left, worked)
		if err != nil || !did {
			return worked, err
		}
		if worked = true; l.Active == 0 {
			return true, nil // new work may go first
		}
	}
}

// Hold assigns a slot, which the pool has taken, to an answer.
func (l *Loop[A]) Hold(a A, slot int) {
	b := a.Base()
	b.Slot, l.held[slot] = slot, a
	l.states[slot].Reset(b.Settings, b.Seed, 0)
}

// Decode adds an answer whose prompt is in its slot. The next step feeds id.
func (l *Loop[A]) Decode(a A, id int32) {
	l.begin(a)
	l.tokens[a.Base().Slot] = id
}

// Begin adds an answer whose prompt is in its slot, and chooses its first id from the last run.
func (l *Loop[A]) Begin(a A) {
	l.begin(a)
	l.advance(a)
}

func (l *Loop[A]) begin(a A) {
	l.Dequeue(a)
	l.Rows[a.Base().Slot] = a
	l.Active++
}

// Cover returns the range of all slots that decode. There must be at least one.
func (l *Loop[A]) Cover() kvcache.Range {
	var none A
	low, high := 0, len(l.Rows)-1
	for l.Rows[low] == none {
		low++
	}
	for l.Rows[high] == none {
		high--
	}
	return l.o.Layout.Cover(low, high)
}

// step runs one step of every active answer.
func (l *Loop[A]) step() error {
	var none A
	r := l.Cover()
	took, err := l.run(r)
	if Lost(err) {
		return err
	}
	if err == nil {
		l.stepAt, l.took = l.o.Now(), took
	} else {
		l.failedRun()
	}
	single := l.Active == 1
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		a := l.Rows[slot]
		if a == none {
			continue
		}
		failed := err
		if err != nil && !single { // once more, alone: only what fails then ends. A repeated step writes the same data.
			if _, failed = l.run(kvcache.Range{Start: slot, Size: 1}); Lost(failed) {
				return failed
			}
		}
		if failed == nil {
			failed = l.Pool.Advance(slot, 1)
		}
		if failed != nil {
			l.Finish(a, failed)
			continue
		}
		l.advance(a)
	}
	return nil
}

// run feeds the last ids of a range.
func (l *Loop[A]) run(r kvcache.Range) (took time.Duration, err error) {
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		// The step writes a slot that is being filled at the start of its next chunk.
		l.lengths[slot] = int32(l.Pool.Length(slot))
	}
	return l.o.Client.Do(func() error { return l.engine.Step(r, l.tokens, l.lengths) })
}

// Failing ends an answer with an error of a run, and returns it if the device is lost.
func (l *Loop[A]) Failing(a A, err error) error {
	if err == nil || Lost(err) {
		return err
	}
	l.failedRun()
	l.Finish(a, err)
	return nil
}

func (l *Loop[A]) failedRun() {
	if l.o.FailedRun != nil {
		l.o.FailedRun()
	}
}

// Lost reports whether an error is the loss of the device, which ends the loop.
func Lost(err error) bool { return errors.Is(err, ort.ErrDeviceLost) }

// advance chooses an answer's next id and sends it, or ends the answer.
func (l *Loop[A]) advance(a A) {
	b := a.Base()
	id, err := l.next(b)
	if err != nil {
		l.Finish(a, err)
		return
	}
	if slices.Contains(b.Settings.Stop, id) {
		l.engine.Push(a, id, true)
		l.Finish(a, nil)
		return
	}
	b.Count++
	st := l.states[b.Slot]
	st.Accept(id)
	if b.Chunk > 0 && b.Count > b.Chunk && (b.Count-1)%b.Chunk == 0 {
		st.NewChunk()
	}
	l.engine.Push(a, id, false)
	if b.Count >= b.Most || l.Pool.Room(b.Slot) == 0 || st.Complete() {
		l.Finish(a, nil)
		return
	}
	l.tokens[b.Slot] = id
}

// next returns the next id of an answer: drawn, or given.
func (l *Loop[A]) next(b *Answer) (int32, error) {
	switch {
	case b.Forced == nil:
		return l.choose(b.Slot)
	case b.Count < len(b.Forced):
		return b.Forced[b.Count], nil
	}
	return b.Settings.Stop[0], nil
}

// choose draws the next id of a slot.
func (l *Loop[A]) choose(slot int) (int32, error) {
	st := l.states[slot]
	values, ids := l.engine.Top(slot)
	id, ok, err := l.sampler.Top(st, values, ids, -1)
	if err == nil && !ok {
		if l.o.WholeRow != nil {
			l.o.WholeRow()
		}
		var row []float32
		if row, err = l.engine.Logits(slot); err == nil {
			id, err = l.sampler.Full(st, row, -1)
		}
	}
	if errors.Is(err, sample.ErrNotFinite) {
		return 0, ErrNotFinite
	}
	if err != nil {
		return 0, fmt.Errorf("choose a token: %w", err)
	}
	return id, nil
}

// Finish releases an answer's slot, if it has one, and ends it.
func (l *Loop[A]) Finish(a A, err error) {
	l.Dequeue(a)
	var none A
	if slot := a.Base().Slot; slot >= 0 {
		if l.Rows[slot] == a {
			l.Rows[slot], l.tokens[slot] = none, -1
			l.Active--
		}
		l.held[slot] = none
		err = errors.Join(err, l.Pool.Release(slot))
	}
	l.engine.Ended(a, err)
	a.Base().Slot = -1
}

// stop ends every answer and refuses new ones.
func (l *Loop[A]) stop(err error) {
	l.mu.Lock()
	l.err = err
	l.Queue = append(l.Queue, l.inbox...)
	l.inbox = nil
	l.mu.Unlock()
	for _, a := range slices.Clone(l.Queue) {
		l.Finish(a, err)
	}
	var none A
	for _, a := range l.held {
		if a != none {
			l.Finish(a, err)
		}
	}
}
