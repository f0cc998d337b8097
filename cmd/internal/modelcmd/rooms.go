package modelcmd

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"touchline/inference"
)

// openLoad is a load that does not wait: cycles arrive at random (Poisson),
// whether or not earlier ones have ended.
type openLoad struct {
	Rooms    int
	Interval time.Duration // between two cycles of one room, on average
	Duration time.Duration // of the arrivals; cycles under way are waited for
	Frames   int           // pictures per cycle
	New      int           // of them not seen in the cycle before
	Seed     uint64
}

// cycleFunc runs one cycle of a room, and calls first with its first token.
type cycleFunc func(ctx context.Context, room int, frames []inference.Frame, first func()) error

// loadRow is what came out.
type loadRow struct {
	Rooms, Arrived, Finished, Dropped, Failed int
	// Times from the arrival of a cycle, sorted.
	First, Whole []time.Duration
	// Backlog is how many cycles were under way after each third of the run.
	Backlog [3]int
	Elapsed time.Duration
	Error   error // the first of the failed
}

// film gives a room its pictures: every PTS another one, so that nothing but
// the same frame is ever taken from a cache.
type film struct {
	backgrounds [][]byte
	rng         *rand.Rand
	frames      []inference.Frame
	next        int
}

const (
	filmWidth, filmHeight = 1280, 720
	framePause            = 500 * time.Millisecond
	backgroundCount       = 8
)

// backgrounds are pictures that all rooms share, so that many rooms need
// little memory.
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

// look returns the frames of the next cycle, fresh of them new.
func (f *film) look(n, fresh int) []inference.Frame {
	for fresh = max(fresh, n-len(f.frames)); fresh > 0; fresh-- {
		f.frames = append(f.frames, inference.Frame{
			PTS: time.Duration(f.next) * framePause, Epoch: 1, Width: filmWidth, Height: filmHeight,
			Pix: f.backgrounds[f.rng.IntN(len(f.backgrounds))],
		})
		f.next++
	}
	f.frames = f.frames[len(f.frames)-n:]
	return slices.Clone(f.frames)
}

// run makes the load.
func (o openLoad) run(ctx context.Context, cycle cycleFunc) (loadRow, error) {
	rng := rand.New(rand.NewPCG(o.Seed, uint64(o.Rooms))) //nolint:gosec // a load, not a secret
	pictures := backgrounds(rng)
	films := make([]*film, o.Rooms)
	for i := range films {
		films[i] = newFilm(o.Seed, uint64(i), pictures) //nolint:gosec // not negative
	}
	var mu sync.Mutex
	row := loadRow{Rooms: o.Rooms}
	underWay := 0
	var work sync.WaitGroup
	start := time.Now()
	one := func(room int, frames []inference.Frame, arrived time.Time) {
		var first time.Duration
		err := cycle(ctx, room, frames, func() { first = time.Since(arrived) })
		whole := time.Since(arrived)
		mu.Lock()
		defer mu.Unlock()
		underWay--
		switch {
		case errors.Is(err, inference.ErrOverloaded):
			row.Dropped++
		case err != nil:
			row.Failed++
			row.Error = cmp.Or(row.Error, err)
		default:
			row.Finished++
			row.First, row.Whole = append(row.First, first), append(row.Whole, whole)
		}
	}
	rate := float64(o.Rooms) / o.Interval.Seconds()
	third := 0
	backlog := func() {
		mu.Lock()
		row.Backlog[third] = underWay
		mu.Unlock()
		third++
	}
	next := start
	for {
		next = next.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		for third < 3 && next.Sub(start) > time.Duration(third+1)*o.Duration/3 {
			if !waitUntil(ctx, start.Add(time.Duration(third+1)*o.Duration/3)) {
				break
			}
			backlog()
		}
		if next.Sub(start) > o.Duration || !waitUntil(ctx, next) {
			break
		}
		room := rng.IntN(o.Rooms)
		frames := films[room].look(o.Frames, o.New)
		mu.Lock()
		row.Arrived++
		underWay++
		mu.Unlock()
		arrived := next
		work.Go(func() { one(room, frames, arrived) })
	}
	work.Wait()
	row.Elapsed = time.Since(start)
	slices.Sort(row.First)
	slices.Sort(row.Whole)
	return row, ctx.Err()
}

// waitUntil is false if ctx ended first.
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
