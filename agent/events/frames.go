package events

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"touchline/agent"
)

const (
	// frameQueue is the number of cycles whose pictures may wait to be encoded.
	frameQueue = 8
	// framesInFlight is the number of cycles kept beyond the history, whose comments are not finished.
	framesInFlight = 4
	// frameBytes bounds the JPEGs kept.
	frameBytes = 32 << 20
	// MaxFrameSide is the longest side of the pictures kept, in pixels.
	MaxFrameSide = 448
)

// frameStore keeps the pictures of the last comments, as JPEG.
type frameStore struct {
	keep    int
	quality int
	queue   chan []agent.SeenFrame // by cycle
	dropped atomic.Uint64
	running atomic.Bool // run empties the queue

	mu     sync.Mutex
	jpegs  map[uint64][]byte
	cycles [][]uint64 // picture ids by cycle, oldest first
	bytes  int
}

func newFrameStore(history, quality int) *frameStore {
	return &frameStore{
		keep:    history + framesInFlight,
		quality: quality,
		queue:   make(chan []agent.SeenFrame, frameQueue),
		jpegs:   map[uint64][]byte{},
	}
}

// offer queues a cycle's pictures, or drops them when the encoder is behind.
// Without an encoder they would only use up memory.
func (s *frameStore) offer(frames []agent.SeenFrame) {
	if len(frames) == 0 || !s.running.Load() {
		return
	}
	select {
	case s.queue <- slices.Clone(frames):
	default:
		s.dropped.Add(uint64(len(frames)))
	}
}

func (s *frameStore) run(ctx context.Context) error {
	s.running.Store(true)
	defer s.running.Store(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case frames := <-s.queue:
			s.encode(ctx, frames)
		}
	}
}

// encode adds a cycle's pictures. One that an earlier cycle shares is not
// encoded again.
func (s *frameStore) encode(ctx context.Context, frames []agent.SeenFrame) {
	made := map[uint64][]byte{}
	ids := make([]uint64, 0, len(frames))
	for _, f := range frames {
		if ctx.Err() != nil {
			return
		}
		if _, known := s.get(f.ID); !known {
			data, err := JPEG(f.Frame, MaxFrameSide, s.quality)
			if err != nil {
				s.dropped.Add(1)
				continue
			}
			made[f.ID] = data
		}
		ids = append(ids, f.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, data := range made {
		s.jpegs[id] = data
		s.bytes += len(data)
	}
	s.cycles = append(s.cycles, ids)
	for len(s.cycles) > 0 && (len(s.cycles) > s.keep || s.bytes > frameBytes) {
		s.forgetOldestLocked()
	}
}

func (s *frameStore) forgetOldestLocked() {
	old := s.cycles[0]
	s.cycles = slices.Delete(s.cycles, 0, 1)
	for _, id := range old {
		if slices.ContainsFunc(s.cycles, func(ids []uint64) bool { return slices.Contains(ids, id) }) {
			continue
		}
		s.bytes -= len(s.jpegs[id])
		delete(s.jpegs, id)
	}
}

func (s *frameStore) get(id uint64) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.jpegs[id]
	return data, ok
}
