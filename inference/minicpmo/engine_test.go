//go:build integration

package minicpmo_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/conformance/synth"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/models"
	"touchline/models/convert"
	"touchline/models/nano"
)

var (
	cycles = flag.Int("cycles", 160, "answers of TestManyShortAnswers; 10000 is the whole")
	loads  = flag.Int("loads", 4, "engines of TestLoadingBesideCaptures; 50 is the whole")
)

// patience is the limit of waits that normally take milliseconds.
const patience = 2 * time.Minute

func openWith(tb testing.TB, o minicpmo.Options) *minicpmo.Engine {
	tb.Helper()
	o.Threads = 1
	e, err := minicpmo.Open(tb.Context(), tiny(tb), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.Close()) })
	return e
}

// askAll runs requests in parallel.
func askAll(tb testing.TB, e *minicpmo.Engine, rs []minicpmo.Request) [][]int32 {
	tb.Helper()
	out := make([][]int32, len(rs))
	errs := make([]error, len(rs))
	var wg sync.WaitGroup
	for i, r := range rs {
		wg.Go(func() { out[i], _, errs[i] = ask(tb, e, r) })
	}
	wg.Wait()
	require.NoError(tb, errors.Join(errs...))
	return out
}

func questions(tb testing.TB, e *minicpmo.Engine, n, most int) (rs []minicpmo.Request) {
	tb.Helper()
	names := []string{"320x240.png", "640x360.png"}
	for i := range n {
		rs = append(rs, chat(tb, e, fmt.Sprintf("Question %d: what is it?", i), most, frame(tb, names[i%2], time.Duration(i))))
	}
	return rs
}

func TestAloneAndTogether(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	rs := questions(t, e, 8, 30)
	var alone [][]int32
	for _, r := range rs {
		ids, _, err := ask(t, e, r)
		require.NoError(t, err)
		alone = append(alone, ids)
	}
	for range 3 {
		require.Equal(t, alone, askAll(t, e, rs))
	}
	s := e.Stats()
	require.Zero(t, s.Slots)
	require.EqualValues(t, 32, s.Done)
	require.Greater(t, s.SlotsMost, 1)
}

// A prompt is fed in chunks, with decode steps of the neighbouring slots between
// them. The answers are the same as without other requests.
func TestChunksBetweenSteps(t *testing.T) {
	orttest.NoLeaks(t)
	var mu sync.Mutex
	var events []string
	log := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, s)
	}
	f := &minicpmo.Faults{
		Prefill: func(slot, _, _ int) error { log(fmt.Sprintf("p%d", slot)); return nil },
		Decode:  func(start, size int) error { log(fmt.Sprintf("d%d+%d", start, size)); return nil },
	}
	c := settings(t)
	c.MiniCPM.MaxLen, c.MiniCPM.PrefixCache = 4096, 0 // the second prompt of slot 1 is fed too
	o := minicpmo.Options{Config: c}
	e := openWith(t, o.WithFaults(f).WithChunk(16))
	rs := questions(t, e, 3, 4000)
	for i := range rs {
		rs[i].Rules.Stop = nil // They run until they are cancelled.
	}
	var wg sync.WaitGroup
	// begin starts an answer and returns once it has its first token.
	begin := func(r minicpmo.Request, keep *[]int32) (cancel func()) {
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan struct{})
		wg.Go(func() {
			n := 0
			for tok, err := range e.Answer(ctx, r) {
				if n++; n == 1 {
					close(first)
				}
				if err == nil && tok.ID >= 0 {
					*keep = append(*keep, tok.ID)
				}
			}
		})
		<-first
		return cancel
	}
	// Slots 0, 1 and 2 in that order; then 1 is freed and taken again.
	var out [3][]int32
	var none []int32
	end0 := begin(rs[0], &out[0])
	end1 := begin(rs[1], &none)
	end2 := begin(rs[2], &out[2])
	end1()
	require.Eventually(t, func() bool { return e.Stats().Slots == 2 }, patience, time.Millisecond)
	short := rs[1]
	short.MaxTokens = 12
	ids, _, err := ask(t, e, short)
	require.NoError(t, err)
	out[1] = ids
	end0()
	end2()
	wg.Wait()
	require.Eventually(t, func() bool { return e.Stats().Slots == 0 }, patience, time.Millisecond)
	for i, r := range rs {
		r.MaxTokens = len(out[i])
		alone, _, err := ask(t, e, r)
		require.NoError(t, err)
		require.Equal(t, alone, out[i])
	}

	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(events, " ")
	require.Contains(t, all, "p1 d0+4 p1 d0+4 p1", "no steps between the pieces of slot 1 while 0 and 2 decoded")
}

func TestCancel(t *testing.T) {
	orttest.NoLeaks(t)
	var steps atomic.Int64
	gate := make(chan struct{})
	f := &minicpmo.Faults{Decode: func(int, int) error {
		steps.Add(1)
		<-gate
		return nil
	}}
	o := minicpmo.Options{Config: settings(t)}
	e := openWith(t, o.WithFaults(f))
	r := questions(t, e, 1, 300)[0]
	r.Rules.Stop = nil
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	for _, err := range e.Answer(ctx, r) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		if n++; n == 3 {
			cancel()
		} else {
			gate <- struct{}{}
		}
	}
	close(gate)
	require.Eventually(t, func() bool { return e.Stats().Cancelled == 1 && e.Stats().Slots == 0 }, patience, time.Millisecond)
	require.LessOrEqual(t, steps.Load(), int64(4), "more than one token after the cancellation")
	cancel()

	// Leaving the sequence cancels too.
	before := steps.Load()
	for _, err := range e.Answer(t.Context(), r) {
		require.NoError(t, err)
		break
	}
	require.Eventually(t, func() bool { return e.Stats().Cancelled == 2 && e.Stats().Slots == 0 }, patience, time.Millisecond)
	require.Less(t, steps.Load()-before, int64(200))
	_, _, err := ask(t, e, questions(t, e, 1, 3)[0])
	require.NoError(t, err)
}

func TestCaps(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.MaxLen = 128
	e := open(t, tiny(t), c)
	r := questions(t, e, 1, 5)[0]
	r.Rules.Stop = nil
	ids, _, err := ask(t, e, r)
	require.NoError(t, err)
	require.Len(t, ids, 5)
	// The cache limits the answer. The last token needs no position in it.
	r.MaxTokens = 1000
	ids, _, err = ask(t, e, r)
	require.NoError(t, err)
	require.Len(t, ids, 128-len(r.Prompt.IDs)+1)
	require.Zero(t, e.Stats().Slots)
}

func TestRefusedBeforeTheDevice(t *testing.T) {
	orttest.NoLeaks(t)
	var runs atomic.Int64
	f := &minicpmo.Faults{
		Prefill: func(int, int, int) error { runs.Add(1); return nil },
		See:     func(int) error { runs.Add(1); return nil },
	}
	c := settings(t)
	c.MiniCPM.MaxLen = 128
	o := minicpmo.Options{Config: c}
	e := openWith(t, o.WithFaults(f))
	small := frame(t, "320x240.png", 1)
	s, err := e.NewSession()
	require.NoError(t, err)
	fail := func(p inference.Prompt) error {
		for _, err := range s.Generate(t.Context(), p) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	var long *inference.TooLongError
	require.ErrorAs(t, fail(inference.Prompt{Text: strings.Repeat("long ", 200), Frames: []inference.Frame{small}}), &long)
	require.Equal(t, 127, long.Max)
	require.ErrorAs(t, fail(inference.Prompt{Text: "x", Frames: []inference.Frame{small, small, small}, Speech: true}), &long)
	require.ErrorContains(t, fail(inference.Prompt{Text: " "}), "a frame or a text")
	var bad *minicpmo.ImageError
	require.ErrorAs(t, fail(inference.Prompt{Text: "x", Frames: []inference.Frame{{Width: 3, Height: 3, Pix: make([]byte, 5)}}}), &bad)
	require.ErrorAs(t, fail(inference.Prompt{Text: "x", Frames: []inference.Frame{{Width: 0, Height: 3}}}), &bad)
	require.ErrorAs(t, fail(inference.Prompt{Text: "x", Frames: []inference.Frame{{Width: 1 << 30, Height: 1 << 30}}}), &bad)
	r := chat(t, e, "x", 5, small)
	r.Frames = nil
	_, _, err = ask(t, e, r)
	require.ErrorContains(t, err, "places for 0 images")
	require.Zero(t, runs.Load())
	require.NoError(t, s.Close())
	require.ErrorIs(t, fail(inference.Prompt{Text: "x", Frames: []inference.Frame{small}}), minicpmo.ErrClosed)
}

func TestOddPictures(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MaxSlices = 2
	e := open(t, tiny(t), c)
	for _, tt := range []struct{ w, h int }{{1, 1}, {10000, 10000}, {1, 700}, {3000, 1}} {
		t.Run(fmt.Sprintf("%dx%d", tt.w, tt.h), func(t *testing.T) {
			s, err := e.NewSession()
			require.NoError(t, err)
			defer s.Close()
			f := inference.Frame{Width: tt.w, Height: tt.h, Pix: make([]byte, tt.w*tt.h*3)}
			n := 0
			for _, err := range s.Generate(t.Context(), inference.Prompt{Text: "x", Frames: []inference.Frame{f}, MaxTokens: 4}) {
				if bad, ok := errors.AsType[*minicpmo.ImageError](err); ok {
					t.Logf("refused: %v", bad)
					break
				}
				require.NoError(t, err)
				n++
			}
		})
	}
}

func TestQueue(t *testing.T) {
	orttest.NoLeaks(t)
	gate := make(chan struct{})
	f := &minicpmo.Faults{Prefill: func(int, int, int) error { <-gate; return nil }}
	c := settings(t)
	c.MiniCPM.Slots, c.MiniCPM.Queue = 1, 2
	o := minicpmo.Options{Config: c}
	e := openWith(t, o.WithFaults(f))
	rs := questions(t, e, 4, 3)
	var wg sync.WaitGroup
	reports := make([]minicpmo.Report, 3)
	for i := range 3 {
		rs[i].Report = func(r minicpmo.Report) { reports[i] = r }
		wg.Go(func() {
			_, _, err := ask(t, e, rs[i])
			require.NoError(t, err)
		})
		if i == 0 {
			require.Eventually(t, func() bool { return e.Stats().Slots == 1 }, patience, time.Millisecond)
		}
	}
	require.Eventually(t, func() bool { return e.Stats().Waiting == 2 }, patience, time.Millisecond)
	_, _, err := ask(t, e, rs[3])
	require.ErrorIs(t, err, inference.ErrOverloaded)
	require.ErrorContains(t, err, "2 answers wait")
	close(gate)
	wg.Wait()
	require.EqualValues(t, 1, e.Stats().Overloaded)
	require.EqualValues(t, 3, e.Stats().Wait.Count)
	for _, r := range reports {
		require.Positive(t, r.Total)
		require.GreaterOrEqual(t, r.FirstToken, r.Wait)
	}
}

// TestUrgent: an urgent answer gets the next slot, also when the queue is full.
func TestUrgent(t *testing.T) {
	orttest.NoLeaks(t)
	gate := make(chan struct{})
	var order, lengths []int // of the prompts
	f := &minicpmo.Faults{Prefill: func(_, _, to int) error {
		<-gate
		order = append(order, to)
		return nil
	}}
	c := settings(t)
	c.MiniCPM.Slots, c.MiniCPM.Queue = 1, 1
	e := openWith(t, minicpmo.Options{Config: c}.WithFaults(f))
	var rs []minicpmo.Request // without pictures, which an answer waits for
	for i := range 3 {
		rs = append(rs, chat(t, e, "What is it?"+strings.Repeat(" Where?", i), 3))
		lengths = append(lengths, len(rs[i].Prompt.IDs))
	}
	rs[2].Urgent = true
	var wg sync.WaitGroup
	for i, waiting := range []int{0, 1, 2} {
		wg.Go(func() {
			_, _, err := ask(t, e, rs[i])
			require.NoError(t, err)
		})
		require.Eventually(t, func() bool { return e.Stats().Slots == 1 && e.Stats().Waiting == waiting }, patience, time.Millisecond)
	}
	close(gate)
	wg.Wait()
	require.Equal(t, []int{lengths[0], lengths[2], lengths[1]}, order)
}

func TestOneFailsAlone(t *testing.T) {
	orttest.NoLeaks(t)
	broken := errors.New("this run failed")
	for _, tt := range []struct {
		name  string
		fault func(f *minicpmo.Faults, victim int)
		want  error
	}{
		{"NaN", func(f *minicpmo.Faults, victim int) { f.NaN = func(slot int) bool { return slot == victim } }, minicpmo.ErrNotFinite},
		{"NaN embeddings", func(f *minicpmo.Faults, victim int) {
			var poisoned atomic.Bool // Only once: the next answer in the slot must succeed.
			f.Poison = func(slot int) bool { return slot == victim && poisoned.CompareAndSwap(false, true) }
		}, minicpmo.ErrNotFinite},
		{"decode", func(f *minicpmo.Faults, victim int) {
			f.Decode = func(start, size int) error {
				if start <= victim && victim < start+size {
					return broken
				}
				return nil
			}
		}, broken},
		{"prefill", func(f *minicpmo.Faults, victim int) {
			f.Prefill = func(slot, _, _ int) error {
				if slot == victim {
					return fmt.Errorf("feed: %w", minicpmo.ErrOutOfMemory)
				}
				return nil
			}
		}, minicpmo.ErrOutOfMemory},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &minicpmo.Faults{}
			o := minicpmo.Options{Config: settings(t)}
			if tt.name == "NaN embeddings" {
				o.Config.MiniCPM.PrefixCache = 0 // all embeddings are fed
			}
			e := openWith(t, o.WithFaults(f))
			rs := questions(t, e, 6, 20)
			var alone [][]int32
			for _, r := range rs {
				ids, _, err := ask(t, e, r)
				require.NoError(t, err)
				alone = append(alone, ids)
			}
			tt.fault(f, 2)
			var wg sync.WaitGroup
			var failed atomic.Int64
			for i, r := range rs {
				wg.Go(func() {
					ids, _, err := ask(t, e, r)
					if err != nil {
						failed.Add(1)
						require.ErrorIs(t, err, tt.want)
						return
					}
					require.Equal(t, alone[i], ids)
				})
			}
			wg.Wait()
			require.Positive(t, failed.Load())
			require.Less(t, failed.Load(), int64(len(rs)))
			require.Zero(t, e.Stats().Slots)
			if tt.name == "NaN embeddings" {
				require.EqualValues(t, 1, failed.Load())
				require.Equal(t, alone, askAll(t, e, rs), "after a NaN in a slot")
			}
			require.Equal(t, inference.PhaseReady, e.Status().Phase)
		})
	}
}

func TestVisionFailsAlone(t *testing.T) {
	orttest.NoLeaks(t)
	broken := errors.New("this run failed")
	f := &minicpmo.Faults{See: func(int) error { return broken }}
	o := minicpmo.Options{Config: settings(t)}
	e := openWith(t, o.WithFaults(f))
	_, _, err := ask(t, e, questions(t, e, 1, 3)[0])
	require.ErrorIs(t, err, broken)
	ids, _, err := ask(t, e, chat(t, e, "no picture", 3))
	require.NoError(t, err)
	require.Len(t, ids, 3)
}

// Pictures of several rooms have the embeddings in one run that each has alone, in their order.
func TestPicturesOfRoomsTogether(t *testing.T) {
	orttest.NoLeaks(t)
	sizes := map[int]int{}
	o := minicpmo.Options{Config: settings(t)}
	e := openWith(t, o.Together(func(alone, together [][]byte) {
		sizes[len(together)]++
		for i := range together {
			a, b := ort.Slice[float32](alone[i]), ort.Slice[float32](together[i])
			for k := range a {
				if math.Abs(float64(a[k]-b[k])) > 1e-5 {
					t.Errorf("picture %d of %d: embedding %d is %g, alone %g", i, len(together), k, b[k], a[k])
					return
				}
			}
		}
	}))
	var rs []minicpmo.Request
	for room := range uint64(6) {
		rs = append(rs, question(t, e, room+1, "What is it?", noise(room, 1)))
	}
	askAll(t, e, rs)
	require.Equal(t, map[int]int{1: 1, 2: 1, 3: 1, 4: 3}, sizes)
}

func TestDeviceLost(t *testing.T) {
	orttest.NoLeaks(t)
	var dead atomic.Bool
	f := &minicpmo.Faults{Decode: func(int, int) error {
		if dead.Load() {
			return fmt.Errorf("run: %w", minicpmo.ErrDeviceLost)
		}
		return nil
	}}
	o := minicpmo.Options{Config: settings(t)}
	e := openWith(t, o.WithFaults(f))
	rs := questions(t, e, 12, 100) // more than slots
	var wg sync.WaitGroup
	for _, r := range rs {
		r.Rules.Stop = nil
		wg.Go(func() {
			_, _, err := ask(t, e, r)
			require.ErrorIs(t, err, minicpmo.ErrDeviceLost)
		})
	}
	require.Eventually(t, func() bool { return e.Stats().Slots == 8 }, patience, time.Millisecond)
	dead.Store(true)
	wg.Wait()
	select {
	case <-e.Lost():
	case <-time.After(patience):
		require.Fail(t, "Lost was not closed")
	}
	require.Equal(t, inference.PhaseFailed, e.Status().Phase)
	require.Contains(t, e.Status().Detail, "context is lost")
	_, _, err := ask(t, e, rs[0])
	require.ErrorIs(t, err, minicpmo.ErrDeviceLost)
	_, err = e.NewSession()
	require.Error(t, err)
}

func TestInt4(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.Weights = "int4"
	e := open(t, tiny(t), c)
	require.Contains(t, e.Status().Detail, "in int4 on CPU")
	rs := questions(t, e, 4, 20)
	var alone [][]int32
	for _, r := range rs {
		ids, _, err := ask(t, e, r)
		require.NoError(t, err)
		alone = append(alone, ids)
	}
	require.Equal(t, alone, askAll(t, e, rs))
}

// Two weight sets share a cache: one feeds prompts, and the faster one for the
// number of rooms decodes.
func TestTwoWeightSets(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.Weights = "auto"
	ms := time.Millisecond
	o := minicpmo.Options{Config: c}
	// fp32 always: the answers are those of fp32 alone.
	e := openWith(t, o.WithBoth([][]time.Duration{{9 * ms, 9 * ms, 9 * ms, 9 * ms}, {ms, ms, ms, ms}}))
	plain := open(t, tiny(t), settings(t))
	rs := questions(t, plain, 6, 30)
	want := askAll(t, plain, rs)
	require.Equal(t, want, askAll(t, e, rs))
	require.Zero(t, e.Stats().Steps["int4"])

	slow := 1800 * time.Microsecond // no prompt waits for the end of other answers
	e = openWith(t, o.WithBoth([][]time.Duration{{ms, ms, 9 * ms, 9 * ms}, {slow, slow, slow, slow}}))
	require.Equal(t, 4, e.Stats().Switch)
	require.Contains(t, e.Status().Detail, "fp32 from 4 rooms on")
	for i := range rs {
		rs[i].Rules.Stop = nil
	}
	for _, ids := range askAll(t, e, rs) {
		require.Len(t, ids, 30)
	}
	askAll(t, e, rs[:1])
	st := e.Stats().Steps
	require.Positive(t, st["int4"])
	require.Positive(t, st["fp32"])
}

func TestLoadingInStages(t *testing.T) {
	c := settings(t)
	c.MiniCPM.Weights = "auto"
	ms := time.Millisecond
	stages := func(fp32 time.Duration, rest func()) minicpmo.Options {
		o := minicpmo.Options{Config: c, Threads: 1}
		return o.WithBoth([][]time.Duration{{ms, ms, ms, ms}, {fp32, fp32, fp32, fp32}}).WithStages(rest)
	}
	long := func(e *minicpmo.Engine) []minicpmo.Request {
		rs := questions(t, e, 3, 200)
		for i := range rs {
			rs[i].Rules.Stop = nil
		}
		return rs
	}
	t.Run("beside answers", func(t *testing.T) {
		gate := make(chan struct{})
		e := openWith(t, stages(9*ms, func() { <-gate }))
		require.Equal(t, inference.PhaseReady, e.Status().Phase)
		require.Contains(t, e.Status().Detail, "; still loading: fp32")
		want := askAll(t, e, long(e))

		// The steps that warm up the second set write the slots of answers that decode.
		before := e.Stats().Tokens
		loaded := make(chan error, 1)
		go func() {
			for e.Stats().Tokens < before+150 { // all prompts are fed
				time.Sleep(ms)
			}
			close(gate)
			loaded <- e.Wait(t.Context())
		}()
		require.Equal(t, want, askAll(t, e, long(e)))
		require.NoError(t, <-loaded)
		require.NotContains(t, e.Status().Detail, "loading")
		require.Equal(t, uint64(0), e.Stats().Steps["fp32"])
	})
	t.Run("then the faster set", func(t *testing.T) {
		gate := make(chan struct{})
		e := openWith(t, stages(ms/2, func() { <-gate }))
		askAll(t, e, long(e))
		require.Zero(t, e.Stats().Steps["fp32"])
		close(gate)
		require.NoError(t, e.Wait(t.Context()))
		steps := e.Stats().Steps["int4"]
		askAll(t, e, long(e))
		require.Equal(t, steps, e.Stats().Steps["int4"])
	})
	t.Run("without the rest", func(t *testing.T) {
		b := *tiny(t)
		b.Manifest.Graphs = slices.Clone(b.Manifest.Graphs)
		for i := range b.Manifest.Graphs {
			if g := &b.Manifest.Graphs[i]; g.Kind == models.KindDecoder && g.Weights == models.WeightsFloat32 {
				g.File += ".missing"
			}
		}
		e, err := minicpmo.Open(t.Context(), &b, stages(ms, func() {}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		require.ErrorContains(t, e.Wait(t.Context()), "load the fp32 decoder")
		require.Equal(t, inference.PhaseReady, e.Status().Phase)
		require.Contains(t, e.Status().Detail, "; without fp32, see the log")
		askAll(t, e, questions(t, e, 2, 10))
	})
	t.Run("closed meanwhile", func(t *testing.T) {
		orttest.NoLeaks(t)
		gate := make(chan struct{})
		e, err := minicpmo.Open(t.Context(), tiny(t), stages(ms, func() { <-gate }))
		require.NoError(t, err)
		time.AfterFunc(20*ms, func() { close(gate) })
		require.NoError(t, e.Close())
		require.Error(t, e.Wait(t.Context()))
	})
}

// The rest of a model with its voice loads while graphs are captured: those of int4, in every other engine, and of fp16.
func TestLoadingBesideCaptures(t *testing.T) {
	minicpmo.NeedGPU(t)
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	merges, err := nano.Merges()
	require.NoError(t, err)
	src, err := synth.New(shape.WithMerges(merges).WithSpeech(), 1)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "b")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsInt4, models.WeightsFloat16}, Devices: []models.Device{models.DeviceCUDA}, Random: true,
	}))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	c := settings(t)
	c.MiniCPM.Device, c.MiniCPM.Weights, c.MiniCPM.Slots, c.Voice.Enabled = "cuda", "auto", 32, true
	for i := range *loads {
		e, err := minicpmo.Open(t.Context(), b, minicpmo.Options{Config: c, Staged: true, Stock: i%2 == 0})
		require.NoError(t, err)
		for loaded := false; !loaded; {
			askAll(t, e, questions(t, e, 3, 20))
			loaded = !strings.Contains(e.Status().Detail, "still loading")
		}
		require.NoError(t, e.Wait(t.Context()), "engine %d", i)
		s := e.Status()
		require.Empty(t, s.VoiceProblem, "engine %d", i)
		require.Contains(t, s.Detail, "int4 and fp16", "engine %d", i)
		require.Contains(t, s.Detail, "speaks", "engine %d", i)
		require.NoError(t, e.Close())
		t.Log("engine", i)
	}
}

func TestClose(t *testing.T) {
	orttest.NoLeaks(t)
	e, err := minicpmo.Open(t.Context(), tiny(t), minicpmo.Options{Config: settings(t), Threads: 1})
	require.NoError(t, err)
	r := questions(t, e, 1, 300)[0]
	r.Rules.Stop = nil
	n := 0
	for _, err := range e.Answer(t.Context(), r) {
		if n++; n == 2 {
			require.NoError(t, e.Close())
		}
		if err != nil {
			require.ErrorIs(t, err, minicpmo.ErrClosed)
			break
		}
	}
	require.NoError(t, e.Close())
	_, _, err = ask(t, e, r)
	require.ErrorIs(t, err, minicpmo.ErrClosed)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = minicpmo.Open(ctx, tiny(t), minicpmo.Options{Config: settings(t)})
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	_, err = minicpmo.Open(ctx, tiny(t), minicpmo.Options{Config: settings(t), Progress: func(percent int, _ string) {
		if percent > 1 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestDoesNotFit(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	o := minicpmo.Options{Config: c}
	e := openWith(t, o)
	need := e.Plan().Total()
	t.Log(e.Plan())
	_, err := minicpmo.Open(t.Context(), tiny(t), o.WithFree(need-1))
	var no *minicpmo.DoesNotFitError
	require.ErrorAs(t, err, &no)
	require.NotEmpty(t, no.Would)
	require.ErrorContains(t, err, "it would fit with prefix_cache: 0, or with slots: 4")
	_, err = minicpmo.Open(t.Context(), tiny(t), o.WithFree(1e6))
	require.ErrorContains(t, err, "no setting would make it fit")
	c.MiniCPM.Device, c.MiniCPM.Weights = "cuda", "fp16"
	_, err = minicpmo.Open(t.Context(), tiny(t), minicpmo.Options{Config: c})
	require.ErrorContains(t, err, "--weights fp16")
}

// TestShortSlots: with less memory slots are shorter, and pictures whole.
func TestShortSlots(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.MaxLen, c.MaxSlices = 0, 4
	o := minicpmo.Options{Config: c}
	long := openWith(t, o)
	short := openWith(t, o.WithFree(long.Plan().Total()-1))
	require.Less(t, short.MaxLen(), long.MaxLen())
	for e, want := range map[*minicpmo.Engine]int{long: 3, short: 0} {
		grid, err := e.Grid(1280, 720, 4)
		require.NoError(t, err)
		require.Equal(t, want, grid.Cols*grid.Rows)
		require.GreaterOrEqual(t, e.Capabilities().MaxFrames(1280, 720, 4), 4)
	}
	require.Contains(t, short.Status().Detail, "for pictures that are not cut into tiles")
	require.NotContains(t, long.Status().Detail, "tiles")
}

func TestSession(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.Temperature, c.MiniCPM.Seed = 0.7, 5
	var texts []string
	for range 2 {
		e := open(t, tiny(t), c)
		s, err := e.NewSession()
		require.NoError(t, err)
		var text strings.Builder
		for i := range 3 {
			var frames []inference.Frame
			for k := range 4 {
				frames = append(frames, frame(t, "320x240.png", time.Duration(i+k)*time.Second))
			}
			s.Observe(frames[3])
			for c, err := range s.Generate(t.Context(), inference.Prompt{
				System: "You comment.", Text: "What happens?", Frames: frames, Speech: i == 1, MaxTokens: 20,
			}) {
				require.NoError(t, err)
				text.WriteString(c.Text)
			}
			text.WriteByte('|')
		}
		require.NoError(t, s.Close())
		texts = append(texts, text.String())
		st := e.Stats()
		require.EqualValues(t, 6+3, st.Hits, "three of four frames were seen before, the newest of all was shown")
		require.EqualValues(t, 3, st.Misses)
		require.EqualValues(t, 3, st.Early)
		require.Zero(t, st.Cached, "a closed room's frames are forgotten")
	}
	require.Equal(t, texts[0], texts[1], "the same seed")
	require.NotContains(t, texts[0], "<|")
	t.Log(texts[0])
}

// TestTextAlone: a prompt without pictures has an answer, in the form of its schema too.
func TestTextAlone(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	s, err := e.NewSession()
	require.NoError(t, err)
	defer s.Close()
	const schema = `{"type": "object", "properties": {"translation": {"type": "string", "maxLength": 40}}, "required": ["translation"],
		"additionalProperties": false}`
	for _, form := range []string{"", schema} {
		p := inference.Prompt{System: "You translate.", Text: "Een doelpunt!", MaxTokens: 120, Schema: []byte(form)}
		var text strings.Builder
		for c, err := range s.Generate(t.Context(), p) {
			require.NoError(t, err)
			text.WriteString(c.Text)
		}
		require.NotEmpty(t, text.String())
		require.True(t, form == "" || strings.HasPrefix(text.String(), `{`), text.String())
	}
	require.Zero(t, e.Stats().Misses, "no picture")
}

// TestPromptSettings: a prompt sets its draws and the tiles of its pictures.
func TestPromptSettings(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.MaxLen, c.MaxInputTokens = 2048, 2000
	c.MiniCPM.Temperature, c.MiniCPM.TopP, c.MiniCPM.TopK = 10, 1, 0
	e := open(t, tiny(t), c)
	s, err := e.NewSession()
	require.NoError(t, err)
	can := e.Capabilities()
	require.InDelta(t, 10, *can.Sampling.Temperature, 0)
	require.Greater(t, can.MaxFrames(800, 600, 1), can.MaxFrames(800, 600, 2))
	answer := func(p inference.Prompt) string {
		t.Helper()
		p.Text, p.MaxTokens = "What happens?", 8
		p.Frames = []inference.Frame{frame(t, "320x240.png", 0)}
		var text strings.Builder
		for c, err := range s.Generate(t.Context(), p) {
			require.NoError(t, err)
			text.WriteString(c.Text)
		}
		return text.String()
	}
	var likeliest []string
	for _, draws := range []inference.Sampling{{Temperature: new(0.0)}, {TopK: new(1)}, {TopP: new(0.000001)}} {
		for range 2 {
			likeliest = append(likeliest, answer(inference.Prompt{Sampling: draws}))
		}
	}
	require.Len(t, slices.Compact(slices.Clone(likeliest)), 1, "%q", likeliest)
	first, second := answer(inference.Prompt{}), answer(inference.Prompt{})
	require.NotEqual(t, first, second, "the engine's own")
	require.NoError(t, s.Close())
}

// TestStructured: an answer in JSON is not drawn at random.
func TestStructured(t *testing.T) {
	orttest.NoLeaks(t)
	c := settings(t)
	c.MiniCPM.Temperature, c.MiniCPM.TopP, c.MiniCPM.TopK = 10, 1, 0
	e := open(t, tiny(t), c)
	s, err := e.NewSession()
	require.NoError(t, err)
	answers := map[bool]map[string]bool{false: {}, true: {}}
	for i := range 8 {
		var text strings.Builder
		p := inference.Prompt{Text: "Which rules hold?", Frames: []inference.Frame{frame(t, "320x240.png", 0)}, MaxTokens: 8}
		if i%2 == 1 {
			p.Schema, p.MaxTokens = []byte(`{"type":"string","maxLength":4}`), 64
		}
		for c, err := range s.Generate(t.Context(), p) {
			require.NoError(t, err)
			text.WriteString(c.Text)
		}
		answers[i%2 == 1][text.String()] = true
	}
	require.NoError(t, s.Close())
	require.Len(t, answers[true], 1)
	require.Len(t, answers[false], 4)
}

// TestManyShortAnswers runs answers with random ends and random faults of the
// device: no slot is lost, and memory and goroutines do not grow.
func TestManyShortAnswers(t *testing.T) {
	orttest.NoLeaks(t)
	var rngMu sync.Mutex
	rng := rand.New(rand.NewPCG(10, 4))
	chance := func(n int) bool {
		rngMu.Lock()
		defer rngMu.Unlock()
		return rng.IntN(n) == 0
	}
	broken := errors.New("this run failed")
	fault := func(n int) error {
		if chance(n) {
			return broken
		}
		return nil
	}
	f := &minicpmo.Faults{
		Prefill: func(int, int, int) error { return fault(40) },
		Decode:  func(int, int) error { return fault(60) },
		See:     func(int) error { return fault(40) },
		NaN:     func(int) bool { return chance(200) },
	}
	c := settings(t)
	c.MiniCPM.VisionCache = 40
	b := tiny(t)
	if *cuda {
		c.MiniCPM.Device, c.MiniCPM.Weights = "cuda", "auto"
		b = minicpmo.CUDABundle(t, "tiny", 8)
	}
	o := minicpmo.Options{Config: c, Threads: 1}
	e, err := minicpmo.Open(t.Context(), b, o.WithFaults(f))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.Equal(t, *cuda, e.Stats().OwnKernels)
	frames := []inference.Frame{frame(t, "320x240.png", 0), frame(t, "640x360.png", 0)}
	run := func(n int) {
		var wg sync.WaitGroup
		var next atomic.Int64
		for range 12 {
			wg.Go(func() {
				s, err := e.NewSession()
				if err != nil {
					return
				}
				defer s.Close()
				for {
					i := next.Add(1)
					if i > int64(n) {
						return
					}
					ctx, cancel := context.WithCancel(t.Context())
					p := inference.Prompt{Text: "What is it?", MaxTokens: 6}
					for k := range 1 + int(i)%2 {
						fr := frames[k]
						fr.PTS = time.Duration(i/512+int64(k)) * time.Second
						p.Frames = append(p.Frames, fr)
					}
					if chance(2) {
						s.Observe(p.Frames[0])
					}
					stop := chance(3)
					tokens := 0
					for _, err := range s.Generate(ctx, p) {
						if err != nil {
							break
						}
						if tokens++; stop && chance(3) {
							cancel()
						}
						if stop && chance(5) {
							break
						}
					}
					cancel()
				}
			})
		}
		wg.Wait()
	}
	idle := func() (heap uint64, rss int, routines int) {
		require.Eventually(t, func() bool { return e.Stats().Slots == 0 && e.Stats().Waiting == 0 }, patience, time.Millisecond)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, resident(t), runtime.NumGoroutine()
	}
	run(*cycles / 4)
	heap, rss, routines := idle()
	run(*cycles - *cycles/4)
	heap2, rss2, routines2 := idle()
	s := e.Stats()
	t.Logf("%d embedded: %v; %d done, %d cancelled, %d failed; heap %d -> %d KB, resident %d -> %d MB, goroutines %d -> %d",
		s.Images.Count, s.Vision.Sum/float64(s.Vision.Count), s.Done, s.Cancelled, s.Failed, heap>>10, heap2>>10, rss>>20, rss2>>20, routines, routines2)
	require.Positive(t, s.Done)
	require.Positive(t, s.Cancelled)
	require.Positive(t, s.Failed)
	require.LessOrEqual(t, routines2, routines)
	require.Less(t, heap2, heap+8<<20)
	require.Less(t, rss2, rss+64<<20)
	require.LessOrEqual(t, s.Cached, 40)

	f.Prefill, f.Decode, f.See, f.NaN = nil, nil, nil, nil
	rs := questions(t, e, 8, 10)
	askAll(t, e, rs) // All slots are usable.
	require.Zero(t, e.Stats().Slots)
}

// resident returns the process's memory in bytes.
func resident(tb testing.TB) int {
	tb.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(tb, err)
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	require.NoError(tb, err)
	return pages * os.Getpagesize()
}

func BenchmarkHostGap(b *testing.B) {
	for _, rooms := range []int{1, 64} {
		b.Run(strconv.Itoa(rooms), func(b *testing.B) {
			c := settings(b)
			c.MiniCPM.Slots, c.MiniCPM.Queue, c.MiniCPM.Temperature = 64, 256, 0.7
			e := open(b, tiny(b), c)
			rs := questions(b, e, rooms, 200)
			for i := range rs {
				rs[i].Rules.Stop = nil
			}
			for b.Loop() {
				askAll(b, e, rs)
			}
			h := e.Stats().Host
			b.ReportMetric(1e6*h.Sum/float64(h.Count), "mean-us")
			b.ReportMetric(1e6*h.Quantile(.5), "p50-us")
			b.ReportMetric(1e6*h.Quantile(.99), "p99-us")
		})
	}
}

// copyOf opens a changed copy of a bundle.
func copyOf(t *testing.T, b *models.Bundle, change func(dir string, m *models.Manifest)) error {
	t.Helper()
	dir := t.TempDir()
	files, err := os.ReadDir(b.Dir)
	require.NoError(t, err)
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(b.Dir, f.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name()), raw, 0o600))
	}
	bad := &models.Bundle{Dir: dir, Manifest: b.Manifest}
	change(dir, &bad.Manifest)
	e, err := minicpmo.Open(t.Context(), bad, minicpmo.Options{Config: settings(t)})
	if err == nil {
		require.NoError(t, e.Close())
	}
	return err
}

func TestBadBundles(t *testing.T) {
	orttest.NoLeaks(t)
	b := tiny(t)
	for _, tt := range []struct {
		name   string
		change func(dir string, m *models.Manifest)
		want   string
	}{
		{"no tokenizer", func(dir string, _ *models.Manifest) {
			require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
		}, "has no tokenizer"},
		{"damaged tokenizer", func(dir string, _ *models.Manifest) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{"), 0o600))
		}, "tokenizer.json"},
		{"no graphs", func(_ string, m *models.Manifest) { m.Graphs = nil }, "expected a bundle with the embed in fp32 for cpu"},
		{"an older format", func(_ string, m *models.Manifest) {
			m.Graphs = slices.Clone(m.Graphs)
			for i := range m.Graphs {
				m.Graphs[i].Table = nil
			}
		}, "touchline models upgrade"},
		{"damaged decoder", func(dir string, _ *models.Manifest) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "decoder-fp32-cpu.onnx"), []byte{1, 2, 3}, 0o600))
		}, "load the fp32 decoder"},
		{"another task", func(_ string, m *models.Manifest) { m.Task = models.TaskRecognition }, `task is "recognition"`},
		{"another vocabulary", func(_ string, m *models.Manifest) { m.Dims.Decoder.Vocab += 7 }, "embedding table"},
		{"another width of the images", func(_ string, m *models.Manifest) {
			v := *m.Dims.Vision
			v.Out *= 2
			m.Dims.Vision = &v
		}, "do not fit each other"},
		{"an end that is no token", func(_ string, m *models.Manifest) { m.Stop = []string{"<|none|>"} }, `tokens has no "<|none|>"`},
		{"another count of layers", func(_ string, m *models.Manifest) { m.Dims.Decoder.Layers++ }, "past_key_values.3.key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.ErrorContains(t, copyOf(t, b, tt.change), tt.want)
		})
	}
}
