package qwen3asr_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/mel"
	"touchline/inference/internal/ort"
	"touchline/inference/qwen3asr"
	"touchline/inference/step"
	"touchline/models"
)

// counting is n, n+1 and so on.
func counting(n, most int) []int32 {
	ids := make([]int32, most)
	for i := range ids {
		ids[i] = int32(n + i)
	}
	return ids
}

func TestLoopAnswersMany(t *testing.T) {
	t.Parallel()
	l, stop := qwen3asr.NewLoop(&qwen3asr.Backend{}, 4, 100)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			n, most := 1+i%40, 1+i%20
			k := qwen3asr.File
			if i%3 == 0 {
				k = qwen3asr.Final
			}
			j, err := l.Submit(k, n, most, i%3)
			require.NoError(t, err)
			ids, err := j.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, counting(n, most), ids)
		})
	}
	wg.Wait()
	j, err := l.Align(6)
	require.NoError(t, err)
	ids, err := j.Wait(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, 6)
	s := l.Stats()
	require.EqualValues(t, 20+1, s.Finals)
	require.EqualValues(t, 40, s.Files)
	require.Zero(t, s.Waiting)
	require.NoError(t, stop())
	require.Zero(t, l.Held())
	_, err = l.Submit(qwen3asr.Final, 1, 1, 0)
	require.ErrorIs(t, err, qwen3asr.ErrClosed)
}

// stalled is a Backend that waits in its first piece of work until it is released.
func stalled(work func(what string, n int) error) (b *qwen3asr.Backend, begun chan struct{}, release func()) {
	begun, wait := make(chan struct{}), make(chan struct{})
	var once sync.Once
	return &qwen3asr.Backend{Before: func(what string, n int) error {
		once.Do(func() { close(begun); <-wait })
		return work(what, n)
	}}, begun, func() { close(wait) }
}

// TestLoopOrder: finals go before partials, and these before files, whenever they came.
func TestLoopOrder(t *testing.T) {
	t.Parallel()
	var fed []int
	b, begun, release := stalled(func(what string, n int) error {
		if what == "prefill" {
			fed = append(fed, n)
		}
		return nil
	})
	l, stop := qwen3asr.NewLoop(b, 1, 100)
	var jobs []*qwen3asr.Job
	submit := func(f func() (*qwen3asr.Job, error)) {
		j, err := f()
		require.NoError(t, err)
		jobs = append(jobs, j)
	}
	submit(func() (*qwen3asr.Job, error) { return l.Submit(qwen3asr.File, 9, 2, 0) })
	<-begun
	submit(func() (*qwen3asr.Job, error) { return l.Submit(qwen3asr.File, 3, 8, 0) })
	submit(func() (*qwen3asr.Job, error) { return l.Submit(qwen3asr.Partial, 2, 8, 1) })
	submit(func() (*qwen3asr.Job, error) { return l.Submit(qwen3asr.File, 4, 8, 0) })
	submit(func() (*qwen3asr.Job, error) { return l.Submit(qwen3asr.Final, 1, 8, 2) })
	release()
	for _, j := range jobs {
		_, err := j.Wait(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, stop())
	require.Equal(t, []int{9, 1, 2, 3, 4}, fed)
}

// answered submits n jobs to a stalled loop, releases it and waits for all answers.
func answered(t *testing.T, l *qwen3asr.Loop, class qwen3asr.Class, n int, begun <-chan struct{}, release func()) {
	t.Helper()
	jobs := make([]*qwen3asr.Job, n)
	for i := range jobs {
		j, err := l.Submit(class, 2, 20, 0)
		require.NoError(t, err)
		jobs[i] = j
	}
	<-begun
	release()
	for _, j := range jobs {
		_, err := j.Wait(t.Context())
		require.NoError(t, err)
	}
}

// TestLoopStall: while live speech decodes, little is begun between two steps; while only files do, much is.
func TestLoopStall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		class qwen3asr.Class
		most  int
	}{{qwen3asr.Partial, 3}, {qwen3asr.File, 14}} {
		var between, most, steps int
		var b *qwen3asr.Backend
		b, begun, release := stalled(func(what string, _ int) error {
			switch what {
			case "prefill":
				b.Now = b.Now.Add(3 * time.Millisecond)
				between++
			case "decode":
				if steps++; steps > 1 { // the first begins before any answer decodes
					most = max(most, between)
				}
				between = 0
			}
			return nil
		})
		l, stop := qwen3asr.NewLoop(b, 64, 100)
		answered(t, l, tt.class, 40, begun, release)
		require.NoError(t, stop())
		require.Equal(t, tt.most, most)
	}
}

// TestLoopLeavesSlotsToLiveSpeech: files take three quarters of the slots.
func TestLoopLeavesSlotsToLiveSpeech(t *testing.T) {
	t.Parallel()
	most := 0
	b, begun, release := stalled(func(what string, n int) error {
		if what == "decode" {
			most = max(most, n)
		}
		return nil
	})
	l, stop := qwen3asr.NewLoop(b, 4, 100)
	answered(t, l, qwen3asr.File, 8, begun, release)
	require.NoError(t, stop())
	require.Equal(t, 3, most)
}

func TestLoopBatchesWindows(t *testing.T) {
	t.Parallel()
	var batches []int
	b, begun, release := stalled(func(what string, n int) error {
		if what == "encode" {
			batches = append(batches, n)
		}
		return nil
	})
	l, stop := qwen3asr.NewLoop(b, 8, 100)
	first, err := l.Submit(qwen3asr.Final, 1, 1, 0)
	require.NoError(t, err)
	<-begun
	jobs := []*qwen3asr.Job{first}
	for range 3 {
		j, err := l.Submit(qwen3asr.File, 2, 2, 3)
		require.NoError(t, err)
		jobs = append(jobs, j)
	}
	release()
	for _, j := range jobs {
		_, err := j.Wait(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, stop())
	require.Equal(t, []int{4, 4, 1}, batches)
}

// TestLoopBeginsManyBeforeAStep: answers of one class decode together from the start, but a final's steps wait for one prompt
// of a partial at most.
func TestLoopBeginsManyBeforeAStep(t *testing.T) {
	t.Parallel()
	for class, want := range map[qwen3asr.Class]int{qwen3asr.Partial: 6, qwen3asr.Final: 1} {
		most, prompts := 0, 0
		b, begun, release := stalled(func(what string, _ int) error {
			switch what {
			case "decode":
				prompts = 0
			case "prefill":
				prompts++
				most = max(most, prompts)
			}
			return nil
		})
		l, stop := qwen3asr.NewLoop(b, 8, 100)
		j, err := l.Submit(class, 2, 50, 0)
		require.NoError(t, err)
		<-begun
		jobs := []*qwen3asr.Job{j}
		for range 5 {
			j, err := l.Submit(qwen3asr.Partial, 2, 5, 0)
			require.NoError(t, err)
			jobs = append(jobs, j)
		}
		release()
		for _, j := range jobs {
			_, err := j.Wait(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, stop())
		require.Equal(t, want, most)
	}
}

// TestLoopSharesRuns: beside commentary, interim texts of 64 who speak wait a little for each other, which leaves the device more time. One who speaks
// alone hardly waits. The times of runs are those of the 0.6B on an H200.
func TestLoopSharesRuns(t *testing.T) {
	t.Parallel()
	speak := func(speakers int, beside bool) (p95 time.Duration, busy float64) {
		synctest.Test(t, func(t *testing.T) {
			ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
			b := &qwen3asr.Backend{Before: func(what string, n int) error {
				more := float64(n)
				took := map[string]float64{"encode": 1 + .4*more, "begin": 2 + .35*more, "prefill": 2.5, "decode": 1.5 + .012*more}
				time.Sleep(ms(took[what] + .15)) // on the host
				return nil
			}}
			owner := step.NewOwner(time.Now)
			if beside { // commentary always has work
				owner.Join(step.Commentary).Post(time.Now())
			}
			l, stop := qwen3asr.NewTimedLoop(b, owner)
			var all sync.WaitGroup
			var mu sync.Mutex
			var took []time.Duration
			const length, every = 8 * time.Second, 500 * time.Millisecond
			for i := range speakers {
				all.Go(func() {
					time.Sleep(every * time.Duration(i) / time.Duration(speakers))
					for range length / every {
						begin := time.Now()
						j, err := l.Submit(qwen3asr.Partial, 10, 8, 1)
						if err == nil {
							_, err = j.Wait(t.Context())
						}
						if err != nil {
							t.Errorf("no text: %v", err)
							return
						}
						mu.Lock()
						took = append(took, time.Since(begin))
						mu.Unlock()
						time.Sleep(time.Until(begin.Add(every)))
					}
				})
			}
			all.Wait()
			busy = l.Stats().Device.Seconds() / length.Seconds()
			require.NoError(t, stop())
			slices.Sort(took)
			p95 = took[len(took)*95/100]
		})
		return p95, busy
	}
	p95, busy := speak(64, false)
	later, less := speak(64, true)
	alone, _ := speak(1, false)
	same, _ := speak(1, true)
	t.Logf("64 speakers: text after p95 %v, device busy %.0f %%; waiting for each other %v, %.0f %%; one alone %v, %v",
		p95, 100*busy, later, 100*less, alone, same)
	require.Less(t, less, .75*busy)
	require.Less(t, later, 80*time.Millisecond)
	require.Less(t, same, alone+2*time.Millisecond)
}

// TestLoopOfInterimTexts: beside the finals of another engine, the model of interim texts waits, but not for long.
func TestLoopOfInterimTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := step.NewOwner(time.Now)
		finals := owner.Join(step.Recognition)
		var encoded time.Time
		l, stop := qwen3asr.NewInterimLoop(&qwen3asr.Backend{Before: func(what string, _ int) error {
			if what == "encode" {
				encoded = time.Now()
			}
			return nil
		}}, owner)
		text := func() (start, all time.Duration) {
			begin := time.Now()
			j, err := l.Submit(qwen3asr.Partial, 10, 8, 1)
			require.NoError(t, err)
			_, err = j.Wait(t.Context())
			require.NoError(t, err)
			return encoded.Sub(begin), time.Since(begin)
		}
		start, all := text()
		require.Zero(t, start)
		require.Zero(t, all)
		var busy sync.WaitGroup
		busy.Go(func() { _, _ = finals.Do(func() error { time.Sleep(time.Second); return nil }) })
		synctest.Wait()
		start, all = text()
		require.Equal(t, 50*time.Millisecond, start)
		require.InDelta(t, 50+7*10, all.Milliseconds(), 10)
		busy.Wait()
		require.NoError(t, stop())
	})
}

// TestLoopFilesGetTheirTurn: partials without an end do not keep a file from being heard.
func TestLoopFilesGetTheirTurn(t *testing.T) {
	t.Parallel()
	b := &qwen3asr.Backend{}
	var l *qwen3asr.Loop
	var stop func() error
	before := 0
	ready := make(chan struct{})
	b.Before = func(what string, n int) error {
		<-ready
		if what == "prefill" && n == 2 { // a partial: the next one comes at once
			b.Now = b.Now.Add(time.Second)
			before++
			_, err := l.Submit(qwen3asr.Partial, 2, 1, 0)
			return err
		}
		return nil
	}
	l, stop = qwen3asr.NewLoop(b, 1, 100)
	_, err := l.Submit(qwen3asr.Partial, 2, 1, 0)
	require.NoError(t, err)
	j, err := l.Submit(qwen3asr.File, 3, 4, 0)
	require.NoError(t, err)
	close(ready)
	ids, err := j.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, counting(3, 4), ids)
	require.NoError(t, stop())
	require.GreaterOrEqual(t, before, 10)
}

func TestLoopRefuses(t *testing.T) {
	t.Parallel()
	b, begun, release := stalled(func(string, int) error { return nil })
	l, stop := qwen3asr.NewLoop(b, 1, 2)
	first, err := l.Submit(qwen3asr.File, 1, 1, 0)
	require.NoError(t, err)
	<-begun
	second, err := l.Submit(qwen3asr.File, 1, 1, 0)
	require.NoError(t, err)
	_, err = l.Submit(qwen3asr.Partial, 1, 1, 0)
	require.ErrorIs(t, err, inference.ErrOverloaded)
	last, err := l.Submit(qwen3asr.Final, 1, 1, 0)
	require.NoError(t, err, "a final is not refused")
	release()
	for _, j := range []*qwen3asr.Job{first, second, last} {
		_, err := j.Wait(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, stop())
	require.EqualValues(t, 1, l.Stats().Overloaded)
}

// TestLoopCancels: a cancelled job leaves its slot between two ids, and jobs that wait do not begin.
func TestLoopCancels(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	steps, given := 0, make(chan struct{})
	b := &qwen3asr.Backend{Before: func(what string, _ int) error {
		if what == "decode" {
			if steps++; steps == 3 {
				cancel()
				<-given
			}
		}
		return nil
	}}
	l, stop := qwen3asr.NewLoop(b, 1, 10)
	long, err := l.Submit(qwen3asr.File, 1, 60, 0)
	require.NoError(t, err)
	next, err := l.Submit(qwen3asr.File, 1, 60, 1)
	require.NoError(t, err)
	_, err = long.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = next.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	close(given)
	after, err := l.Submit(qwen3asr.Final, 5, 2, 0)
	require.NoError(t, err)
	ids, err := after.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, counting(5, 2), ids)
	require.NoError(t, stop())
	require.Zero(t, l.Held())
	require.EqualValues(t, 2, l.Stats().Cancelled)
}

func TestLoopErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, what := range []string{"encode", "prefill", "decode", "align"} {
		fail := true
		l, stop := qwen3asr.NewLoop(&qwen3asr.Backend{Before: func(work string, _ int) error {
			if work == what && fail {
				fail = false
				return broken
			}
			return nil
		}}, 2, 10)
		run := func() error {
			j, err := l.Submit(qwen3asr.Final, 2, 5, 1)
			if what == "align" {
				j, err = l.Align(2)
			}
			require.NoError(t, err)
			_, err = j.Wait(t.Context())
			return err
		}
		require.ErrorIs(t, run(), broken, what)
		require.NoError(t, run(), "only the one job fails")
		require.NoError(t, stop())
		require.Zero(t, l.Held())
	}
}

func TestLoopDeviceLost(t *testing.T) {
	t.Parallel()
	l, stop := qwen3asr.NewLoop(&qwen3asr.Backend{Before: func(work string, _ int) error {
		if work == "decode" {
			return ort.ErrDeviceLost
		}
		return nil
	}}, 2, 10)
	var jobs []*qwen3asr.Job
	for range 5 {
		j, err := l.Submit(qwen3asr.Final, 2, 5, 0)
		if err != nil {
			require.ErrorIs(t, err, qwen3asr.ErrDeviceLost)
			continue
		}
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		_, err := j.Wait(t.Context())
		require.ErrorIs(t, err, qwen3asr.ErrDeviceLost)
	}
	require.ErrorIs(t, stop(), qwen3asr.ErrDeviceLost)
	_, err := l.Submit(qwen3asr.Final, 2, 5, 0)
	require.ErrorIs(t, err, qwen3asr.ErrDeviceLost)
}

// sizes are those of the published encoder, as far as features depend on them.
func sizes() models.Hearing { return models.Hearing{Chunk: 100, Window: 8, Mel: mel.SpeechBins} }

// TestFeaturesOfGrowingSound: with all sound so far, the windows are those of the whole, whatever came before.
func TestFeaturesOfGrowingSound(t *testing.T) {
	t.Parallel()
	sound := clip(t, "speech35")
	f := qwen3asr.NewFeatures(sizes())
	at := 0
	for i, n := range []int{8000, 3, 120000, 1000, 127333, 64000, 160001} {
		f.Append(sound[at : at+n])
		at += n
		want, err := mel.Speech(sound[:at])
		require.NoError(t, err)
		frames := at / 160
		require.Len(t, want, frames*mel.SpeechBins)
		from := 0
		for _, w := range f.Windows(true) {
			require.Equal(t, min(800, frames-from), w.Frames)
			for b := range mel.SpeechBins {
				require.Equal(t, want[b*frames+from:][:w.Frames], w.Mel[b*w.Frames:][:w.Frames], "step %d, frame %d, bin %d", i, from, b)
			}
			from += w.Frames
		}
		require.Equal(t, frames, from)
	}
}

// TestFeaturesKeepWindows: a window is made again only if louder sound raises its floor, and by more than a little.
func TestFeaturesKeepWindows(t *testing.T) {
	t.Parallel()
	tone := func(seconds int, level float32) []float32 {
		s := make([]float32, seconds*inference.RecognizerRate)
		for i := range s {
			s[i] = level * float32((i*7919)%2001-1000) / 1000
		}
		return s
	}
	quiet := append(tone(4, 0.1), make([]float32, 4*inference.RecognizerRate)...) // half of it is under any floor
	for name, tt := range map[string]struct {
		first, next []float32
		again, kept bool // within the bound; exactly
	}{
		"louder":            {quiet, tone(1, 0.9), false, false},
		"a little louder":   {quiet, tone(1, 0.102), true, false},
		"softer":            {quiet, tone(1, 0.05), true, true},
		"louder, above all": {tone(8, 0.1), tone(1, 0.9), true, true},
	} {
		f := qwen3asr.NewFeatures(sizes())
		f.Append(append(slices.Clone(tt.first), tone(1, 0.1)...))
		before := f.Windows(true)
		require.Len(t, before, 2)
		f.Append(tt.next)
		after := f.Windows(false)
		require.Equal(t, tt.again, before[0].ID == after[0].ID, name)
		require.NotEqual(t, before[1].ID, after[1].ID)
		require.Equal(t, tt.kept, before[0].ID == f.Windows(true)[0].ID, name)
	}
}

// begun runs jobs that came while a first one was encoded, and returns the sizes of the runs of their prompts.
func begun(t *testing.T, b *qwen3asr.Backend, slots int, submit func(l *qwen3asr.Loop) []*qwen3asr.Job) (together, alone []int, l *qwen3asr.Loop) {
	t.Helper()
	before := b.Before
	hold, begun, release := stalled(func(what string, n int) error {
		switch what {
		case "begin":
			together = append(together, n)
		case "prefill":
			alone = append(alone, n)
		}
		if before != nil {
			return before(what, n)
		}
		return nil
	})
	b.Before = hold.Before
	l, stop := qwen3asr.NewLoop(b, slots, 100)
	first, err := l.Align(1)
	require.NoError(t, err)
	<-begun
	jobs := submit(l)
	release()
	_, err = first.Wait(t.Context())
	require.NoError(t, err)
	for _, j := range jobs {
		ids, err := j.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, counting(j.Positions(), 5), ids)
	}
	require.NoError(t, stop())
	require.Zero(t, l.Held())
	return together, alone, l
}

func submitted(t *testing.T, l *qwen3asr.Loop, k qwen3asr.Class, positions ...int) (jobs []*qwen3asr.Job) {
	t.Helper()
	for _, n := range positions {
		j, err := l.Submit(k, n, 5, 1)
		require.NoError(t, err)
		jobs = append(jobs, j)
	}
	return jobs
}

// TestLoopBeginsTogether: prompts of one class that fit one run are fed in it, and encoded before.
func TestLoopBeginsTogether(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		class           qwen3asr.Class
		together, slots int
		positions       []int
		runs, alone     []int
	}{
		"all":                     {qwen3asr.Partial, 64, 8, []int{5, 9, 3, 2}, []int{4}, nil},
		"more than an encoding":   {qwen3asr.Final, 64, 8, []int{5, 3, 4, 2, 3, 2, 6, 7}, []int{8}, nil},
		"a power of two":          {qwen3asr.Partial, 64, 8, []int{2, 3, 4}, []int{2}, []int{4}},
		"as long as fits":         {qwen3asr.Partial, 16, 8, []int{9, 9, 9, 5, 5}, []int{2, 2}, []int{5}},
		"not in pieces":           {qwen3asr.Partial, 64, 8, []int{18, 5, 5}, []int{2}, []int{16, 18}},
		"files leave some slots":  {qwen3asr.File, 64, 4, []int{5, 5, 5}, []int{2}, []int{5}},
		"one prompt in each run":  {qwen3asr.Partial, 0, 8, []int{5, 6}, nil, []int{5, 6}},
		"a prompt of one is none": {qwen3asr.Partial, 64, 8, []int{1, 6}, nil, []int{1, 6}},
	} {
		together, alone, l := begun(t, &qwen3asr.Backend{Together: tt.together}, tt.slots, func(l *qwen3asr.Loop) []*qwen3asr.Job {
			return submitted(t, l, tt.class, tt.positions...)
		})
		slices.Sort(alone) // what is fed in pieces may wait for others
		require.Equal(t, tt.runs, together, name)
		require.Equal(t, tt.alone, alone, name)
		require.EqualValues(t, len(together)+len(alone), l.Stats().Prompts)
	}
}

// TestLoopKeepsClassesApart: a final does not wait for the prompts of partials.
func TestLoopKeepsClassesApart(t *testing.T) {
	t.Parallel()
	var order []string
	b := &qwen3asr.Backend{Together: 64, Before: func(what string, _ int) error {
		order = append(order, what)
		return nil
	}}
	together, alone, _ := begun(t, b, 8, func(l *qwen3asr.Loop) []*qwen3asr.Job {
		return slices.Concat(submitted(t, l, qwen3asr.Partial, 3, 4), submitted(t, l, qwen3asr.Final, 5))
	})
	require.Equal(t, []int{2}, together)
	require.Equal(t, []int{5}, alone)
	require.Less(t, slices.Index(order, "prefill"), slices.Index(order, "begin"))
}

// TestLoopBeginsAloneAfterAFailure: if a run of several prompts fails, each is fed alone, and only what fails then ends.
func TestLoopBeginsAloneAfterAFailure(t *testing.T) {
	t.Parallel()
	b := &qwen3asr.Backend{Together: 64, Before: func(what string, _ int) error {
		if what == "begin" {
			return errors.New("broken")
		}
		return nil
	}}
	together, alone, l := begun(t, b, 8, func(l *qwen3asr.Loop) []*qwen3asr.Job {
		return submitted(t, l, qwen3asr.Partial, 2, 3, 4, 5)
	})
	require.Equal(t, []int{4}, together)
	require.Equal(t, []int{2, 3, 4, 5}, alone)
	require.Equal(t, 4, b.Cleared)
	require.Zero(t, l.Stats().Failed)
}
