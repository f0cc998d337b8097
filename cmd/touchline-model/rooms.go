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

	"touchline/cmd/internal/modelcmd"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/internal/quantile"
)

// openLoad is an open-loop load: cycles arrive at random (Poisson), whether or
// not earlier ones have finished.
type openLoad struct {
	Rooms    int
	Interval time.Duration // mean time between two cycles of a room
	Duration time.Duration // of the arrivals; running cycles then finish
	Frames   int           // per cycle
	New      int           // frames per cycle that the previous cycle did not have
	Seed     uint64
}

// cycleFunc runs one cycle of a room and calls first with the first token.
type cycleFunc func(ctx context.Context, room int, frames []inference.Frame, first func()) error

// loadRow is the result of a load.
type loadRow struct {
	Rooms, Arrived, Finished, Dropped, Failed int
	// Latencies from a cycle's arrival.
	First, Whole []time.Duration
	// Backlog is the number of running cycles after each third of the run.
	Backlog [3]int
	Elapsed time.Duration
	Error   error // the first failure
}

// film generates the frames of a room. Each frame has another PTS, so that
// caches hit only for the same frame.
type film struct {
	backgrounds [][]byte
	rng         *rand.Rand
	frames      []inference.Frame
	count       int
}

const (
	filmWidth, filmHeight = 1280, 720
	framePause            = 500 * time.Millisecond
	backgroundCount       = 8
)

// backgrounds returns images that all rooms share, to save memory.
func backgrounds(rng *rand.Rand) [][]byte {
	all := make([][]byte, backgroundCount)
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

func newFilm(seed, room uint64, pictures [][]byte) *film {
	return &film{backgrounds: pictures, rng: rand.New(rand.NewPCG(seed, room))} //nolint:gosec // a load, not a secret
}

// next returns the n frames of the next cycle, of which fresh are new.
func (f *film) next(n, fresh int) []inference.Frame {
	for fresh = max(fresh, n-len(f.frames)); fresh > 0; fresh-- {
		f.frames = append(f.frames, inference.Frame{
			PTS: time.Duration(f.count) * framePause, Epoch: 1, Width: filmWidth, Height: filmHeight,
			Pix: f.backgrounds[f.rng.IntN(len(f.backgrounds))],
		})
		f.count++
	}
	f.frames = f.frames[len(f.frames)-n:]
	return slices.Clone(f.frames)
}

// loadRun is a running load.
type loadRun struct {
	openLoad

	cycle cycleFunc
	work  sync.WaitGroup

	mu      sync.Mutex
	row     loadRow
	running int
}

// run applies the load until all cycles have finished.
func (o openLoad) run(ctx context.Context, cycle cycleFunc) (loadRow, error) {
	l := &loadRun{openLoad: o, cycle: cycle, row: loadRow{Rooms: o.Rooms}}
	start := time.Now()
	l.arrive(ctx, start)
	l.work.Wait()
	l.row.Elapsed = time.Since(start)
	return l.row, ctx.Err()
}

// arrive starts cycles until the load's duration is over.
func (l *loadRun) arrive(ctx context.Context, start time.Time) {
	rng := rand.New(rand.NewPCG(l.Seed, uint64(l.Rooms))) //nolint:gosec // a load, not a secret
	pictures := backgrounds(rng)
	films := make([]*film, l.Rooms)
	for i := range films {
		films[i] = newFilm(l.Seed, uint64(i), pictures) //nolint:gosec // not negative
	}
	rate := float64(l.Rooms) / l.Interval.Seconds()
	third, next := 0, start
	for {
		next = next.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		for third < 3 && next.Sub(start) > time.Duration(third+1)*l.Duration/3 {
			if !waitUntil(ctx, start.Add(time.Duration(third+1)*l.Duration/3)) {
				break
			}
			l.mu.Lock()
			l.row.Backlog[third] = l.running
			l.mu.Unlock()
			third++
		}
		if next.Sub(start) > l.Duration || !waitUntil(ctx, next) {
			return
		}
		room, arrived := rng.IntN(l.Rooms), next
		frames := films[room].next(l.Frames, l.New)
		l.mu.Lock()
		l.row.Arrived++
		l.running++
		l.mu.Unlock()
		l.work.Go(func() { l.one(ctx, room, frames, arrived) })
	}
}

// one runs and counts one cycle.
func (l *loadRun) one(ctx context.Context, room int, frames []inference.Frame, arrived time.Time) {
	var first time.Duration
	err := l.cycle(ctx, room, frames, func() { first = time.Since(arrived) })
	whole := time.Since(arrived)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	switch {
	case errors.Is(err, inference.ErrOverloaded):
		l.row.Dropped++
	case err != nil:
		l.row.Failed++
		l.row.Error = cmp.Or(l.row.Error, err)
	default:
		l.row.Finished++
		l.row.First, l.row.Whole = append(l.row.First, first), append(l.row.Whole, whole)
	}
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

// many runs the open loads and writes their table.
func (b *bench) many(ctx context.Context, e *minicpmo.Engine) error {
	if len(b.Rooms) == 0 || b.Rooms[0] == 0 {
		return nil
	}
	out := &strings.Builder{}
	defer func() { b.found.Many += out.String() }()
	fmt.Fprintf(out, "\nOpen load: a cycle per room every %v (Poisson), 4 frames (2 new), %d tokens in, %d out, %v a row\n\n",
		b.Interval, b.Prompt, b.Answer, b.Duration)
	fmt.Fprintln(out, "| rooms | cycles | dropped | failed | first token p50 / p95 | cycle p50 / p95 | running after each third |"+
		" between two tokens p50 / p99 | GPU busy | tokens/s | memory |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
	seen := newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng)).next(4, 4)
	p, err := b.text(e, seen)
	if err != nil {
		return err
	}
	for n, rooms := range b.Rooms {
		before := e.Stats()
		row, err := b.comment(ctx, e, p, rooms, n)
		if err != nil {
			return err
		}
		after := e.Stats()
		ms := func(d []time.Duration, q float64) time.Duration { return quantile.Of(d, q).Round(time.Millisecond) }
		gaps := between(before.Gap, after.Gap)
		fmt.Fprintf(out, "| %d | %d | %d | %d | %v / %v | %v / %v | %v | %.1f / %.1f ms | %.0f %% | %.0f | %s |\n",
			rooms, row.Arrived, row.Dropped, row.Failed,
			ms(row.First, .5), ms(row.First, .95), ms(row.Whole, .5), ms(row.Whole, .95), row.Backlog,
			1e3*gaps.Quantile(.5), 1e3*gaps.Quantile(.99), 100*(after.Busy-before.Busy).Seconds()/row.Elapsed.Seconds(),
			float64(after.Tokens-before.Tokens)/row.Elapsed.Seconds(), modelcmd.Size(after.MemoryUsed))
		fmt.Fprintf(os.Stderr, "%d rooms: cycle p50 %v, p95 %v\n", rooms, quantile.Of(row.Whole, .5), quantile.Of(row.Whole, .95))
		if row.Error != nil {
			fmt.Fprintf(out, "\nfirst failure: %v\n\n", row.Error)
		}
	}
	return nil
}
