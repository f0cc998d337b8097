package console

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"touchline/agent"
)

const (
	// frameQueue is how many looks may wait to be encoded.
	frameQueue = 8
	// framesInFlight is how many looks are kept beyond the history: their comments are still to come.
	framesInFlight = 4
	// frameBytes bounds the JPEGs kept.
	frameBytes = 32 << 20
)

// look is the pictures of one look.
type look struct {
	cycle  uint64
	frames []agent.SeenFrame
}

// frameStore keeps the pictures that the last comments are about, as JPEG.
type frameStore struct {
	keep    int
	quality int
	queue   chan look
	dropped atomic.Uint64
	running atomic.Bool // somebody empties the queue

	mu    sync.Mutex
	jpegs map[uint64][]byte
	looks [][]uint64 // ids by look, oldest first
	bytes int
}

func newFrameStore(history, quality int) *frameStore {
	return &frameStore{
		keep:    history + framesInFlight,
		quality: quality,
		queue:   make(chan look, frameQueue),
		jpegs:   map[uint64][]byte{},
	}
}

// offer queues a look's pictures, or drops them when the encoder is behind.
// Without a page nobody takes them, and they would only use up memory.
func (s *frameStore) offer(cycle uint64, frames []agent.SeenFrame) {
	if len(frames) == 0 || !s.running.Load() {
		return
	}
	select {
	case s.queue <- look{cycle, slices.Clone(frames)}:
	default:
		s.dropped.Add(uint64(len(frames)))
	}
}

// start says that run follows.
func (s *frameStore) start() { s.running.Store(true) }

func (s *frameStore) run(ctx context.Context) error {
	defer s.running.Store(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-s.queue:
			s.encode(ctx, l)
		}
	}
}

// encode adds a look's pictures; one that is kept already, from a look that
// shared it, is not encoded again.
func (s *frameStore) encode(ctx context.Context, l look) {
	made := map[uint64][]byte{}
	ids := make([]uint64, 0, len(l.frames))
	for _, f := range l.frames {
		if ctx.Err() != nil {
			return
		}
		if !s.has(f.ID) {
			data, err := encodeJPEG(f.Frame, maxSide, s.quality)
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
	s.looks = append(s.looks, ids)
	for len(s.looks) > 0 && (len(s.looks) > s.keep || s.bytes > frameBytes) {
		s.forgetOldestLocked()
	}
}

func (s *frameStore) forgetOldestLocked() {
	old := s.looks[0]
	s.looks = slices.Delete(s.looks, 0, 1)
	for _, id := range old {
		if slices.ContainsFunc(s.looks, func(ids []uint64) bool { return slices.Contains(ids, id) }) {
			continue
		}
		s.bytes -= len(s.jpegs[id])
		delete(s.jpegs, id)
	}
}

func (s *frameStore) has(id uint64) bool {
	_, ok := s.get(id)
	return ok
}

func (s *frameStore) get(id uint64) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.jpegs[id]
	return data, ok
}
