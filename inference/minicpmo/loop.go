package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/sample"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/internal/wake"
)

// stallLimit is the maximum pause of an answer because of other work.
const stallLimit = 30 * time.Millisecond

// stallMargin is subtracted from stallLimit for errors of the estimates: a joining
// room makes the next step longer.
const stallMargin = 3 * time.Millisecond

// restLimit is the maximum pause of answers that the model speaks itself. Their words are shown when they are heard, much later.
const restLimit = 60 * time.Millisecond

// loop owns the device and batches continuously. Each turn decodes every active
// answer in one run, then does as many bounded pieces of other work (a batch of
// images, a chunk of one prompt) as fit into stallLimit or restLimit. The goroutine of run owns
// everything but the inbox.
type loop struct {
	dev     backend
	shape   shape
	now     func() time.Time
	stats   *counters
	workers *workers
	cache   *pictures

	pool    *kvcache.Pool
	weights switcher
	sampler *sample.Sampler
	states  []*sample.State // by slot

	rows    []*cycle // decoding, by slot
	tokens  []int32  // the next token of each slot; -1 for none
	lengths []int32
	kept    [][]int32 // tokens whose states a free slot keeps
	active  int
	hiddens int // active answers with hidden states

	waiting []*cycle // without a slot: urgent ones, then the others, in order of arrival
	filling *cycle   // in a slot, prompt not complete
	behind  bool     // its next chunk did not fit into the last turn
	images  []*image // prepared, not embedded, in order of arrival
	batch   []*image // scratch

	voice  *tts.Talker   // nil without a voice
	stepAt time.Time     // end of the last step of the answers
	took   time.Duration // of that step
	pieces bool          // an answer has completed its first piece, which its reader has not handed over yet

	prefillCost, visionCost cost
	stall                   time.Duration // stallLimit less stallMargin, except in tests

	inbox inbox
}

// inbox is the input of the loop from other goroutines.
type inbox struct {
	mu       sync.Mutex
	cycles   []*cycle
	pictures []*picture
	waiting  int // cycles here and in loop.waiting
	stopped  error
	wake     wake.Signal
}

// cost estimates the duration of n units of work as a line. Its offset is
// measured at warm-up; its slope follows later measurements.
type cost struct{ fixed, each time.Duration }

// lineThrough returns the line through two measurements.
func lineThrough(n1 int, t1 time.Duration, n2 int, t2 time.Duration) cost {
	if n2 <= n1 || t2 <= t1 {
		return cost{fixed: min(t1, t2)}
	}
	each := (t2 - t1) / time.Duration(n2-n1)
	return cost{fixed: max(t1-time.Duration(n1)*each, 0), each: each}
}

func (c *cost) of(n int) time.Duration { return c.fixed + time.Duration(n)*c.each }

// learn moves the slope toward a measurement.
func (c *cost) learn(n int, took time.Duration) {
	if n <= 0 {
		return
	}
	each := max(took-c.fixed, 0) / time.Duration(n)
	if c.each == 0 {
		c.each = each
		return
	}
	c.each += (each - c.each) / 4
}

// fitting returns the number of units that fit into t.
func (c *cost) fitting(t time.Duration, most int) int {
	if c.each <= 0 {
		return most
	}
	return int(min(max((t-c.fixed)/c.each, 1), time.Duration(most)))
}

func newLoop(dev backend, s shape, now func() time.Time, stats *counters) (*loop, error) {
	pool, err := kvcache.NewPool(s.layout)
	if err != nil {
		return nil, err
	}
	n := s.layout.Slots
	l := &loop{
		dev: dev, shape: s, now: now, stats: stats, pool: pool, sampler: sample.New(s.vocab),
		states: make([]*sample.State, n), rows: make([]*cycle, n), tokens: make([]int32, n), lengths: make([]int32, n), kept: make([][]int32, n),
		batch: make([]*image, 0, batchLimit), stall: stallLimit - stallMargin,
	}
	for i := range n {
		l.states[i] = sample.NewState(s.vocab)
		l.tokens[i] = -1
	}
	l.inbox.wake = wake.New()
	return l, nil
}

// submit queues an answer, or returns the reason for refusing it.
func (l *loop) submit(c *cycle, queue int) error {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	if l.inbox.stopped != nil {
		return l.inbox.stopped
	}
	if l.inbox.waiting >= queue && !c.urgent { // a room has one urgent answer at most
		l.stats.overloaded.Add(1)
		return &overloadedError{waiting: l.inbox.waiting}
	}
	l.inbox.waiting++
	l.inbox.cycles = append(l.inbox.cycles, c)
	l.inbox.wake.Set()
	return nil
}

// prepared queues a picture from a worker.
func (l *loop) prepared(p *picture) {
	l.inbox.mu.Lock()
	l.inbox.pictures = append(l.inbox.pictures, p)
	l.inbox.mu.Unlock()
	l.inbox.wake.Set()
}

// run works until ctx ends or the device is lost, then ends every answer. It
// returns nil if ctx ended.
func (l *loop) run(ctx context.Context) error {
	for {
		l.intake()
		select {
		case <-ctx.Done():
			l.stop(ErrClosed)
			return nil
		default:
		}
		worked := false
		var err error
		if l.voice != nil {
			err = l.voice.Intake()
		}
		rest := l.rest()
		if err == nil && l.active > 0 && rest <= 0 {
			worked = true
			select { // so that it tells of something new; the next round takes in the rest
			case <-l.inbox.wake:
			default:
			}
			if err = l.decode(); err == nil && l.pieces {
				err = l.awaitPiece(ctx)
			}
		}
		if err == nil {
			var more bool
			more, err = l.others()
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
		case <-l.pause(rest):
		}
	}
}

// pieceWait is how long the loop waits for a piece on its way. It takes some 50 us; the next step would take 80 times as long.
const pieceWait = 500 * time.Microsecond

// awaitPiece waits for the first piece of an answer, whose reader is about to hand it to the voice.
func (l *loop) awaitPiece(ctx context.Context) error {
	l.pieces = false
	select {
	case <-ctx.Done():
	case <-l.inbox.wake:
	case <-time.After(pieceWait):
	}
	return l.voice.Intake()
}

// pause returns a timer while answers rest, or a voice is far enough ahead to wait.
func (l *loop) pause(rest time.Duration) <-chan time.Time {
	switch {
	case rest > 0:
		return time.After(rest)
	case l.voice != nil && l.voice.Active():
		return time.After(voicePause)
	}
	return nil
}

// rest returns how long the answers may still rest. A voice has the device for itself until its first sound, if no reader waits for their
// words, and no voice for a first piece of them. Later they rest beside its sound for as long as a step takes.
func (l *loop) rest() time.Duration {
	if l.active == 0 || l.voice == nil {
		return 0
	}
	since := l.now().Sub(l.stepAt)
	waits := func(c *cycle) bool { return c != nil && (!c.spoken() || c.count <= c.chunk) }
	switch {
	case l.voice.Opening() && !slices.ContainsFunc(l.rows, waits):
		return restLimit - since
	case l.voice.Sounding():
		return besideSound(l.took) - since
	}
	return 0
}

// besideSound returns how long answers rest after a step while sound is made on the same device. Steps without a pause would make
// the sound of 32 rooms take 1.7 times as long as alone.
func besideSound(step time.Duration) time.Duration { return min(step, stallLimit) }

// limit returns the maximum pause of the answers: restLimit if the model speaks all of them.
func (l *loop) limit() time.Duration {
	if l.voice == nil || slices.ContainsFunc(l.rows, func(c *cycle) bool { return c != nil && !c.spoken() }) {
		return l.stall
	}
	return max(l.stall, restLimit)
}

// voicePause is how often a voice that is ahead is looked after.
const voicePause = 100 * time.Millisecond

// intake takes in new work and ends cancelled answers.
func (l *loop) intake() {
	l.inbox.mu.Lock()
	for _, c := range l.inbox.cycles {
		at := len(l.waiting)
		if c.urgent {
			if i := slices.IndexFunc(l.waiting, func(o *cycle) bool { return !o.urgent }); i >= 0 {
				at = i
			}
		}
		l.waiting = slices.Insert(l.waiting, at, c)
	}
	clear(l.inbox.cycles)
	l.inbox.cycles = l.inbox.cycles[:0]
	for _, p := range l.inbox.pictures {
		l.admit(p)
	}
	clear(l.inbox.pictures)
	l.inbox.pictures = l.inbox.pictures[:0]
	l.inbox.mu.Unlock()

	if l.filling != nil && l.filling.cancelled.Load() {
		c := l.filling
		l.filling = nil
		l.finish(c, errCancelled)
	}
	for _, c := range l.rows {
		if c != nil && c.cancelled.Load() {
			l.finish(c, errCancelled)
		}
	}
	kept := l.waiting[:0]
	now := l.now()
	for _, c := range l.waiting {
		err := c.pictureErr()
		if c.seenAt.IsZero() && c.ready() {
			c.seenAt = now
		}
		if c.cancelled.Load() {
			err = errCancelled
		}
		if err != nil {
			l.left()
			l.close(c, err)
			continue
		}
		kept = append(kept, c)
	}
	clear(l.waiting[len(kept):])
	l.waiting = kept
}

// left removes an answer from the count of waiting ones.
func (l *loop) left() {
	l.inbox.mu.Lock()
	l.inbox.waiting--
	l.inbox.mu.Unlock()
}

// others does work besides decoding and reports whether there was any. It always
// does the first piece, and more while the decoding answers pause no longer than
// the limit.
func (l *loop) others() (bool, error) {
	begin, worked := l.now(), false
	for {
		left := time.Duration(1 << 60)
		if l.active > 0 {
			left = l.limit() - l.weights.step(l.cover().Size) - l.now().Sub(begin)
		}
		did, err := l.piece(left, worked)
		if err != nil || !did {
			return worked, err
		}
		worked = true
		if l.active == 0 {
			return true, nil // new work may go first
		}
	}
}

// piece does one piece of work: the first of a turn in any case, a further one if
// it fits into the time left. The order is: voices that may soon fall silent, voices without sound, pictures that an
// answer waits for, prompts, other pictures. A voice without sound is nearer to its end than a prompt, and
// there are never more of them than answers. Voices that are ahead have the time in which no answer decodes.
func (l *loop) piece(left time.Duration, further bool) (did bool, err error) {
	if l.voice == nil {
		return l.look(left, further)
	}
	for _, h := range []tts.Hurry{tts.FallingVoice, tts.NewVoice} {
		if did, err = l.voice.Work(left, further, h); did || err != nil {
			return did, err
		}
	}
	if did, err = l.look(left, further); did || err != nil || l.active > 0 {
		return did, err
	}
	return l.voice.Work(left, further, tts.AnyVoice)
}

// look does one piece of work with pictures and prompts.
func (l *loop) look(left time.Duration, further bool) (bool, error) {
	most := l.visionCost.fitting(left, l.shape.images)
	fits := func(t time.Duration) bool { return !further || t <= left }
	if !l.behind || further {
		if l.gather(true, most); len(l.batch) > 0 {
			if !fits(l.visionCost.of(len(l.batch))) {
				return false, nil
			}
			return true, l.see()
		}
	}
	if l.filling == nil {
		if err := l.place(); err != nil {
			return false, err
		}
	}
	if c := l.filling; c != nil {
		n := min(len(c.prompt.ids)-c.filled, l.shape.chunk)
		if !further {
			n = min(n, l.chunk(left))
		}
		// Not cut to fit the rest of the turn: even a short run is expensive.
		if l.behind = !fits(l.prefillCost.of(n)); l.behind {
			return false, nil
		}
		return true, l.prefill(c, n)
	}
	l.behind = false
	if further && l.active > 0 {
		return false, nil // one batch per turn for pictures that may never be used
	}
	if l.gather(false, most); len(l.batch) > 0 && fits(l.visionCost.of(len(l.batch))) {
		return true, l.see()
	}
	return false, nil
}

// cover returns the range of all decoding slots. There must be at least one.
func (l *loop) cover() kvcache.Range {
	decoding := func(c *cycle) bool { return c != nil }
	low, high := slices.IndexFunc(l.rows, decoding), len(l.rows)-1
	for l.rows[high] == nil {
		high--
	}
	return l.shape.layout.Cover(low, high)
}

// finish releases an answer's slot and closes it.
func (l *loop) finish(c *cycle, err error) {
	if l.rows[c.slot] == c {
		l.rows[c.slot] = nil
		l.tokens[c.slot] = -1
		l.active--
		if c.hidden {
			l.hiddens--
		}
	}
	e := l.pool.Release(c.slot)
	if l.shape.keeps && e == nil && (err == nil || errors.Is(err, errCancelled)) {
		words := c.prompt.words()
		l.kept[c.slot] = words[:min(c.filled, len(words))]
		e = l.pool.Keep(c.slot, len(l.kept[c.slot]))
	}
	if e != nil {
		err = errors.Join(err, e)
	}
	l.stats.held(l.pool.InUse())
	l.close(c, err)
}

// close ends an answer without a slot.
func (l *loop) close(c *cycle, err error) {
	c.report.Total = l.now().Sub(c.arrived)
	c.report.Tokens = c.count
	c.release()
	l.stats.ended(c, err)
	c.out.End(err)
}

// stop ends every answer and refuses new ones.
func (l *loop) stop(err error) {
	l.inbox.mu.Lock()
	l.inbox.stopped = err
	l.waiting = append(l.waiting, l.inbox.cycles...)
	l.inbox.cycles, l.inbox.pictures, l.inbox.waiting = nil, nil, 0
	l.inbox.mu.Unlock()
	for _, c := range l.waiting {
		l.close(c, err)
	}
	l.waiting = nil
	if c := l.filling; c != nil {
		l.filling = nil
		l.finish(c, err)
	}
	for _, c := range l.rows {
		if c != nil {
			l.finish(c, err)
		}
	}
	l.images = nil
	if l.voice != nil {
		l.voice.Stop(err)
	}
}

// fatal reports whether an error ends the loop.
func fatal(err error) bool { return errors.Is(err, ErrDeviceLost) }

// choose draws the next id of a slot.
func (l *loop) choose(slot int) (int32, error) {
	st := l.states[slot]
	values, ids := l.dev.top(slot)
	id, ok, err := l.sampler.Top(st, values, ids, -1)
	if err == nil && !ok {
		l.stats.wholeRows.Add(1)
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

// next returns the next id of an answer: drawn, or given.
func (l *loop) next(c *cycle) (int32, error) {
	switch {
	case c.forced == nil:
		return l.choose(c.slot)
	case c.count < len(c.forced):
		return c.forced[c.count], nil
	}
	return c.settings.Stop[0], nil
}

// advance draws an answer's next id and sends it, or ends the answer.
func (l *loop) advance(c *cycle, at time.Time) {
	slot := c.slot
	id, err := l.next(c)
	if err != nil {
		l.finish(c, err)
		return
	}
	var hidden []float32
	if c.hidden {
		hidden = l.dev.hidden(slot)
	}
	if c.count == 0 {
		c.report.FirstToken = at.Sub(c.arrived)
	}
	if c.stops(id) {
		if c.hidden { // the last token's state comes with the id that ends the answer
			c.push(id, hidden)
		}
		l.finish(c, nil)
		return
	}
	c.count++
	l.stats.tokens.Add(1)
	st := l.states[slot]
	st.Accept(id)
	if c.chunk > 0 && c.count > c.chunk && (c.count-1)%c.chunk == 0 {
		st.NewChunk()
		l.pieces = l.pieces || c.hidden && l.voice != nil && c.count == c.chunk+1
	}
	c.push(id, hidden)
	if c.count >= c.most || l.pool.Room(slot) == 0 || st.Complete() {
		l.finish(c, nil)
		return
	}
	l.tokens[slot] = id
}
