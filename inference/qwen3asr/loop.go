package qwen3asr

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/internal/wake"
)

// backend is the loop's interface to the device: one call at a time, from the loop's thread.
// Results are valid until the next call.
type backend interface {
	// encode sets the results of windows that fit together, at most shape.batch.
	encode(windows []*window) error
	// clear zeroes the keys and values of a slot.
	clear(slot int) error
	// prefill feeds positions [from, to) of a job's prompt to its slot, which holds those before.
	prefill(j *job, from, to int) error
	// begin feeds all positions but the last of the jobs' prompts, one to each slot of a range.
	begin(jobs []*job, r kvcache.Range) error
	// decode feeds tokens[slot] at position lengths[slot] to each slot of a range. A slot that does not
	// decode has token -1; its position receives data that no step reads.
	decode(r kvcache.Range, tokens, lengths []int32) error
	// top returns the largest logits of a slot of the last run, descending, with their ids.
	top(slot int) (values []float32, ids []int64)
	// logits returns the slot's whole row.
	logits(slot int) ([]float32, error)
	// align returns the classes of a job's slots.
	align(j *job) ([]int32, error)
	// close frees everything.
	close() error
}

// shape holds the loop's parameters.
type shape struct {
	vocab  int
	layout kvcache.Layout
	chunk  int // maximum positions of one run
	batch  int // maximum windows of one run
	// together is the maximum positions of one run of several prompts, each as long as the longest; 0 for one prompt a run.
	together int
	queue    int // maximum jobs without a slot
	now      func() time.Time
	// alike reports whether two windows can be encoded in one run at no cost; those of one job always are if mixed is set, because
	// one run of more takes less time than two.
	alike func(a, b *window) bool
	mixed bool
	// linger is lingerEach, or 0: interim texts do not wait for each other. They do while shared reports that others use the device.
	linger time.Duration
	shared func() bool
}

// loop runs the jobs. Between two steps of the answers that decode it does other work: finals go before partials, and
// these before files. Its methods belong to the goroutine of run, except submit.
type loop struct {
	dev     backend
	shape   shape
	stats   *counters
	pool    *kvcache.Pool
	sampler *sample.Sampler
	states  []*sample.State // by slot

	rows    []*job  // decoding, by slot
	tokens  []int32 // the next id of each slot; -1 for none
	lengths []int32
	active  int
	waiting []*job // not decoding, by rank, then in order of arrival
	batch   []*window
	firsts  []*job      // that begin together
	recent  []time.Time // arrivals of interim texts, of the last half second
	unclean []bool      // slots whose last job failed, by slot: what it left may not be numbers

	inbox struct {
		mu      sync.Mutex
		jobs    []*job
		waiting int // jobs that do not decode
		stopped error
		wake    wake.Signal
	}
}

func newLoop(dev backend, s shape, stats *counters) (*loop, error) {
	pool, err := kvcache.NewPool(s.layout)
	if err != nil {
		return nil, err
	}
	n := s.layout.Slots
	l := &loop{
		dev: clocked{dev, s.now, stats}, shape: s, stats: stats, pool: pool, sampler: sample.New(s.vocab), states: make([]*sample.State, n),
		rows: make([]*job, n), tokens: make([]int32, n), lengths: make([]int32, n), batch: make([]*window, 0, s.batch),
		unclean: make([]bool, n),
	}
	for i := range n {
		l.states[i], l.tokens[i] = sample.NewState(s.vocab), -1
	}
	l.inbox.wake = wake.New()
	return l, nil
}

// submit queues a job. A final is never refused: an utterance has one at most.
func (l *loop) submit(j *job) error {
	j.slot = -1
	j.out.Init(max(j.most, len(j.slots)))
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	switch {
	case l.inbox.stopped != nil:
		return l.inbox.stopped
	case l.inbox.waiting >= l.shape.queue && j.class != final:
		l.stats.overloaded.Add(1)
		return fmt.Errorf("%w: %d wait", inference.ErrOverloaded, l.inbox.waiting)
	}
	l.inbox.waiting++
	l.inbox.jobs = append(l.inbox.jobs, j)
	l.inbox.wake.Set()
	return nil
}

// run works until ctx ends or the device is lost, then ends every job. It returns nil if ctx ended.
func (l *loop) run(ctx context.Context) error {
	for {
		l.intake()
		select {
		case <-ctx.Done():
			l.stop(ErrClosed)
			return nil
		default:
		}
		worked := l.active > 0
		var err error
		if worked {
			err = l.decode()
		}
		if err == nil {
			var more bool
			more, err = l.pieces()
			worked = worked || more
		}
		if err != nil {
			l.stop(err)
			return err
		}
		if worked {
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.inbox.wake:
		case <-l.soonest():
		}
	}
}

// patience is how long a file waits before it goes in turn with the partials, which may never end.
const patience = 10 * time.Second

// intake takes in new jobs and ends cancelled ones.
func (l *loop) intake() {
	now := l.shape.now()
	l.inbox.mu.Lock()
	for _, j := range l.inbox.jobs {
		j.rank, j.since = j.class, now
		l.enqueue(j)
		if j.class == partial && l.shape.linger > 0 {
			l.recent = append(l.recent, now)
		}
	}
	clear(l.inbox.jobs)
	l.inbox.jobs = l.inbox.jobs[:0]
	l.inbox.mu.Unlock()
	l.recent = slices.DeleteFunc(l.recent, func(at time.Time) bool { return now.Sub(at) > recently })
	for i, j := range l.waiting {
		if j.rank == file && now.Sub(j.since) >= patience {
			j.rank = partial
			l.waiting = slices.Delete(l.waiting, i, i+1)
			l.enqueue(j)
			break // the others in later turns
		}
	}
	for _, j := range slices.Clone(l.waiting) {
		if j.cancelled.Load() {
			l.finish(j, errCancelled)
		}
	}
	for _, j := range l.rows {
		if j != nil && j.cancelled.Load() {
			l.finish(j, errCancelled)
		}
	}
}

// For how long other work keeps the answers waiting that decode. Steps of many answers take hardly longer than those of few, so it
// is best for files to begin many before the next step. Live speech comes evenly: what comes during a step begins after it, together,
// and the answer to it has eight steps or so to wait for. With 40 ms between them for 64 speakers on an H200 a text came after 270 ms.
const (
	maxStall  = 40 * time.Millisecond
	liveStall = 8 * time.Millisecond
)

// enqueue adds a job to those that wait, behind all of its rank.
func (l *loop) enqueue(j *job) {
	at := len(l.waiting)
	if i := slices.IndexFunc(l.waiting, func(o *job) bool { return o.rank > j.rank }); i >= 0 {
		at = i
	}
	l.waiting = slices.Insert(l.waiting, at, j)
}

// pieces does other work between two steps, and reports whether there was any: one piece in any case, and more for jobs of
// the highest class.
func (l *loop) pieces() (worked bool, err error) {
	for begin := l.shape.now(); ; l.intake() {
		did, err := l.piece(worked)
		if err != nil || !did {
			return worked, err
		}
		if worked = true; l.shape.now().Sub(begin) >= l.stall() {
			return true, nil
		}
	}
}

// stall is how long the answers that decode may wait.
func (l *loop) stall() time.Duration {
	if l.highest() == file {
		return maxStall
	}
	return liveStall
}

// highest returns the highest class of the answers that decode.
func (l *loop) highest() class {
	highest := file
	for _, j := range l.rows {
		if j != nil {
			highest = min(highest, j.rank)
		}
	}
	return highest
}

// Interim texts of many speakers come evenly, each a few milliseconds after the other. One by one they keep the device busy all the time,
// which commentary on the same GPU feels; four together take two thirds of that. So on a shared GPU an interim text waits until there are
// four, or for lingerEach times the number of those of the last half second, that is of those who speak: one alone hardly waits.
const (
	lingerEach = 600 * time.Microsecond
	recently   = 500 * time.Millisecond
	company    = 4 // a power of two: a run takes no other number
)

// lingers returns how much longer an interim text waits for others, to be encoded and fed with them.
func (l *loop) lingers(j *job) time.Duration {
	if j.class != partial || j.slot >= 0 || l.shape.linger == 0 || !l.shape.shared() {
		return 0
	}
	n := 0
	for _, o := range l.waiting {
		if o.class == partial {
			n++
		}
	}
	if n >= company {
		return 0
	}
	return max(time.Duration(len(l.recent))*l.shape.linger-l.shape.now().Sub(j.since), 0)
}

// soonest returns when the next interim text has waited for others; nil if none does.
func (l *loop) soonest() <-chan time.Time {
	for _, j := range l.waiting {
		if left := l.lingers(j); left > 0 {
			return time.After(left)
		}
	}
	return nil
}

// piece does one piece of work for the first job that can go on, and reports whether there was one. A further piece is
// not done for a job below the highest class that decodes.
func (l *loop) piece(further bool) (bool, error) {
	for _, j := range l.waiting {
		switch {
		case further && j.rank > l.highest():
			return false, nil
		case l.lingers(j) > 0:
			continue
		case !j.encoded():
			return true, l.encode(j)
		case j.slots != nil:
			return true, l.align(j)
		case j.slot < 0 && l.gather(j) > 1:
			if i := slices.IndexFunc(l.firsts, func(o *job) bool { return !o.encoded() }); i >= 0 {
				return true, l.encode(l.firsts[i])
			}
			if r, ok := l.places(); ok {
				return true, l.begin(r)
			}
		}
		if j.slot >= 0 || l.place(j) {
			return true, l.prefill(j)
		}
	}
	return false, nil
}

// gather collects the jobs that can begin in one run with j, in their order: those of its class whose whole prompts fit. It
// returns their number.
func (l *loop) gather(j *job) int {
	l.firsts = l.firsts[:0]
	longest, most := 0, l.room(j)
	for _, o := range l.waiting[slices.Index(l.waiting, j):] {
		n := len(o.prompt.ids) - 1 // a step feeds the last one
		if o.rank != j.rank || o.class != j.class || o.slots != nil || o.slot >= 0 || o.alone || n < 1 || n > l.shape.chunk {
			if o == j {
				break
			}
			continue
		}
		if longest = max(longest, n); len(l.firsts) == most || longest*(len(l.firsts)+1) > l.shape.together {
			break
		}
		l.firsts = append(l.firsts, o)
	}
	return len(l.firsts)
}

// room is the number of slots that jobs like j can have now. Files leave a quarter of the slots to live speech.
func (l *loop) room(j *job) int {
	if j.class == file {
		return max(l.pool.Free()-l.shape.layout.Slots/4, 0)
	}
	return l.pool.Free()
}

// place gives a free slot to a job.
func (l *loop) place(j *job) bool {
	if l.room(j) == 0 {
		return false
	}
	slot, _, _ := l.pool.Take()
	l.occupy(j, slot)
	return true
}

// places gives slots to as many of the collected jobs as there are free neighbours.
func (l *loop) places() (r kvcache.Range, ok bool) {
	size := 1 << (bits.Len(uint(len(l.firsts))) - 1)
	for ; size > 1; size /= 2 {
		if r, ok = l.pool.TakeRange(size); ok {
			break
		}
	}
	if !ok {
		return r, false
	}
	l.firsts = l.firsts[:size]
	for i, j := range l.firsts {
		l.occupy(j, r.Start+i)
	}
	return r, true
}

func (l *loop) occupy(j *job, slot int) {
	j.slot = slot
	l.stats.busy.Add(1)
	l.states[slot].Reset(j.settings, j.seed, 0)
}

// begin feeds the prompts of the collected jobs but for their last ids, which the next step feeds. If that fails, each is fed alone.
func (l *loop) begin(r kvcache.Range) error {
	var err error
	for slot := r.Start; slot < r.Start+r.Size && err == nil; slot++ {
		err = l.clean(slot)
	}
	if err == nil {
		err = l.dev.begin(l.firsts, r)
	}
	if errors.Is(err, ort.ErrDeviceLost) {
		return err
	}
	for _, j := range l.firsts {
		n := len(j.prompt.ids) - 1
		if err == nil {
			if failed := l.pool.Advance(j.slot, n); failed != nil {
				l.finish(j, failed)
				continue
			}
			l.stats.prompt.Add(uint64(n)) //nolint:gosec // not negative
			j.filled, l.tokens[j.slot] = n, j.prompt.ids[n]
			l.start(j)
			continue
		}
		j.alone, l.unclean[j.slot] = true, true
	}
	l.stats.prompts.Add(1)
	clear(l.firsts)
	return nil
}

// clean zeroes a slot if what its last job left may not be numbers. Steps overwrite the rest before they read it.
func (l *loop) clean(slot int) error {
	if !l.unclean[slot] {
		return nil
	}
	err := l.dev.clear(slot)
	l.unclean[slot] = err != nil
	return err
}

// start makes a job decode.
func (l *loop) start(j *job) {
	l.leave(j)
	l.rows[j.slot] = j
	l.active++
}

// encode runs the encoder for the first window of a job that needs it, together with others that are alike.
func (l *loop) encode(j *job) error {
	l.batch = l.batch[:0]
	add := func(windows []*window, mixed bool) {
		for _, w := range windows {
			if len(l.batch) < l.shape.batch && w.out == nil && !slices.Contains(l.batch, w) &&
				(len(l.batch) == 0 || mixed || l.shape.alike(l.batch[0], w)) {
				l.batch = append(l.batch, w)
			}
		}
	}
	add(j.windows, l.shape.mixed)
	for _, o := range l.waiting {
		add(o.windows, false)
	}
	l.stats.windows.Add(uint64(len(l.batch)))
	l.stats.encodes.Add(1)
	return l.check(j, l.dev.encode(l.batch))
}

// check ends a job with an error of the device, and returns it if the device is lost.
func (l *loop) check(j *job, err error) error {
	if err == nil || errors.Is(err, ort.ErrDeviceLost) {
		return err
	}
	l.finish(j, err)
	return nil
}

// align runs the aligner.
func (l *loop) align(j *job) error {
	classes, err := l.dev.align(j)
	if err != nil {
		return l.check(j, err)
	}
	for _, c := range classes {
		j.out.Push(c)
	}
	l.finish(j, nil)
	return nil
}

// prefill feeds the next positions of a prompt and, after the last, chooses the first id.
func (l *loop) prefill(j *job) error {
	if j.filled == 0 {
		if err := l.clean(j.slot); err != nil {
			return l.check(j, err)
		}
	}
	to := min(j.filled+l.shape.chunk, len(j.prompt.ids))
	err := l.dev.prefill(j, j.filled, to)
	if err == nil {
		err = l.pool.Advance(j.slot, to-j.filled)
	}
	if err != nil {
		return l.check(j, err)
	}
	l.stats.prompts.Add(1)
	l.stats.prompt.Add(uint64(to - j.filled)) //nolint:gosec // not negative
	if j.filled = to; to < len(j.prompt.ids) {
		return nil
	}
	l.start(j)
	l.advance(j)
	return nil
}

// leave removes a job from those that wait.
func (l *loop) leave(j *job) {
	i := slices.Index(l.waiting, j)
	if i < 0 {
		return
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.inbox.mu.Lock()
	l.inbox.waiting--
	l.inbox.mu.Unlock()
}

// decode runs one step of every active answer.
func (l *loop) decode() error {
	low, high := slices.IndexFunc(l.rows, func(j *job) bool { return j != nil }), len(l.rows)-1
	for l.rows[high] == nil {
		high--
	}
	r := l.shape.layout.Cover(low, high)
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		// The step writes a slot that is being filled at the start of its next chunk.
		l.lengths[slot] = int32(l.pool.Length(slot)) //nolint:gosec // bounded by the layout
	}
	l.stats.steps.Add(1)
	l.stats.tokens.Add(uint64(l.active)) //nolint:gosec // not negative
	err := l.dev.decode(r, l.tokens, l.lengths)
	if errors.Is(err, ort.ErrDeviceLost) {
		return err
	}
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		j := l.rows[slot]
		if j == nil {
			continue
		}
		failed := err
		if failed == nil {
			failed = l.pool.Advance(slot, 1)
		}
		if failed != nil {
			l.finish(j, failed)
			continue
		}
		l.advance(j)
	}
	return nil
}

// advance chooses an answer's next id and sends it, or ends the answer.
func (l *loop) advance(j *job) {
	id, err := l.choose(j.slot)
	if err != nil || slices.Contains(j.settings.Stop, id) {
		l.finish(j, err)
		return
	}
	j.count++
	l.states[j.slot].Accept(id)
	j.out.Push(id)
	if j.count >= j.most || l.pool.Room(j.slot) == 0 {
		l.finish(j, nil)
		return
	}
	l.tokens[j.slot] = id
}

// choose chooses the next id of a slot.
func (l *loop) choose(slot int) (int32, error) {
	st := l.states[slot]
	values, ids := l.dev.top(slot)
	id, ok, err := l.sampler.Top(st, values, ids, -1)
	if err == nil && !ok {
		var row []float32
		if row, err = l.dev.logits(slot); err == nil {
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

// finish releases what a job holds and ends it.
func (l *loop) finish(j *job, err error) {
	l.leave(j)
	if j.slot >= 0 {
		if l.rows[j.slot] == j {
			l.rows[j.slot], l.tokens[j.slot] = nil, -1
			l.active--
		}
		l.unclean[j.slot] = err != nil
		err = errors.Join(err, l.pool.Release(j.slot))
		j.slot = -1
		l.stats.busy.Add(-1)
	}
	l.stats.ended(j.class, err)
	j.out.End(err)
}

// stop ends every job and refuses new ones.
func (l *loop) stop(err error) {
	l.inbox.mu.Lock()
	l.inbox.stopped = err
	jobs := l.inbox.jobs
	l.inbox.jobs = nil
	l.inbox.waiting -= len(jobs)
	l.inbox.mu.Unlock()
	for _, j := range slices.Concat(l.waiting, l.rows, jobs) {
		if j != nil {
			l.finish(j, err)
		}
	}
}
