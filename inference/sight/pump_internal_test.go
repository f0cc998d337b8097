package sight

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
)

const everyLook = 400 * time.Millisecond

// seen is one look of a test.
type seen struct {
	pts    time.Duration
	effort effort
	began  time.Time
}

// slowly returns a look that takes a time of its effort, and the looks so far; read them when none runs.
func slowly(took func(e effort) time.Duration) (look func(inference.Frame, effort) error, looks *[]seen) {
	looks = new([]seen)
	return func(f inference.Frame, e effort) error {
		*looks = append(*looks, seen{f.PTS, e, time.Now()})
		time.Sleep(took(e))
		return nil
	}, looks
}

// feed offers pictures, 200 ms apart, for a time.
func feed(p *pump, from, length time.Duration) {
	for at := from; at < from+length; at += 200 * time.Millisecond {
		p.offer(inference.Frame{PTS: at, Epoch: 1}, false)
		time.Sleep(200 * time.Millisecond)
	}
}

func TestPumpLooksAtEverySecondPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look, looks := slowly(func(effort) time.Duration { return 60 * time.Millisecond })
		p := newPump(make(chan struct{}, 1), everyLook, look)
		feed(p, 0, 10*time.Second)
		p.close()
		require.Len(t, *looks, 25)
		for i, s := range *looks {
			require.Equal(t, time.Duration(i)*everyLook, s.pts)
			require.Equal(t, full, s.effort)
		}
	})
}

// Slow looks take the newest picture, and lose first the parts, then half the rate, then the text; with time they get them back.
func TestPumpLowersTheEffort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := true
		look, looks := slowly(func(effort) time.Duration {
			if slow {
				return 1900 * time.Millisecond
			}
			return 10 * time.Millisecond
		})
		p := newPump(make(chan struct{}, 1), everyLook, look)
		feed(p, 0, 30*time.Second)
		require.NoError(t, p.settle(t.Context()))
		var efforts []effort
		for i, s := range *looks {
			if i > 0 {
				require.GreaterOrEqual(t, s.pts-(*looks)[i-1].pts, everyLook)
				require.LessOrEqual(t, s.effort-(*looks)[i-1].effort, noText-halfRate, "one step at a time")
			}
			efforts = append(efforts, s.effort)
		}
		require.Equal(t, full, efforts[0])
		require.Equal(t, noText, efforts[len(efforts)-1])

		slow = false
		feed(p, 30*time.Second, 3*time.Minute)
		p.close()
		require.Equal(t, full, (*looks)[len(*looks)-1].effort)
	})
}

// Rooms that share a slot take turns.
func TestPumpsShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 1)
		running, most := 0, 0
		look := func(inference.Frame, effort) error {
			running++
			most = max(most, running)
			time.Sleep(100 * time.Millisecond)
			running--
			return nil
		}
		counts := make([]int, 3)
		var pumps []*pump
		for i := range counts {
			pumps = append(pumps, newPump(slots, everyLook, func(f inference.Frame, e effort) error {
				counts[i]++
				return look(f, e)
			}))
		}
		for at := time.Duration(0); at < 8*time.Second; at += everyLook {
			for _, p := range pumps {
				p.offer(inference.Frame{PTS: at}, false)
			}
			time.Sleep(everyLook)
		}
		for _, p := range pumps {
			p.close()
		}
		require.Equal(t, 1, most)
		require.Equal(t, []int{20, 20, 20}, counts)
	})
}

// Eight rooms whose looks do not fit into one slot: each gives up the parts, then half its rate, and keeps its text. None gets fewer looks
// than the others, or waits for long. With half the work they are whole again.
func TestManyRoomsShareFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rooms, heavy, light = 8, 2 * time.Minute, 6 * time.Minute
		slots := make(chan struct{}, 1)
		looks := make([][]seen, rooms)
		var work sync.WaitGroup
		began := time.Now()
		for i := range rooms {
			p := newPump(slots, everyLook, func(f inference.Frame, e effort) error {
				looks[i] = append(looks[i], seen{f.PTS, e, time.Now()})
				took := 60 * time.Millisecond
				if e == full {
					took = 150 * time.Millisecond
				}
				if time.Since(began) > heavy {
					took /= 10
				}
				time.Sleep(took)
				return nil
			})
			work.Go(func() {
				time.Sleep(time.Duration(i) * 23 * time.Millisecond)
				feed(p, 0, heavy+light)
				p.close()
			})
		}
		work.Wait()
		var counts []int
		for _, of := range looks {
			n := 0
			for i, s := range of {
				if i > 0 {
					require.Less(t, s.began.Sub(of[i-1].began), 2*time.Second)
				}
				switch since := s.began.Sub(began); {
				case since > 10*time.Second && since < heavy:
					n++
					require.NotEqual(t, full, s.effort)
					fallthrough
				case since < heavy:
					require.NotEqual(t, noText, s.effort)
				}
			}
			counts = append(counts, n)
			require.Equal(t, full, of[0].effort)
			require.Equal(t, full, of[len(of)-1].effort)
		}
		t.Log(counts)
		require.GreaterOrEqual(t, slices.Min(counts)*10, slices.Max(counts)*9)
	})
}

func TestPumpOffersAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("the network failed")
		var result error
		var looks []inference.Frame
		p := newPump(make(chan struct{}, 1), everyLook, func(f inference.Frame, _ effort) error {
			looks = append(looks, f)
			if f.PTS == time.Hour {
				panic("a fault")
			}
			time.Sleep(time.Second)
			return result
		})
		require.NoError(t, p.settle(t.Context()), "nothing to wait for")
		p.offer(inference.Frame{PTS: time.Minute}, false)
		p.offer(inference.Frame{PTS: time.Minute + 100*time.Millisecond}, false)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		require.ErrorIs(t, p.settle(ctx), context.DeadlineExceeded)
		cancel()
		require.NoError(t, p.settle(t.Context()))
		require.Len(t, looks, 1, "the second was not due")
		p.offer(inference.Frame{PTS: time.Minute + 100*time.Millisecond}, true)
		p.offer(inference.Frame{PTS: time.Minute + 100*time.Millisecond}, true)
		require.NoError(t, p.settle(t.Context()))
		require.Len(t, looks, 2, "by force, once")

		result = failed
		p.offer(inference.Frame{PTS: 0, Epoch: 1}, false)
		require.ErrorIs(t, p.settle(t.Context()), failed, "another source, whose time is older")
		p.offer(inference.Frame{PTS: time.Hour, Epoch: 1}, false)
		require.ErrorContains(t, p.settle(t.Context()), "a fault")
		result = nil
		p.offer(inference.Frame{PTS: 2 * time.Hour, Epoch: 1}, false)
		require.NoError(t, p.settle(t.Context()), "a look that works ends the failure")

		p.offer(inference.Frame{PTS: 3 * time.Hour, Epoch: 1}, false)
		synctest.Wait()
		p.offer(inference.Frame{PTS: 4 * time.Hour, Epoch: 1}, false)
		p.close()
		require.Len(t, looks, 6, "a picture that waits at the end is dropped")
		p.offer(inference.Frame{PTS: 5 * time.Hour, Epoch: 1}, false)
		_ = p.settle(t.Context())
	})
}
