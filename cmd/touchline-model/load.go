package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/cmd/internal/bench"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/internal/quantile"
)

// load is an open-loop load: cycles arrive at random (Poisson), whether or not earlier ones have finished. It is used once.
type load struct {
	rooms    int
	interval time.Duration // mean time between two cycles of a room
	duration time.Duration // of the arrivals; running cycles then finish
	// cycle runs one cycle of a room and calls first with the first token.
	cycle func(ctx context.Context, room int, frames []inference.Frame, first func()) error

	work sync.WaitGroup

	mu      sync.Mutex
	running int
	// The results.
	arrived, finished, dropped, failed int
	// Latencies from a cycle's arrival.
	first, whole []time.Duration
	// backlog is the number of running cycles after each third of the run.
	backlog [3]int
	elapsed time.Duration
	err     error // the first failure
}

// run applies the load until all cycles have finished.
func (l *load) run(ctx context.Context) error {
	start := time.Now()
	l.arrive(ctx, start)
	l.work.Wait()
	l.elapsed = time.Since(start)
	return ctx.Err()
}

// cycleFrames is the number of frames of a cycle; newFrames of them are new since the previous cycle.
const cycleFrames, newFrames = 4, 2

// arrive starts cycles until the load's duration is over.
func (l *load) arrive(ctx context.Context, start time.Time) {
	rng := rand.New(rand.NewPCG(1, uint64(l.rooms)))
	pictures := backgrounds(rng)
	films := make([]*film, l.rooms)
	for i := range films {
		films[i] = newFilm(uint64(i), pictures)
	}
	rate := float64(l.rooms) / l.interval.Seconds()
	third, next := 0, start
	for {
		next = next.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		for third < 3 && next.Sub(start) > time.Duration(third+1)*l.duration/3 {
			if !waitUntil(ctx, start.Add(time.Duration(third+1)*l.duration/3)) {
				break
			}
			l.mu.Lock()
			l.backlog[third] = l.running
			l.mu.Unlock()
			third++
		}
		if next.Sub(start) > l.duration || !waitUntil(ctx, next) {
			return
		}
		room, arrived := rng.IntN(l.rooms), next
		frames := films[room].next(newFrames)
		l.mu.Lock()
		l.arrived++
		l.running++
		l.mu.Unlock()
		l.work.Go(func() { l.one(ctx, room, frames, arrived) })
	}
}

// one runs and counts one cycle.
func (l *load) one(ctx context.Context, room int, frames []inference.Frame, arrived time.Time) {
	var first time.Duration
	err := l.cycle(ctx, room, frames, func() { first = time.Since(arrived) })
	whole := time.Since(arrived)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	switch {
	case errors.Is(err, inference.ErrOverloaded):
		l.dropped++
	case err != nil:
		l.failed++
		l.err = cmp.Or(l.err, err)
	default:
		l.finished++
		l.first, l.whole = append(l.first, first), append(l.whole, whole)
	}
}

// film generates the frames of a room. Each frame has another PTS, so that
// caches hit only for the same frame.
type film struct {
	backgrounds [][]byte
	rng         *rand.Rand
	frames      []inference.Frame
	count       int
}

const filmWidth, filmHeight = 1280, 720

// backgrounds returns images that all rooms share, to save memory.
func backgrounds(rng *rand.Rand) [][]byte {
	all := make([][]byte, 8)
	for i := range all {
		all[i] = make([]byte, filmWidth*filmHeight*3)
		for y := range filmHeight {
			for x := range filmWidth {
				at := (y*filmWidth + x) * 3
				all[i][at] = byte(x * 255 / filmWidth)
				all[i][at+1] = byte(y * 255 / filmHeight)
				all[i][at+2] = byte(rng.Uint32())
			}
		}
	}
	return all
}

func newFilm(room uint64, pictures [][]byte) *film {
	return &film{backgrounds: pictures, rng: rand.New(rand.NewPCG(1, room))}
}

// oneFilm is the film of a room alone.
func oneFilm() *film { return newFilm(1, backgrounds(newFilm(0, nil).rng)) }

// next returns the frames of the next cycle; fresh of them are new.
func (f *film) next(fresh int) []inference.Frame {
	for fresh = max(fresh, cycleFrames-len(f.frames)); fresh > 0; fresh-- {
		f.frames = append(f.frames, inference.Frame{
			PTS: time.Duration(f.count) * 500 * time.Millisecond, Epoch: 1, Width: filmWidth, Height: filmHeight,
			Pix: f.backgrounds[f.rng.IntN(len(f.backgrounds))],
		})
		f.count++
	}
	f.frames = f.frames[len(f.frames)-cycleFrames:]
	return slices.Clone(f.frames)
}

// waitUntil waits for t. It returns false if ctx ends first.
func waitUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// written is a load of rooms with written answers, spread over engines. Loads of one bench have different numbers, so that no picture is
// in a cache.
func (b *modelBench) written(e *minicpmo.Engine, p tokenizer.Prompt, rooms int, number uint64, more ...*minicpmo.Engine) *load {
	engines := append([]*minicpmo.Engine{e}, more...)
	return &load{
		rooms: rooms, interval: b.Interval, duration: b.Duration,
		cycle: func(ctx context.Context, room int, frames []inference.Frame, first func()) error {
			e := engines[room%len(engines)]
			r := request(e, p, b.Answer, uint64(room))
			r.Frames, r.Source = frames, number<<32|uint64(room)
			_, err := ask(ctx, e, r, first)
			return err
		},
	}
}

// sum returns the statistics of engines together that the table of many rooms has.
func sum(engines []*minicpmo.Engine) (s minicpmo.Stats) {
	s = engines[0].Stats()
	for _, e := range engines[1:] {
		more := e.Stats()
		s.Busy, s.Tokens, s.MemoryUsed = s.Busy+more.Busy, s.Tokens+more.Tokens, s.MemoryUsed+more.MemoryUsed
		for i, n := range more.Gap.Counts {
			s.Gap.Counts[i] += n
		}
		s.Gap.Sum, s.Gap.Count = s.Gap.Sum+more.Gap.Sum, s.Gap.Count+more.Gap.Count
	}
	return s
}

// many runs the loads of --rooms and writes their table.
func (b *modelBench) many(engines ...*minicpmo.Engine) {
	if len(b.Rooms) == 0 || b.Rooms[0] == 0 {
		return
	}
	cells := [][]string{{
		"rooms", "cycles", "dropped", "failed", "first token p50 / p95", "cycle p50 / p95", "running after each third",
		"between two tokens p50 / p99", "GPU busy", "tokens/s", "memory",
	}}
	out, failures := &strings.Builder{}, &strings.Builder{}
	p := b.text(engines[0], oneFilm().next(cycleFrames))
	for n, rooms := range b.Rooms {
		before := sum(engines)
		l := b.written(engines[0], p, rooms, uint64(n+1), engines[1:]...)
		b.Check(l.run(b.Context()))
		after := sum(engines)
		pair := func(d []time.Duration) string {
			return fmt.Sprintf("%v / %v", quantile.Of(d, .5).Round(time.Millisecond), quantile.Of(d, .95).Round(time.Millisecond))
		}
		gaps := between(before.Gap, after.Gap)
		row := strings.Fields(fmt.Sprintln(rooms, l.arrived, l.dropped, l.failed))
		cells = append(cells, append(row, pair(l.first), pair(l.whole), fmt.Sprint(l.backlog),
			fmt.Sprintf("%.1f / %.1f ms", 1e3*gaps.Quantile(.5), 1e3*gaps.Quantile(.99)),
			fmt.Sprintf("%.0f %%", 100*(after.Busy-before.Busy).Seconds()/l.elapsed.Seconds()/float64(len(engines))),
			fmt.Sprintf("%.0f", float64(after.Tokens-before.Tokens)/l.elapsed.Seconds()), size(after.MemoryUsed)))
		fmt.Fprintf(os.Stderr, "%d rooms: cycle %s\n", rooms, pair(l.whole))
		if l.err != nil {
			fmt.Fprintf(failures, "\nfirst failure of %d rooms: %v\n", rooms, l.err)
		}
	}
	on := ""
	if n := len(engines); n > 1 {
		on = fmt.Sprintf(" on %d GPUs", n)
	}
	fmt.Fprintf(out, "\nOpen load%s: a cycle per room every %v (Poisson), %d frames (%d new), %d tokens in (%d before the frames), %d out, "+
		"%v a row\n\n", on, b.Interval, cycleFrames, newFrames, len(p.IDs), p.Images[0].Start, b.Answer, b.Duration)
	bench.WriteMarkdown(out, cells)
	b.found.Many += out.String() + failures.String()
}
