package qwen3asr

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"time"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/step"
)

// backend is the loop's interface to the device: one call at a time, from the loop's thread.
// Results are valid until the next call.
type backend interface {
	// encode sets the results of windows that fit together, at most shape.batch.
	encode(windows []*window) error
	// clear zeroes the keys and values of a slot.
	clear(slot int) error
	// prefill feeds positions [from, to) of a job's prompt to its slot, which holds the earlier ones.
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
	// alike reports whether two windows can be encoded in one run at no cost. With mixed set, the windows of one job always share a run,
	// because one larger run is faster than two.
	alike func(a, b *window) bool
	mixed bool
	// interim means that the model writes interim texts only.
	interim bool
}

// loop is the engine's part of the step loop. Between two steps of the answers that decode it encodes sound and feeds prompts: finals go
// before partials, and these before files. Its methods belong to the goroutine of Run, except submit.
type loop struct {
	*step.Loop[*job]

	dev    backend
	shape  shape
	stats  *counters
	now    func() time.Time
	client *step.Client

	batch  []*window
	firsts []*job      // that begin together
	recent []time.Time // arrivals of interim texts, of the last half second
	dirty  []bool      // slots whose last job failed, by slot: what it left may not be numbers
}

func newLoop(dev backend, s shape, o step.Options, stats *counters) (*loop, error) {
	l := &loop{
		dev: dev, shape: s, stats: stats, now: o.Now, client: o.Client,
		batch: make([]*window, 0, s.batch), dirty: make([]bool, s.layout.Slots),
	}
	o.Layout, o.Vocab = s.layout, s.vocab
	var err error
	l.Loop, err = step.New(o, l)
	return l, err
}

// submit queues a job. A final is never refused: an utterance has one at most.
func (l *loop) submit(j *job) error {
	j.out.Init(max(j.Most, len(j.slots)))
	j.Rank = int(j.class)
	err := l.Submit(j)
	if errors.Is(err, inference.ErrOverloaded) {
		l.stats.overloaded.Add(1)
	}
	return err
}

// do runs work of the device.
func (l *loop) do(work func() error) error {
	_, err := l.client.Do(work)
	return err
}

// fileMaxWait is how long a file waits before it goes in turn with the partials, which may never end.
const fileMaxWait = 10 * time.Second

// Intake implements step.Engine.
func (l *loop) Intake() error {
	now := l.now()
	for _, j := range l.Queue {
		if !j.counted && j.class == partial {
			l.recent = append(l.recent, now)
		}
		j.counted = true
		if j.Rank == int(file) && now.Sub(j.Since) >= fileMaxWait {
			j.Rank = int(partial) // it is behind all of these, and before all other files
		}
	}
	l.recent = slices.DeleteFunc(l.recent, func(at time.Time) bool { return now.Sub(at) > recently })
	return nil
}

// Failed implements step.Engine.
func (l *loop) Failed(*job) error { return nil }

// An interim text of a model of its own waits for other engines, for at most interimWait at its beginning and interimPause before a step.
const (
	interimWait  = 50 * time.Millisecond
	interimPause = 10 * time.Millisecond
)

// Due implements step.Engine.
func (l *loop) Due(last time.Time) time.Time {
	if l.shape.interim {
		return last.Add(interimPause)
	}
	return last
}

// The longest pauses of answers that decode because of other work. Steps of many answers take hardly longer than those of few, so it
// is best for files to begin many before the next step. Live speech comes evenly: what comes during a step begins after it, together,
// and the answer to it has eight steps or so to wait for. With 40 ms between them for 64 speakers on an H200 a text came after 270 ms.
const (
	filePause = 40 * time.Millisecond
	livePause = 8 * time.Millisecond
)

// Pause implements step.Engine.
func (l *loop) Pause() time.Duration {
	if l.highest() == file {
		return filePause
	}
	return livePause
}

// highest returns the highest class of the answers that decode.
func (l *loop) highest() class {
	highest := file
	for _, j := range l.Rows {
		if j != nil {
			highest = min(highest, class(j.Rank))
		}
	}
	return highest
}

// Interim texts of many speakers come evenly, each a few milliseconds after the other. One by one they keep the device busy all the time,
// which slows commentary on the same GPU; four together take two thirds of the time. So beside commentary an interim text is due when there
// are four, or after batchDelay times the number of speakers, as counted from the interim texts of the last half second: a single speaker
// hardly waits.
const (
	batchDelay  = 600 * time.Microsecond
	recently    = 500 * time.Millisecond
	batchTarget = 4 // a power of two: a run takes no other number
)

// delay returns how much longer an interim text waits for others, to be encoded and fed with them.
func (l *loop) delay(j *job) time.Duration {
	if j.class != partial || j.Slot >= 0 {
		return 0
	}
	if l.shape.interim {
		return l.client.Delay(step.Run{Due: j.Since.Add(interimWait)})
	}
	n := 0
	for _, o := range l.Queue {
		if o.class == partial {
			n++
		}
	}
	if n >= batchTarget {
		return 0
	}
	return l.client.Delay(step.Run{Due: j.Since.Add(time.Duration(len(l.recent)) * batchDelay)})
}

// Idle implements step.Engine: the loop waits until the next interim text is due.
func (l *loop) Idle() time.Duration {
	for _, j := range l.Queue {
		if left := l.delay(j); left > 0 {
			return left
		}
	}
	return 0
}

// Piece implements step.Engine: one piece of work for the first job that can go on. A further piece is not done for a job below the
// highest class that decodes.
func (l *loop) Piece(left time.Duration, further bool) (bool, error) {
	if further {
		if left <= 0 {
			return false, nil
		}
		if err := l.TakeIn(); err != nil {
			return false, err
		}
	}
	for _, j := range l.Queue {
		switch {
		case further && j.Rank > int(l.highest()):
			return false, nil
		case l.delay(j) > 0:
			continue
		case !j.encoded():
			return true, l.encode(j)
		case j.slots != nil:
			return true, l.align(j)
		case j.Slot < 0 && l.gather(j) > 1:
			if i := slices.IndexFunc(l.firsts, func(o *job) bool { return !o.encoded() }); i >= 0 {
				return true, l.encode(l.firsts[i])
			}
			if r, ok := l.places(); ok {
				return true, l.begin(r)
			}
		}
		if j.Slot >= 0 || l.place(j) {
			return true, l.prefill(j)
		}
	}
	return false, nil
}

// gather collects the jobs that can begin in one run with j, in their order: the jobs of its class whose whole prompts fit. It
// returns their number.
func (l *loop) gather(j *job) int {
	l.firsts = l.firsts[:0]
	longest, most := 0, l.room(j)
	for _, o := range l.Queue[slices.Index(l.Queue, j):] {
		n := len(o.prompt.ids) - 1 // a step feeds the last one
		if o.Rank != j.Rank || o.class != j.class || o.slots != nil || o.Slot >= 0 || o.single || n < 1 || n > l.shape.chunk {
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
		return max(l.Pool.Free()-l.Layout().Slots/4, 0)
	}
	return l.Pool.Free()
}

// place gives a free slot to a job.
func (l *loop) place(j *job) bool {
	if l.room(j) == 0 {
		return false
	}
	slot, _, _ := l.Pool.Take()
	l.occupy(j, slot)
	return true
}

// places gives slots to as many of the collected jobs as there are free neighbours.
func (l *loop) places() (r kvcache.Range, ok bool) {
	size := 1 << (bits.Len(uint(len(l.firsts))) - 1)
	for ; size > 1; size /= 2 {
		if r, ok = l.Pool.TakeRange(size); ok {
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
	l.Hold(j, slot)
	l.stats.busy.Add(1)
}

// begin feeds the prompts of the collected jobs but for their last ids, which the next step feeds. If that fails, each is fed alone.
func (l *loop) begin(r kvcache.Range) error {
	var err error
	for slot := r.Start; slot < r.Start+r.Size && err == nil; slot++ {
		err = l.clean(slot)
	}
	if err == nil {
		err = l.do(func() error { return l.dev.begin(l.firsts, r) })
	}
	if step.Lost(err) {
		return err
	}
	for _, j := range l.firsts {
		n := len(j.prompt.ids) - 1
		if err == nil {
			if failed := l.Pool.Advance(j.Slot, n); failed != nil {
				l.Finish(j, failed)
				continue
			}
			l.stats.prompt.Add(uint64(n))
			j.Filled = n
			l.Decode(j, j.prompt.ids[n])
			continue
		}
		j.single, l.dirty[j.Slot] = true, true
	}
	l.stats.prompts.Add(1)
	clear(l.firsts)
	return nil
}

// clean zeroes a slot if its last job may have left values that are not numbers. Steps overwrite all other values before they read them.
func (l *loop) clean(slot int) error {
	if !l.dirty[slot] {
		return nil
	}
	err := l.dev.clear(slot)
	l.dirty[slot] = err != nil
	return err
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
	for _, o := range l.Queue {
		add(o.windows, false)
	}
	l.stats.windows.Add(uint64(len(l.batch)))
	l.stats.encodes.Add(1)
	return l.Failing(j, l.do(func() error { return l.dev.encode(l.batch) }))
}

func (l *loop) align(j *job) error {
	var classes []int32
	err := l.do(func() (err error) {
		classes, err = l.dev.align(j)
		return err
	})
	if err != nil {
		return l.Failing(j, err)
	}
	for _, c := range classes {
		j.out.Push(c)
	}
	l.Finish(j, nil)
	return nil
}

// prefill feeds the next positions of a prompt and, after the last, chooses the first id.
func (l *loop) prefill(j *job) error {
	if j.Filled == 0 {
		if err := l.clean(j.Slot); err != nil {
			return l.Failing(j, err)
		}
	}
	to := min(j.Filled+l.shape.chunk, len(j.prompt.ids))
	err := l.do(func() error { return l.dev.prefill(j, j.Filled, to) })
	if err == nil {
		err = l.Pool.Advance(j.Slot, to-j.Filled)
	}
	if err != nil {
		return l.Failing(j, err)
	}
	l.stats.prompts.Add(1)
	l.stats.prompt.Add(uint64(to - j.Filled))
	if j.Filled = to; to < len(j.prompt.ids) {
		return nil
	}
	l.Begin(j)
	return nil
}

// Step implements step.Engine.
func (l *loop) Step(r kvcache.Range, tokens, lengths []int32) error {
	l.stats.steps.Add(1)
	l.stats.tokens.Add(uint64(l.Active))
	return l.dev.decode(r, tokens, lengths)
}

// Stepped implements step.Engine.
func (l *loop) Stepped(context.Context) error { return nil }

// Top implements step.Engine.
func (l *loop) Top(slot int) ([]float32, []int64) { return l.dev.top(slot) }

// Logits implements step.Engine.
func (l *loop) Logits(slot int) ([]float32, error) { return l.dev.logits(slot) }

// Push implements step.Engine.
func (l *loop) Push(j *job, id int32, stop bool) {
	if !stop {
		j.out.Push(id)
	}
}

// Ended implements step.Engine.
func (l *loop) Ended(j *job, err error) {
	if j.Slot >= 0 {
		l.dirty[j.Slot] = err != nil
		l.stats.busy.Add(-1)
	}
	l.stats.ended(j.class, err)
	j.out.End(err)
}
