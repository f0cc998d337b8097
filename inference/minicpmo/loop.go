package minicpmo

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/inference/step"
)

// maxPause is the maximum pause of an answer because of other work.
const maxPause = 30 * time.Millisecond

// pauseMargin is subtracted from maxPause for errors of the estimates: a joining
// room makes the next step longer.
const pauseMargin = 3 * time.Millisecond

// spokenPause is the maximum pause of answers that the model speaks itself, and of written ones while more work comes than the device can
// do for few at a time. Captions show spoken words with the sound, much later.
const spokenPause = 60 * time.Millisecond

// maxHold is how long prompts wait at most for the end of other answers.
const maxHold = 600 * time.Millisecond

// loop is the engine's part of the step loop. Between two steps it embeds images and feeds prompts, in bounded pieces. The goroutine of
// Run owns everything but prepared.
type loop struct {
	*step.Loop[*cycle]

	dev     backend
	shape   shape
	now     func() time.Time
	stats   *counters
	client  *step.Client
	workers *workers
	cache   *pictures

	weights switcher
	ranAt   time.Time // end of the last run from which ids are chosen

	// The store's parts: what precedes the first picture of prompts, and the rest up to the end of the last; nil without a store.
	systems, looks *kvcache.Prefixes

	filling *cycle   // in a slot, prompt not complete
	crowded bool     // no prompt waits for the end of other answers; until few decode
	behind  bool     // its next chunk did not fit into the last turn
	images  []*image // prepared, not embedded, in order of arrival
	batch   []*image // scratch

	voice     *tts.Talker // nil without a voice
	firstPart bool        // an answer has completed its first piece, which its reader has not handed over yet

	prefillCost, visionCost cost
	demand                  demand
	pause                   time.Duration // maxPause less pauseMargin, except in tests

	tasks   chan task // that lend waits for
	busy    bool      // the last one ran beside answers
	claimed bool      // one has waited long for slots, so that no new answer has them

	prepared struct {
		mu       sync.Mutex
		pictures []*picture
	}
}

func newLoop(dev backend, s shape, o step.Options, stats *counters) (*loop, error) {
	l := &loop{
		dev: dev, shape: s, now: o.Now, stats: stats, client: o.Client,
		batch: make([]*image, 0, batchLimit), pause: maxPause - pauseMargin, tasks: make(chan task, 1),
	}
	if s.prefixes > 0 {
		l.keepPrefixes()
	}
	o.Layout, o.Vocab = s.layout, s.vocab
	o.FailedRun = func() { stats.count(func(s *Stats) { s.FailedRuns++ }) }
	o.WholeRow = func() { stats.count(func(s *Stats) { s.WholeRows++ }) }
	var err error
	l.Loop, err = step.New(o, l)
	return l, err
}

// keepPrefixes begins with an empty store.
func (l *loop) keepPrefixes() {
	n := l.shape.prefixes
	l.systems, l.looks = kvcache.NewPrefixes(l.shape.layout, 0, n/2), kvcache.NewPrefixes(l.shape.layout, n/2, n)
}

// submit queues an answer, or returns the reason for refusing it. A room has one urgent answer at most.
func (l *loop) submit(c *cycle) error {
	if !c.urgent {
		c.Rank = 1
	}
	err := l.Submit(c)
	if errors.Is(err, inference.ErrOverloaded) {
		l.stats.count(func(s *Stats) { s.Overloaded++ })
	}
	return err
}

// task is work of loading for the loop's goroutine.
type task struct {
	slots int // free ones that it needs
	work  func(at []int32, slots []int) error
	since time.Time
	done  chan error
}

// patience is how long a task waits for a turn without answers and other work: a usual answer is shorter, so that none pauses for tasks
// while the device has idle time. Without any, some 80 tasks of a weight set follow each other faster.
const (
	patience = 200 * time.Millisecond
	hurry    = patience / 4
)

// errLater puts a task back, for now.
var errLater = errors.New("later")

// lend runs work with the device between two steps, and some free slots. It may write the given position of each other slot, which the next
// step of the slot overwrites. One goroutine calls it.
func (l *loop) lend(ctx context.Context, slots int, work func(at []int32, slots []int) error) error {
	t := task{slots, work, l.now(), make(chan error, 1)}
	select {
	case l.tasks <- t:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.Wake()
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		select {
		case <-l.tasks: // not begun
			return context.Cause(ctx)
		case err := <-t.done:
			return err
		}
	}
}

// loadWork does a task, if one waits. With beside set, answers or other work wait as well: it must have waited for some time. While slots
// are in use that it needs, it waits for them to become free, and new answers wait for it.
func (l *loop) loadWork(beside bool) (bool, error) {
	var t task
	l.claimed = false
	select {
	case t = <-l.tasks:
	default:
		return false, nil
	}
	least := time.Duration(0)
	if beside && l.busy {
		least = hurry
	} else if beside {
		least = patience
	}
	waited := l.now().Sub(t.since)
	if waited < least || l.Pool.Free() < t.slots {
		l.claimed = waited >= patience
		l.tasks <- t // no other one comes before this one is done
		return false, nil
	}
	var slots []int
	for range t.slots {
		slot, _, _ := l.Pool.Take()
		slots = append(slots, slot)
	}
	at := make([]int32, l.shape.layout.Slots)
	for i := range at {
		at[i] = usual(l.shape.layout)
		if l.Pool.Held(i) && !slices.Contains(slots, i) {
			at[i] = int32(min(l.Pool.Length(i), l.shape.layout.MaxLen-1))
		}
	}
	_, err := l.client.Do(func() error { return t.work(at, slots) })
	for _, slot := range slots {
		err = errors.Join(err, l.Pool.Release(slot))
	}
	if errors.Is(err, errLater) {
		l.claimed = waited >= patience
		l.tasks <- t
		return false, nil
	}
	l.busy = beside
	t.done <- err
	if step.Lost(err) {
		return true, err
	}
	return true, nil
}

// adopt makes the loop use what a weight set that came later is measured to do better, but not within a prompt. If check says how a prompt
// with a copied beginning differs, beginnings are not shared any more.
func (l *loop) adopt(w warmth, prefillSet int, check func() (differs string, err error)) error {
	if l.filling != nil {
		return errLater
	}
	l.weights.start(w.steps, w.ownRows)
	l.stats.count(func(s *Stats) { s.Switch = l.weights.from() })
	if prefillSet == l.shape.prefillSet {
		return nil
	}
	l.shape.prefillSet, l.prefillCost = prefillSet, w.prefill
	if l.systems == nil {
		return nil
	}
	l.keepPrefixes() // without results of another set
	differs, err := check()
	if differs != "" {
		l.systems, l.looks = nil, nil
	}
	return err
}

// ready queues a picture from a worker.
func (l *loop) ready(p *picture) {
	l.prepared.mu.Lock()
	l.prepared.pictures = append(l.prepared.pictures, p)
	l.prepared.mu.Unlock()
	l.Wake()
}

// Intake implements step.Engine.
func (l *loop) Intake() error {
	l.prepared.mu.Lock()
	for _, p := range l.prepared.pictures {
		l.admit(p)
	}
	clear(l.prepared.pictures)
	l.prepared.pictures = l.prepared.pictures[:0]
	l.prepared.mu.Unlock()
	if l.voice != nil {
		return l.voice.Intake()
	}
	return nil
}

// Failed implements step.Engine: an answer ends with the first of its pictures that failed.
func (l *loop) Failed(c *cycle) error {
	if c.seenAt.IsZero() && c.ready() {
		c.seenAt = l.now()
	}
	return c.pictureErr()
}

// Due implements step.Engine. Answers whose words a reader waits for, or a voice for the first piece of them, are due at once. The
// others leave the device to a voice without sound, as long as they may pause.
func (l *loop) Due(last time.Time) time.Time {
	if slices.ContainsFunc(l.Rows, func(c *cycle) bool { return c != nil && (!c.spoken() || c.Count <= c.Chunk) }) {
		return last
	}
	return last.Add(spokenPause)
}

// Pause implements step.Engine. The next step counts as a part of it.
func (l *loop) Pause() time.Duration {
	pause := l.pause
	if l.voice != nil && !some(l.Rows, false) || l.crowded && !some(l.Rows, true) {
		pause = max(pause, spokenPause)
	}
	return pause - l.weights.step(l.Cover().Size, l.Active)
}

// some reports whether some answers are spoken, or are not.
func some(answers []*cycle, spoken bool) bool {
	return slices.ContainsFunc(answers, func(c *cycle) bool { return c != nil && c.spoken() == spoken })
}

// voicePoll is how often a voice that is ahead is looked after.
const voicePoll = 100 * time.Millisecond

// Idle implements step.Engine.
func (l *loop) Idle() time.Duration {
	if l.voice != nil && l.voice.Active() {
		return voicePoll
	}
	return 0
}

// pieceWait is how long the loop waits for a piece on its way. It takes some 50 us; the next step would take 80 times as long.
const pieceWait = 500 * time.Microsecond

// Stepped implements step.Engine: it waits for the first piece of an answer, whose reader is about to hand it to the voice.
func (l *loop) Stepped(ctx context.Context) error {
	if !l.firstPart {
		return nil
	}
	l.firstPart = false
	l.Await(ctx, pieceWait)
	return l.voice.Intake()
}

// Piece implements step.Engine. The order is: voices that may soon fall silent or have no sound, pictures that an answer waits for,
// unless they do not fill a run and the first answer has its own, prompts, other pictures. A voice without sound is nearer to its end than
// a prompt, and there are never more of them than answers. Voices that are ahead have the time in which no answer decodes.
func (l *loop) Piece(left time.Duration, further bool) (bool, error) {
	if further {
		return l.piece(left, further)
	}
	if did, err := l.loadWork(true); did || err != nil {
		return did, err
	}
	if did, err := l.piece(left, further); did || err != nil || l.Active > 0 {
		return did, err
	}
	return l.loadWork(false)
}

func (l *loop) piece(left time.Duration, further bool) (bool, error) {
	if l.voice == nil {
		return l.prepareWork(left, further)
	}
	if further { // a first piece may have come
		if err := l.voice.Intake(); err != nil {
			return false, err
		}
	}
	if did, err := l.voice.Work(left, further, true); did || err != nil {
		return did, err
	}
	if did, err := l.prepareWork(left, further); did || err != nil || l.Active > 0 {
		return did, err
	}
	return l.voice.Work(left, further, false)
}

// holds reports whether prompts and pictures wait until an answer ends. Steps of few answers take so much less time that those who wait end
// sooner too, unless more work comes than the device can do for few at a time. Urgent and spoken answers do not wait, and none waits for
// spoken ones.
func (l *loop) holds() bool {
	few := l.weights.few
	if few == 0 || l.Active < few {
		l.crowded = false
		return false
	}
	if len(l.Queue) == 0 || l.Queue[0].urgent || l.filling != nil || some(l.Queue, true) || some(l.Rows, true) {
		return false
	}
	step := l.weights.least(few) / time.Duration(few)
	l.crowded = l.crowded || l.demand.exceeds(step) || l.now().Sub(l.Queue[0].Since) > maxHold
	return !l.crowded
}

// prepareWork does one piece of work with pictures and prompts.
func (l *loop) prepareWork(left time.Duration, further bool) (bool, error) {
	if l.holds() {
		return false, nil
	}
	most := l.visionCost.fitting(left, l.shape.images)
	fits := func(t time.Duration) bool { return !further || t <= left }
	if !l.behind || further {
		// The first answer's prompt does not wait for other rooms' pictures, which meanwhile become more for one run.
		first := len(l.Queue) > 0 && l.Queue[0].ready()
		if l.gather(true, most); len(l.batch) > 0 && (!first || len(l.batch) == l.shape.images) {
			if !fits(l.visionCost.of(len(l.batch))) {
				return false, nil
			}
			return true, l.encodeImages()
		}
	}
	if l.filling == nil {
		if err := l.place(); err != nil {
			return false, err
		}
	}
	if c := l.filling; c != nil {
		n := min(len(c.prompt.ids)-c.Filled, l.shape.chunk)
		if !further {
			n = min(n, l.chunk(left))
		}
		// With further set, the run is not shortened to fit the rest of the turn: even a short run is expensive.
		if l.behind = !fits(l.prefillCost.of(n)); l.behind {
			return false, nil
		}
		return true, l.prefill(c, n)
	}
	l.behind = false
	if further && l.Active > 0 {
		return false, nil // one batch per turn for pictures that may never be used
	}
	if l.gather(false, most); len(l.batch) > 0 && fits(l.visionCost.of(len(l.batch))) {
		return true, l.encodeImages()
	}
	return false, nil
}

// Step implements step.Engine.
func (l *loop) Step(r kvcache.Range, tokens, lengths []int32) error {
	set, begin := l.weights.choose(r.Size, l.Active), l.now()
	hidden := slices.ContainsFunc(l.Rows, func(c *cycle) bool { return c != nil && c.hidden })
	if err := l.dev.decode(set, r, tokens, lengths, hidden); err != nil {
		return err
	}
	l.ranAt = l.now()
	l.stats.step(l.Active, set, l.ranAt.Sub(begin))
	return nil
}

// Top implements step.Engine.
func (l *loop) Top(slot int) ([]float32, []int64) { return l.dev.top(slot) }

// Logits implements step.Engine.
func (l *loop) Logits(slot int) ([]float32, error) { return l.dev.logits(slot) }

// Push implements step.Engine. With states, the last one comes with the id that ends the answer.
func (l *loop) Push(c *cycle, id int32, stop bool) {
	if c.Count == 0 || c.Count == 1 && !stop {
		c.report.FirstToken = l.ranAt.Sub(c.arrived)
	} else {
		l.stats.count(func(s *Stats) { s.Gap.took(l.ranAt.Sub(c.lastStep)) })
	}
	c.lastStep = l.ranAt
	var hidden []float32
	if c.hidden {
		hidden = l.dev.hidden(c.Slot)
	}
	if stop {
		if c.hidden {
			c.push(id, hidden)
		}
		return
	}
	l.stats.count(func(s *Stats) { s.Tokens++ })
	l.firstPart = l.firstPart || l.voice != nil && c.spoken() && c.Count == c.Chunk+1
	c.push(id, hidden)
}

// Ended implements step.Engine.
func (l *loop) Ended(c *cycle, err error) {
	if l.filling == c {
		l.filling = nil
	}
	c.failed = err != nil && !errors.Is(err, step.ErrCancelled)
	l.stats.held(l.Pool.InUse())
	c.report.Total = l.now().Sub(c.arrived)
	c.report.Tokens = c.Count
	if c.Count > c.given {
		l.demand.tokens.add(float64(c.Count))
	}
	c.release()
	l.stats.ended(c, err)
	c.out.End(err)
}

// run works until ctx ends or the device is lost, then ends every answer and turn.
func (l *loop) run(ctx context.Context) error {
	err := l.Run(ctx, ErrClosed)
	l.images = nil
	if l.voice != nil {
		l.voice.Stop(cmp.Or(err, ErrClosed))
	}
	return err
}
