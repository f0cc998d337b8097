package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/sample"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/step"
)

// toy is a device whose model chooses an id that depends on all earlier ids. It
// stores the input of each slot like the cache, so every error of the loop changes
// an answer. Its runs have the durations measured on an H200, in the bubble's time.
type toy struct {
	t      *testing.T
	layout kvcache.Layout
	cells  [][]int32 // by slot and position; -1 is zeroed
	last   []int32
	store  []int32     // of the beginnings of prompts
	broken atomic.Bool // results are not numbers

	sleep func(time.Duration) // a run
	own   bool                // steps of few are by own kernels, and runs have the work of the host around them
	owner *step.Owner
	steps func(tokens []int32) // called in each step; may be nil

	mu     sync.Mutex
	events []string
	fail   func(event string) error
}

const toyVocab = 50

// Measured: 414 tokens 12.5 ms; one image 4.6 ms, four 11.7.
func toyPrefill(n int) time.Duration {
	return 5500*time.Microsecond + time.Duration(n)*17*time.Microsecond
}

func toySee(n int) time.Duration {
	return []time.Duration{0, 4600e3, 6500e3, 9200e3, 11700e3}[n]
}

func toyCosts() stepCosts {
	us := func(v ...float64) (out []time.Duration) {
		for _, t := range v {
			out = append(out, time.Duration(t*1e3))
		}
		return out
	}
	return stepCosts{us(3950, 4500, 5000, 7020), us(5390, 5450, 5510, 5650, 5800, 6400, 7400)}
}

// ownCosts are the steps with own kernels, which take up to ownRows rows.
func ownCosts() stepCosts {
	return stepCosts{{1900e3, 2100e3, 2400e3, 3110e3}, toyCosts()[1]}
}

const ownRows = 8

// prefilled, seen and stepped are the durations of runs. With own kernels, 128 rooms had p50 and p95 of a cycle of 519 and 930 ms for 25 s,
// when prompts did not wait for the end of answers; these durations gave 513 and 946, without own kernels 579 and 968 instead of 587 and 979.
func (d *toy) prefilled(n int) time.Duration {
	if !d.own {
		return toyPrefill(n)
	}
	return 850*time.Microsecond + max(5700*time.Microsecond+time.Duration(n)*7*time.Microsecond, 4270*time.Microsecond+time.Duration(n)*21340)
}

func (d *toy) seen(n int) time.Duration {
	if !d.own {
		return toySee(n)
	}
	return time.Duration(850e3+300e3*n) + []time.Duration{0, 3550e3, 5320e3, 7600e3, 9930e3}[n]
}

func (d *toy) stepped(set, size int, tokens []int32) time.Duration {
	costs, host := toyCosts(), time.Duration(0)
	if d.own {
		n := 0
		for _, token := range tokens {
			if token >= 0 {
				n++
			}
		}
		costs, host = ownCosts(), time.Duration(30+10*n)*time.Microsecond
		if set == 0 && n <= ownRows {
			size = n
		}
	}
	return costs[set][bits.Len(uint(size-1))] + host
}

func newToy(t *testing.T, slots int) *toy {
	t.Helper()
	d := &toy{t: t, owner: step.NewOwner(time.Now), sleep: time.Sleep, layout: kvcache.Layout{Layers: 1, Slots: slots, KVHeads: 1, MaxLen: 2048, HeadDim: 16, ElemSize: 2}}
	d.cells, d.last = make([][]int32, slots), make([]int32, slots)
	for i := range d.cells {
		d.cells[i] = make([]int32, d.layout.MaxLen)
		d.zero(i)
	}
	return d
}

func (d *toy) zero(slot int) {
	for i := range d.cells[slot] {
		d.cells[slot][i] = -1
	}
}

// toyWords returns the ids of a prompt, with the contents of its pictures.
func toyWords(p *prompt) []int32 {
	out := make([]int32, len(p.ids))
	for i, w := range p.words(len(p.ids)) {
		out[i] = int32(w)
	}
	return out
}

func toyNext(ids []int32) int32 {
	h := uint32(2166136261) // FNV-1a
	for _, id := range ids {
		h = (h ^ uint32(id)) * 16777619
	}
	return int32(h % toyVocab)
}

func (d *toy) event(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := fmt.Sprintf(format, args...)
	d.events = append(d.events, e)
	if d.fail != nil {
		return d.fail(e)
	}
	return nil
}

// log returns the runs so far.
func (d *toy) log() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// failing sets the error of further runs.
func (d *toy) failing(f func(event string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

func (d *toy) warm(context.Context, func(int)) (warmth, error) { return warmth{}, nil }

func (d *toy) clear(slot int) error {
	d.zero(slot)
	return d.event("clear %d", slot)
}

func (d *toy) save(slot int, p kvcache.Piece) error {
	if err := d.event("save %d %d-%d", slot, p.From, p.To); err != nil {
		return err
	}
	require.Equal(d.t, p.To-p.From, copy(d.store[p.Offset/d.layout.PositionBytes():], d.cells[slot][p.From:p.To]))
	return nil
}

func (d *toy) restore(slot, from, to int, p kvcache.Piece) error {
	if err := d.event("restore %d %d-%d", slot, from, to); err != nil {
		return err
	}
	require.True(d.t, from >= p.From && to <= p.To)
	copy(d.cells[slot][from:to], d.store[p.Offset/d.layout.PositionBytes():][from-p.From:])
	return nil
}

func (d *toy) mask(int, *sample.Set) error { return nil }

func (d *toy) prefill(set, slot int, p *prompt, from, to, _ int) error {
	require.Equal(d.t, 1, set, "prompts go through fp16")
	words := toyWords(p)
	require.Equal(d.t, words[:from], d.cells[slot][:from], "slot %d was written to while it was being filled", slot)
	d.sleep(d.prefilled(to - from))
	if err := d.event("prefill %d %d-%d", slot, from, to); err != nil {
		return err
	}
	for i, m := range p.images {
		require.NotNil(d.t, m.embeds, "image %d was not embedded", i)
	}
	copy(d.cells[slot][from:to], words[from:to])
	d.last[slot] = toyNext(d.cells[slot][:to])
	return nil
}

func (d *toy) decode(set int, r kvcache.Range, tokens, lengths []int32, _ bool) error {
	d.sleep(d.stepped(set, r.Size, tokens[r.Start:r.Start+r.Size]))
	if d.steps != nil {
		d.steps(tokens)
	}
	if err := d.event("decode %d+%d", r.Start, r.Size); err != nil {
		return err
	}
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		at := lengths[slot]
		if at < 0 || int(at) >= d.layout.MaxLen {
			require.Fail(d.t, "a position outside the cache is an error of the kernel")
		}
		d.cells[slot][at] = -7 // Written for a slot that does not decode.
		if tokens[slot] >= 0 {
			d.cells[slot][at] = tokens[slot]
			d.last[slot] = toyNext(d.cells[slot][:at+1])
		}
	}
	return nil
}

func (d *toy) top(slot int) ([]float32, []int64) {
	values, ids := make([]float32, toyVocab), make([]int64, toyVocab)
	for i := range toyVocab {
		values[i], ids[i] = -float32(i), (int64(d.last[slot])+int64(i))%toyVocab
	}
	if d.broken.Load() {
		values[0] = float32(math.NaN())
	}
	return values, ids
}

func (d *toy) logits(int) ([]float32, error) { return nil, errors.New("not needed") }
func (d *toy) hidden(int) []float32          { return nil }
func (d *toy) close() error                  { return nil }

func (d *toy) embed(images []*image) error {
	require.LessOrEqual(d.t, len(images), batchLimit)
	for _, m := range images {
		require.Equal(d.t, [2]int{images[0].rows, images[0].cols}, [2]int{m.rows, m.cols}, "a batch is of one grid")
		require.NotNil(d.t, m.patches)
	}
	d.sleep(d.seen(len(images)))
	if err := d.event("see %d", len(images)); err != nil {
		return err
	}
	for _, m := range images {
		m.embeds = []byte{1}
	}
	return nil
}

// rig is a loop on a toy.
type rig struct {
	*loop

	toy  *toy
	stop func()
}

// start runs a loop until stop, inside a bubble.
func start(t *testing.T, slots int) *rig {
	t.Helper()
	d := newToy(t, slots)
	return d.start(t, d.loop(t))
}

// start runs a loop on the device until stop.
func (d *toy) start(t *testing.T, l *loop) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.run(ctx) })
	return &rig{loop: l, toy: d, stop: func() { cancel(); wg.Wait() }}
}

// loop returns a loop on the device, without a store.
func (d *toy) loop(t *testing.T) *loop {
	t.Helper()
	return d.loopWith(t, 0)
}

// loopWith is loop with a store for the beginnings of prompts, of twice the given positions.
func (d *toy) loopWith(t *testing.T, positions int) *loop {
	t.Helper()
	d.store = make([]int32, 2*positions)
	s := shape{
		vocab: toyVocab, layout: d.layout, sets: []string{"int4", "fp16"}, prefillSet: 1, chunk: 512, images: batchLimit,
		prefixes: int64(2*positions) * d.layout.PositionBytes(),
	}
	l, err := newLoop(d, s, step.Options{Now: time.Now, Client: d.owner.Join(step.Commentary), Waiting: 1000}, newCounters(s.sets))
	require.NoError(t, err)
	l.cache, l.workers = newPictures(64), &workers{}
	l.weights.costs = toyCosts()
	if d.own {
		l.weights.start(ownCosts(), ownRows)
	}
	l.prefillCost = lineThrough(32, d.prefilled(32), 512, d.prefilled(512))
	l.visionCost = lineThrough(1, d.seen(1), 4, d.seen(4))
	return l
}

// reply is an answer with the times of its tokens.
type reply struct {
	c     *cycle
	ids   []int32
	times []time.Time
	err   error
	done  chan struct{}
	seen  func(n int) // called with each token; may be nil
}

// ask submits an answer of n tokens for a prompt of that length.
func (r *rig) ask(first int32, prompt, n int, pictures ...*picture) *reply {
	return r.askSeen(nil, first, prompt, n, pictures...)
}

// askSeen is ask for an answer that is spoken, and calls seen with the number of each token.
func (r *rig) askSeen(seen func(n int), first int32, prompt, n int, pictures ...*picture) *reply {
	ids := make([]int32, prompt)
	for i := range ids {
		ids[i] = (first + int32(i)) % toyVocab
	}
	set := sample.Chat()
	set.Greedy, set.RepetitionPenalty = true, 1
	c := &cycle{arrived: time.Now(), pictures: pictures, hidden: seen != nil}
	c.Settings, c.Most, c.Chunk = set, n, voice.ChunkTokens
	c.prompt.ids = ids
	for _, p := range pictures {
		p.wanted.Add(1)
		c.prompt.images = append(c.prompt.images, p.images...)
	}
	return r.answer(c, seen)
}

// answer submits an answer and reads it.
func (r *rig) answer(c *cycle, seen func(n int)) *reply {
	c.out.Init(c.Most)
	out := &reply{c: c, done: make(chan struct{}), seen: seen}
	if out.err = r.submit(c); out.err != nil {
		close(out.done)
		return out
	}
	go func() {
		defer close(out.done)
		for {
			s, ok, ended, err := c.out.Take()
			switch {
			case ok:
				out.ids = append(out.ids, s.id)
				out.times = append(out.times, time.Now())
				if out.seen != nil {
					out.seen(len(out.ids))
				}
			case ended:
				out.err = err
				return
			default:
				<-c.out.Wake()
			}
		}
	}()
	return out
}

func toyAnswer(first int32, prompt, n int) (out []int32) {
	var ids []int32
	for i := range prompt {
		ids = append(ids, (first+int32(i))%toyVocab)
	}
	return toyContinue(ids, n)
}

// toyContinue returns the answer to a prompt.
func toyContinue(ids []int32, n int) (out []int32) {
	for range n {
		next := toyNext(ids)
		ids = append(ids, next)
		out = append(out, next)
	}
	return out
}

// photo returns a prepared picture.
func (r *rig) photo(rows, cols, images int) *picture {
	p := &picture{left: images}
	for range images {
		p.images = append(p.images, &image{rows: rows, cols: cols, patches: []byte{1}, owner: p})
	}
	return p
}

func TestManyRoomsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 64)
		defer r.stop()
		var replies []*reply
		for i := range 100 { // More than slots, of all lengths, over time.
			replies = append(replies, r.ask(int32(i), 1+i*7%900, 1+i%60))
			time.Sleep(time.Duration(i%5) * time.Millisecond)
		}
		for i, p := range replies {
			<-p.done
			require.NoError(t, p.err)
			require.Equal(t, toyAnswer(int32(i), 1+i*7%900, 1+i%60), p.ids)
		}
		require.Zero(t, r.Pool.InUse())
	})
}

// No answer pauses for longer than the limit because of other work.
func TestWordsDoNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 64)
		defer r.stop()
		talking := r.ask(3, 400, 400)
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		var others []*reply
		for i := range 30 {
			photos := []*picture{r.photo(24, 43, 1), r.photo(24, 43, 1), r.photo(30+i%2, 34, 1)}
			others = append(others, r.ask(int32(i), 400+40*i, 20, photos...))
			for _, p := range photos {
				r.ready(p)
			}
			time.Sleep(15 * time.Millisecond)
		}
		<-talking.done
		for _, p := range others {
			<-p.done
			require.NoError(t, p.err)
		}
		require.Equal(t, toyAnswer(3, 400, 400), talking.ids)
		worst := time.Duration(0)
		for _, p := range append(others, talking) {
			for i := range p.times[1:] {
				worst = max(worst, p.times[i+1].Sub(p.times[i]))
			}
		}
		t.Logf("longest stall %v", worst)
		require.LessOrEqual(t, worst, maxPause)
	})
}

func TestOneRoomRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 8)
		defer r.stop()
		var replies []*reply
		for i := range 6 {
			replies = append(replies, r.ask(int32(i), 10, 20+i*40))
		}
		for _, p := range replies[:5] {
			<-p.done
		}
		last := len(r.toy.log())
		<-replies[5].done
		alone := r.toy.log()[last:]
		require.NotEmpty(t, alone)
		for _, e := range alone[1:] {
			require.Equal(t, "decode 5+1", e)
		}
	})
}

func TestCancelledRowIsNotInTheNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newToy(t, 8)
		d.own = true
		l := d.loop(t)
		var mu sync.Mutex
		var steps [][]int32 // their tokens
		var stays, cancelled *reply
		var at, slot int
		d.steps = func(tokens []int32) {
			mu.Lock()
			defer mu.Unlock()
			if steps = append(steps, slices.Clone(tokens)); len(steps) == 20 {
				at, slot = stays.c.Slot, cancelled.c.Slot
				l.Cancel(cancelled.c)
			}
		}
		r := d.start(t, l)
		defer r.stop()
		mu.Lock()
		stays, cancelled = r.ask(1, 10, 40), r.ask(2, 10, 40)
		mu.Unlock()
		<-cancelled.done
		<-stays.done
		require.ErrorIs(t, cancelled.err, step.ErrCancelled)
		require.NoError(t, stays.err)
		require.Equal(t, toyAnswer(1, 10, 40), stays.ids)
		r.stop()
		require.Greater(t, len(steps), 20)
		require.GreaterOrEqual(t, steps[19][slot], int32(0))
		for _, tokens := range steps[20:] {
			require.GreaterOrEqual(t, tokens[at], int32(0))
			require.Equal(t, int32(-1), tokens[slot])
		}
	})
}

func TestWeightsSwitch(t *testing.T) {
	s := switcher{costs: toyCosts()}
	require.Equal(t, 8, s.from())
	for range 10 {
		require.Equal(t, 0, s.choose(4, 4))
	}
	require.Equal(t, 0, s.choose(8, 8), "one step does not change the set")
	require.Equal(t, 0, s.choose(4, 4))
	require.Equal(t, 0, s.choose(8, 8))
	require.Equal(t, 0, s.choose(8, 8))
	require.Equal(t, 1, s.choose(8, 8))
	require.Equal(t, 1, s.choose(64, 64))
	require.Equal(t, 1, s.choose(1, 1))
	require.Equal(t, 1, s.choose(1, 1))
	require.Equal(t, 0, s.choose(1, 1))
	require.Zero(t, (&switcher{}).choose(64, 64))

	s.start(toyCosts(), 0)
	require.Zero(t, s.few, "steps of fp16 take about as long for more rows")
	s.start(ownCosts(), ownRows)
	require.Equal(t, ownRows, s.few)
	require.Equal(t, 0, s.choose(64, 3), "own kernels run few rows in scattered slots")
	require.Equal(t, 1, s.choose(64, 9), "one row more, for which the first set has no graph")
	require.Equal(t, 1, s.choose(64, 3))
	require.Equal(t, 1, s.choose(64, 3))
	require.Equal(t, 0, s.choose(64, 3))
	s.start(ownCosts(), ownRows)
	require.Equal(t, 1, s.choose(16, 16))
	require.Equal(t, 0, s.choose(8, 8), "so few slots have no graph of the other set")
	costs := ownCosts()
	costs[0] = append(costs[0], 6e6, 8e6, 12e6)
	s.start(costs, ownRows)
	require.Equal(t, 0, s.choose(64, 9))
	require.Equal(t, 0, s.choose(64, 9))
	require.Equal(t, 1, s.choose(64, 9), "one row more, for which a graph takes longer")
	s.start(nil, 0)
	require.Zero(t, s.few)

	// Without a graph of the first set for a range, the other set decodes it at once.
	s = switcher{costs: toyCosts()}
	require.Equal(t, 1, s.choose(64, 64))
}

func TestFramesShareRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 8)
		defer r.stop()
		block := r.ask(1, 500, 1) // The loop is busy while the pictures come in.
		synctest.Wait()
		var replies []*reply
		for i := range 6 {
			p := r.photo(24, 43, 1)
			replies = append(replies, r.ask(int32(i), 20, 2, p))
			r.ready(p)
		}
		early, other := r.photo(24, 43, 1), r.photo(30, 34, 3)
		r.ready(other)
		r.ready(early)
		<-block.done
		for _, p := range replies {
			<-p.done
			require.NoError(t, p.err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var seen []string
		for _, e := range r.toy.log() {
			if e[0] == 's' {
				seen = append(seen, e)
			}
		}
		require.Equal(t, []string{"see 4", "see 3", "see 3"}, seen, "six wanted images and one of their grid, then the rest")
		require.Equal(t, pictureDone, early.state)
		require.Equal(t, pictureDone, other.state)
	})
}

// The prompt of the first answer does not wait for the pictures of others, unless they fill a run. A picture alone does not wait.
func TestFirstPromptBeforeOtherPictures(t *testing.T) {
	for _, pictures := range []int{3, 4} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, 8)
			defer r.stop()
			r.ask(1, 500, 1) // the loop is busy while the others come
			synctest.Wait()
			r.ask(1, 100, 1)
			for range pictures {
				p := r.photo(24, 43, 1)
				r.ask(2, 50, 1, p)
				r.ready(p)
			}
			time.Sleep(time.Second)
			alone := r.photo(24, 43, 1)
			last := r.ask(3, 50, 1, alone)
			r.ready(alone)
			<-last.done
			require.Equal(t, toySee(1)+toyPrefill(50), last.c.report.FirstToken)
			see, first := fmt.Sprintf("see %d", pictures), "prefill 0 0-100"
			order := []string{first, see}
			if pictures == batchLimit {
				order = []string{see, first}
			}
			log := slices.DeleteFunc(r.toy.log(), func(e string) bool { return e != see && e != first })
			require.Equal(t, order, log)
		})
	}
}

func TestFailingRuns(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 4)
		defer r.stop()
		prefills := 0
		r.toy.failing(func(event string) error {
			if strings.HasPrefix(event, "prefill") {
				prefills++
			}
			if prefills < 4 {
				return nil // else a later one would get the slot of the one that failed
			}
			switch event { // Slot 1 does not work, and any run that covers it fails.
			case "decode 0+4", "decode 1+1", "decode 0+2":
				return broken
			}
			return nil
		})
		var replies []*reply
		for i := range 4 {
			replies = append(replies, r.ask(int32(i), 10, 30))
		}
		for i, p := range replies {
			<-p.done
			if i == 1 {
				require.ErrorIs(t, p.err, broken)
				continue
			}
			require.NoError(t, p.err)
			require.Equal(t, toyAnswer(int32(i), 10, 30), p.ids)
		}
		bad, good := r.photo(3, 3, 1), r.photo(3, 3, 1)
		alone := 0
		r.toy.failing(func(event string) error { // The first of the two by itself fails again.
			if event == "see 1" {
				alone++
			}
			if event == "see 2" || event == "see 1" && alone == 1 {
				return broken
			}
			return nil
		})
		a, b := r.ask(1, 10, 3, bad), r.ask(2, 10, 3, good)
		r.ready(bad)
		r.ready(good)
		<-a.done
		<-b.done
		require.NotEqual(t, errors.Is(a.err, broken), errors.Is(b.err, broken), "%v, %v", a.err, b.err)
		require.Zero(t, r.Pool.InUse())
	})
}

func TestLostDeviceEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 2)
		defer r.stop()
		r.toy.failing(func(event string) error {
			if len(r.toy.events) > 20 {
				return fmt.Errorf("%s: %w", event, ErrDeviceLost)
			}
			return nil
		})
		var replies []*reply
		for i := range 5 {
			replies = append(replies, r.ask(int32(i), 10, 100))
		}
		for _, p := range replies {
			<-p.done
			require.ErrorIs(t, p.err, ErrDeviceLost)
		}
		require.ErrorIs(t, r.ask(1, 1, 1).err, ErrDeviceLost)
	})
}

// Work of loading waits for the end of usual answers. Beside answers without a break its first piece waits for 0.2 s, others for less, and
// those that need slots get them.
func TestLoadingBesideAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 2)
		defer r.stop()
		took := func(slots int) time.Duration {
			begin, ran := time.Now(), time.Time{}
			require.NoError(t, r.lend(t.Context(), slots, func(_ []int32, got []int) error {
				require.Len(t, got, slots)
				ran = time.Now()
				time.Sleep(10 * time.Millisecond)
				return nil
			}))
			return ran.Sub(begin)
		}
		require.Zero(t, took(2), "nothing else to do")
		usual := r.ask(1, 10, 20)
		require.Less(t, took(1), patience)
		<-usual.done

		long := r.ask(1, 10, 300)
		time.Sleep(50 * time.Millisecond)
		first, second := took(1), took(1)
		require.GreaterOrEqual(t, first, patience)
		require.Less(t, first, patience+30*time.Millisecond)
		require.GreaterOrEqual(t, second, hurry)
		require.Less(t, second, hurry+30*time.Millisecond)
		<-long.done

		var replies []*reply
		for i := range 6 {
			replies = append(replies, r.ask(int32(i), 10, 150+i%2*60))
		}
		took(2)
		select {
		case <-replies[5].done:
			require.Fail(t, "all answers went first")
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience+100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, r.lend(ctx, 3, nil), context.DeadlineExceeded, "there are not so many")
		for _, p := range replies {
			<-p.done
			require.NoError(t, p.err)
		}
	})
}

func TestReportOfWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 1)
		defer r.stop()
		a, b := r.ask(1, 100, 10), r.ask(2, 100, 10)
		<-a.done
		<-b.done
		require.GreaterOrEqual(t, b.c.report.Wait, a.c.report.Total)
		require.Positive(t, b.c.report.Prefill)
		require.Equal(t, 10, b.c.report.Tokens)
		require.GreaterOrEqual(t, b.c.report.FirstToken, b.c.report.Wait)
	})
}

func TestCacheOfPictures(t *testing.T) {
	c := newPictures(3)
	made := 0
	get := func(source uint64, pts int64) (*picture, bool) {
		k := pictureKey{source: source, pts: time.Duration(pts), epoch: 1}
		p, fresh, err := c.get(k, false, func() (*picture, error) {
			made++
			return &picture{key: k, images: make([]*image, 1)}, nil
		})
		require.NoError(t, err)
		return p, fresh
	}
	a, fresh := get(1, 1)
	require.True(t, fresh)
	again, fresh := get(1, 1)
	require.False(t, fresh)
	require.Same(t, a, again)
	_, fresh = get(2, 1)
	require.True(t, fresh, "another room's")
	get(1, 2)
	get(1, 1)
	get(1, 3) // drops the one of room 2, which was not used for the longest time
	require.Equal(t, 3, c.size())
	_, fresh = get(1, 1)
	require.False(t, fresh)
	c.removeSource(1)
	require.Zero(t, c.size())
	require.True(t, a.dropped.Load())
	none := newPictures(0)
	_, fresh, err := none.get(pictureKey{source: 1}, false, func() (*picture, error) { return &picture{}, nil })
	require.NoError(t, err)
	require.True(t, fresh)
	_, _, err = c.get(pictureKey{}, true, func() (*picture, error) { return nil, errPixels })
	require.ErrorIs(t, err, errPixels)
	require.Zero(t, c.size())
}

// While prompts show few of a room's frames, only some are embedded early.
func TestEarlyWorkPays(t *testing.T) {
	s := &Session{}
	took := 0
	for range 400 {
		if s.shouldPrefetch() {
			s.shown.Add(1)
			took++
		}
	}
	require.Less(t, took, 60)
	s.used.Add(30)
	require.True(t, s.shouldPrefetch())
}

// startOwn is start with own kernels.
func startOwn(t *testing.T, slots int) *rig {
	t.Helper()
	d := newToy(t, slots)
	d.own = true
	return d.start(t, d.loop(t))
}

// The rooms that one H200 should serve, with its measured costs: per room a look
// every five seconds at random times, two new frames, 414 tokens in, 40 out.
func TestRoomsKeepUp(t *testing.T) {
	for _, c := range []struct {
		rooms, shared int // tokens of the prompt that are copied
		first, whole  time.Duration
	}{
		{8, 0, 35 * time.Millisecond, 150 * time.Millisecond},
		{64, 0, 75 * time.Millisecond, 310 * time.Millisecond},
		{128, 0, 500 * time.Millisecond, 800 * time.Millisecond},
		{128, 80, 400 * time.Millisecond, 620 * time.Millisecond},
		{192, 160, 550 * time.Millisecond, 1500 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d, %d tokens shared", c.rooms, c.shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startOwn(t, 64)
				defer r.stop()
				rng := rand.New(rand.NewPCG(1, uint64(c.rooms)))
				var replies []*reply
				began := time.Now()
				for time.Since(began) < 60*time.Second {
					time.Sleep(time.Duration(rng.ExpFloat64() / (float64(c.rooms) / 5) * float64(time.Second)))
					a, b := r.photo(24, 43, 1), r.photo(24, 43, 1)
					replies = append(replies, r.ask(int32(len(replies)), 414-c.shared, 40, a, b))
					time.AfterFunc(4*time.Millisecond, func() { r.ready(a) })
					time.AfterFunc(4300*time.Microsecond, func() { r.ready(b) })
				}
				var firsts, totals, gaps []time.Duration
				for _, p := range replies {
					<-p.done
					require.NoError(t, p.err)
					firsts, totals = append(firsts, p.c.report.FirstToken), append(totals, p.c.report.Total)
					for i := range p.times[1:] {
						gaps = append(gaps, p.times[i+1].Sub(p.times[i]))
					}
				}
				quantile := func(ds []time.Duration, q float64) time.Duration {
					slices.Sort(ds)
					return ds[int(q*float64(len(ds)-1))].Round(time.Millisecond)
				}
				t.Logf("%d answers: first token p50 %v p95 %v, whole p50 %v p95 %v; most slots %d, busy %.0f %%", len(replies),
					quantile(firsts, .5), quantile(firsts, .95), quantile(totals, .5), quantile(totals, .95),
					r.stats.read().SlotsMost, 100*r.client.Busy().Seconds()/60)
				require.LessOrEqual(t, quantile(firsts, .95), c.first)
				require.LessOrEqual(t, quantile(totals, .95), c.whole)
				require.LessOrEqual(t, quantile(gaps, 1), spokenPause+10*time.Millisecond)
			})
		})
	}
}

// Beside as many answers as own kernels take, a prompt waits until one of them ends, and maxHold at most. Urgent and spoken ones do not
// wait, nor any one if more come than could be done so.
func TestPromptsWaitForFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startOwn(t, 64)
		defer r.stop()
		r.demand.gaps.add(1) // few answers come
		others := []*reply{r.ask(0, 10, 50)}
		for range ownRows - 1 {
			others = append(others, r.ask(1, 10, 500))
		}
		time.Sleep(100 * time.Millisecond)
		next, last := r.ask(2, 10, 500), r.ask(3, 10, 5)
		urgent := &cycle{urgent: true, arrived: time.Now()}
		urgent.Settings, urgent.Most, urgent.prompt.ids = next.c.Settings, 3, []int32{1}
		now := r.answer(urgent, nil)
		for _, p := range append(others, next, last, now) {
			<-p.done
			require.NoError(t, p.err)
		}
		require.Less(t, now.c.report.FirstToken, maxPause)
		ended := others[0].times[len(others[0].times)-1]
		require.Greater(t, next.times[0], ended)
		require.WithinDuration(t, ended, next.times[0], maxPause)
		require.Greater(t, last.c.report.FirstToken, maxHold)
		require.Less(t, last.c.report.FirstToken, maxHold+maxPause)
		require.Equal(t, toyAnswer(3, 10, 5), last.ids)
	})
	for name, gap := range map[string]float64{"spoken": 1, "too many": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startOwn(t, 64)
				defer r.stop()
				r.demand.gaps.add(gap)
				for range ownRows {
					r.ask(1, 10, 500)
				}
				time.Sleep(100 * time.Millisecond)
				var seen func(int)
				if name == "spoken" {
					seen = func(int) {}
				}
				next := r.askSeen(seen, 2, 10, 5)
				<-next.done
				require.Less(t, next.c.report.FirstToken, maxPause)
			})
		})
	}
}

func TestCancelledPicturesAreNotEmbedded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 2)
		defer r.stop()
		kept, gone := r.photo(3, 3, 1), r.photo(3, 3, 2)
		kept.dropped.Store(true)
		gone.dropped.Store(true)
		a, b := r.ask(1, 10, 3, kept), r.ask(2, 10, 3, kept, gone)
		r.Cancel(b.c)
		<-b.done
		require.ErrorIs(t, b.err, step.ErrCancelled)
		r.ready(gone)
		r.ready(kept)
		<-a.done
		require.NoError(t, a.err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"see 1", "prefill 0 0-10"}, r.toy.log()[:2])
		require.True(t, gone.useless())
	})
}

func TestLoadingReportsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []string
		last := 0
		l := &loading{total: 1000, report: func(percent int, detail string) {
			require.GreaterOrEqual(t, percent, last)
			last = percent
			reports = append(reports, detail)
		}}
		var used int64
		stop := l.watch(func() (int64, error) { used += 200; return used, nil })
		l.stageAt("int4 decoder", 0)
		time.Sleep(time.Second)
		stop()
		l.stageAt("vision tower", 500)
		require.Equal(t, loadingPercent*8/10+1, last+1)
		require.Equal(t, "loading: int4 decoder, 0 bytes of 1000 bytes", reports[0])
		require.Contains(t, reports, "loading: int4 decoder, 600 bytes of 1000 bytes")
		require.Equal(t, "loading: vision tower, 800 bytes of 1000 bytes", reports[len(reports)-1])
	})
}
