package step_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/inference/step"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer counts from its first id on.
type answer struct {
	step.Answer

	first int32
	ids   []int32
	times []time.Time
	err   error
	ended chan struct{}
}

// engine is a device that answers n+1 to n. Its runs take time.
type engine struct {
	*step.Loop[*answer]

	client *step.Client
	next   map[int]int32
	steps  time.Duration // of a step
	prompt time.Duration
	pause  time.Duration // of the answers, at most

	mu   sync.Mutex
	fail func(what string, slot, size int) error
}

func (e *engine) failing(f func(what string, slot, size int) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = f
}

func (e *engine) run(what string, slot, size int, took time.Duration) error {
	time.Sleep(took)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail == nil {
		return nil
	}
	return e.fail(what, slot, size)
}

func (e *engine) Intake() error                { return nil }
func (e *engine) Failed(*answer) error         { return nil }
func (e *engine) Due(last time.Time) time.Time { return last.Add(e.pause) }
func (e *engine) Pause() time.Duration         { return e.pause }
func (e *engine) Idle() time.Duration          { return 0 }

func (e *engine) Piece(left time.Duration, further bool) (bool, error) {
	if len(e.Queue) == 0 || further && left < e.prompt {
		return false, nil
	}
	a := e.Queue[0]
	slot, _, ok := e.Pool.Take()
	if !ok {
		return false, nil
	}
	e.Hold(a, slot)
	_, err := e.client.Do(func() error { return e.run("prompt", slot, 1, e.prompt) })
	if err == nil {
		err = e.Pool.Advance(slot, 1)
	}
	if err != nil {
		return true, e.Failing(a, err)
	}
	e.next[slot] = a.first
	e.Begin(a)
	return true, nil
}

func (e *engine) Step(r kvcache.Range, tokens, _ []int32) error {
	if err := e.run("step", r.Start, r.Size, e.steps); err != nil {
		return err
	}
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if tokens[slot] >= 0 {
			e.next[slot] = tokens[slot] + 1
		}
	}
	return nil
}

func (e *engine) Stepped(context.Context) error { return nil }

func (e *engine) Top(slot int) ([]float32, []int64) {
	return []float32{1, 0}, []int64{int64(e.next[slot]), 0}
}

func (e *engine) Logits(int) ([]float32, error) { return nil, errors.New("no logits") }

func (e *engine) Push(a *answer, id int32, stop bool) {
	if !stop {
		a.ids, a.times = append(a.ids, id), append(a.times, time.Now())
	}
}

func (e *engine) Ended(a *answer, err error) {
	a.err = err
	close(a.ended)
}

// start runs a loop of some slots until stop.
func start(t *testing.T, o *step.Owner, p step.Priority, slots int) (e *engine, stop func() error) {
	t.Helper()
	e = &engine{client: o.Join(p), next: map[int]int32{}, steps: 5 * ms, prompt: 8 * ms, pause: 30 * ms}
	var err error
	e.Loop, err = step.New(step.Options{
		Layout: kvcache.Layout{Layers: 1, Slots: slots, KVHeads: 1, MaxLen: 1024, HeadDim: 1, ElemSize: 4},
		Vocab:  1000, Now: time.Now, Client: e.client, Waiting: 3,
	}, e)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, inference.ErrOverloaded) }()
	return e, func() error { cancel(); return <-ended }
}

// ask submits an answer of n ids.
func (e *engine) ask(rank, first, n int) *answer {
	a := &answer{first: int32(first), ended: make(chan struct{})}
	a.Rank, a.Most = rank, n
	a.Settings = sample.Settings{Greedy: true, TopP: 1, RepetitionPenalty: 1, Stop: []int32{999}}
	if err := e.Submit(a); err != nil {
		a.err = err
		close(a.ended)
	}
	return a
}

func (a *answer) wait(t *testing.T) error {
	t.Helper()
	<-a.ended
	if a.err == nil {
		for i, id := range a.ids {
			require.Equal(t, a.first+int32(i), id)
		}
	}
	return a.err
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, stop := start(t, step.NewOwner(time.Now), step.Commentary, 2)
		var all []*answer
		for i := range 5 { // two in slots, three wait
			all = append(all, e.ask(1, 10*i, 20))
			time.Sleep(10 * ms)
		}
		require.Equal(t, 3, e.Waiting())
		require.ErrorIs(t, e.ask(1, 0, 1).err, inference.ErrOverloaded)
		urgent := e.ask(0, 500, 3)
		cancelled, held := all[3], all[0]
		e.Cancel(cancelled, held)
		require.NoError(t, urgent.wait(t))
		require.ErrorIs(t, cancelled.wait(t), step.ErrCancelled)
		require.ErrorIs(t, held.wait(t), step.ErrCancelled)
		for _, i := range []int{1, 2, 4} {
			require.NoError(t, all[i].wait(t))
			require.Len(t, all[i].ids, 20)
		}
		require.True(t, urgent.times[0].Before(all[4].times[0]), "rank 0 goes first")
		stopped := e.ask(1, 990, 100)
		require.NoError(t, stopped.wait(t))
		require.Len(t, stopped.ids, 9, "until the id that ends it")
		rest := e.ask(1, 0, 900)
		time.Sleep(50 * ms)
		require.NoError(t, stop())
		require.ErrorIs(t, rest.wait(t), inference.ErrOverloaded, "the reason of the end")
		require.ErrorIs(t, e.ask(0, 0, 1).err, inference.ErrOverloaded)
		require.Zero(t, e.Pool.InUse())
	})
}

// TestLoopFailures: a run that fails is repeated for each answer alone, and only what fails again ends; the loss of the device ends all.
func TestLoopFailures(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		e, stop := start(t, step.NewOwner(time.Now), step.Commentary, 4)
		a, b, c := e.ask(1, 0, 30), e.ask(1, 100, 30), e.ask(1, 200, 30)
		time.Sleep(60 * ms)
		e.failing(func(what string, slot, size int) error {
			if what == "step" && slot <= 1 && slot+size > 1 {
				return broken
			}
			return nil
		})
		require.NoError(t, a.wait(t))
		require.ErrorIs(t, b.wait(t), broken)
		require.NoError(t, c.wait(t))
		require.Zero(t, e.Pool.InUse())
		e.failing(func(what string, _, _ int) error {
			if what == "prompt" {
				return broken
			}
			return nil
		})
		require.ErrorIs(t, e.ask(1, 0, 1).wait(t), broken)
		e.failing(nil)
		require.NoError(t, e.ask(1, 0, 1).wait(t))
		e.failing(func(string, int, int) error { return fmt.Errorf("run: %w", ort.ErrDeviceLost) })
		require.ErrorIs(t, e.ask(1, 0, 1).wait(t), ort.ErrDeviceLost)
		require.ErrorIs(t, e.ask(1, 0, 1).err, ort.ErrDeviceLost)
		require.ErrorIs(t, stop(), ort.ErrDeviceLost)
	})
}

// TestLoopsCompete has words, ears and a voice on one GPU, with more work than each alone could do. Words pause no longer than they may,
// although prompts come all the time and the voice works beside them; the text of the ears comes too.
func TestLoopsCompete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := step.NewOwner(time.Now)
		words, stopWords := start(t, owner, step.Commentary, 8)
		ears, stopEars := start(t, owner, step.Recognition, 8)
		voice := owner.Join(step.Commentary)
		over, voiced := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(voiced)
			for {
				select {
				case <-over:
					return
				default:
				}
				voice.Post(time.Now())
				_, _ = voice.Do(func() error { time.Sleep(20 * ms); return nil })
			}
		}()
		long := words.ask(1, 0, 900)
		var asked, heard []*answer
		for range 100 {
			asked, heard = append(asked, words.ask(1, 100, 20)), append(heard, ears.ask(1, 200, 8))
			time.Sleep(40 * ms)
		}
		for _, a := range slices.Concat(asked, heard) {
			if err := a.wait(t); err != nil {
				require.ErrorIs(t, err, inference.ErrOverloaded)
			}
		}
		close(over)
		<-voiced
		words.Cancel(long)
		require.ErrorIs(t, long.wait(t), step.ErrCancelled)
		var worst time.Duration
		for i := range long.times[1:] {
			worst = max(worst, long.times[i+1].Sub(long.times[i]))
		}
		t.Logf("%d words, longest pause %v; busy: words %v, ears %v, voice %v", len(long.ids), worst,
			words.client.Busy(), ears.client.Busy(), voice.Busy())
		require.LessOrEqual(t, worst, words.pause+words.steps+words.prompt)
		served := func(all []*answer) (n int) {
			for _, a := range all {
				if a.err == nil {
					n++
				}
			}
			return n
		}
		require.Greater(t, served(asked), 40)
		require.Greater(t, served(heard), 90)
		require.NoError(t, stopWords())
		require.NoError(t, stopEars())
	})
}
