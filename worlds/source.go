package worlds

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Source plays a world in real time. Run paces it on an absolute schedule: a frame that is late by
// a whole frame or more is skipped, so that the picture never falls behind the clock.
type Source struct {
	world   *World
	skipped atomic.Uint64
}

// NewSource plays the given world.
func NewSource(w *World) *Source { return &Source{world: w} }

// Skipped returns the number of frames that were skipped because the machine, or emit, was too slow.
func (s *Source) Skipped() uint64 { return s.skipped.Load() }

// Run calls emit for every frame when it is due, beginning with frame 0 at once, until ctx ends
// (which is no error) or emit fails. The picture is I420 of the world's size and is overwritten
// after emit returns.
func (s *Source) Run(ctx context.Context, emit func(n uint32, pts time.Duration, i420 []byte) error) error {
	buf := make([]byte, s.world.I420Size())
	for n := 0; s.world.prepare(n); n++ { // otherwise each first cut would be late
	}
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := uint32(0); ; n++ {
		late := time.Since(start.Add(s.world.PTS(n)))
		if frame := s.world.PTS(1); late >= frame {
			gone := uint32(late / frame)
			n += gone
			s.skipped.Add(uint64(gone))
		}
		timer.Reset(time.Until(start.Add(s.world.PTS(n))))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		s.world.render(n, buf)
		if err := emit(n, s.world.PTS(n), buf); err != nil {
			return fmt.Errorf("hand on frame %d: %w", n, err)
		}
	}
}
