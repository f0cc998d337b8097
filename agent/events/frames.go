package events

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"touchline/media/window"
)

const (
	// frameQueue is the number of cycles whose pictures may wait to be encoded.
	frameQueue = 8
	// framesInFlight is the number of cycles with unfinished comments whose pictures are stored beyond the history.
	framesInFlight = 4
	// frameBytes bounds the stored JPEGs.
	frameBytes = 32 << 20
	// MaxFrameSide is the longest side of a stored picture, in pixels.
	MaxFrameSide = 448
)

// frameStore stores the pictures of the latest comments as JPEG, and encodes the pictures of alerts.
type frameStore struct {
	keep    int
	quality int
	queue   chan offered
	dropped atomic.Uint64
	running atomic.Bool // run empties the queue

	// alertPicture receives the frame of an alert.
	alertPicture func(id string, jpeg []byte, now time.Time)

	mu     sync.Mutex
	jpegs  map[uint64][]byte
	cycles [][]uint64 // picture ids by cycle, oldest first
	bytes  int
}

// offered are the pictures of a cycle or the picture of an alert.
type offered struct {
	frames []window.Frame
	alert  string // its id
}

func newFrameStore(history, quality int) *frameStore {
	return &frameStore{
		keep:    history + framesInFlight,
		quality: quality,
		queue:   make(chan offered, frameQueue),
		jpegs:   map[uint64][]byte{},
	}
}

// offer queues a cycle's pictures, or drops them if the encoder is behind or not running.
func (s *frameStore) offer(frames []window.Frame) {
	if len(frames) > 0 {
		s.put(offered{frames: slices.Clone(frames)})
	}
}

// offerAlert queues the picture of an alert as offer does.
func (s *frameStore) offerAlert(id string, frame window.Frame) {
	s.put(offered{frames: []window.Frame{frame}, alert: id})
}

func (s *frameStore) put(o offered) {
	if !s.running.Load() {
		return
	}
	select {
	case s.queue <- o:
	default:
		s.dropped.Add(uint64(len(o.frames)))
	}
}

func (s *frameStore) run(ctx context.Context) error {
	s.running.Store(true)
	defer s.running.Store(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-s.queue:
			if o.alert != "" {
				s.encodeAlert(o.alert, o.frames[0])
			} else {
				s.encode(ctx, o.frames)
			}
		}
	}
}

// encode adds a cycle's pictures. It encodes a picture that several cycles share once.
func (s *frameStore) encode(ctx context.Context, frames []window.Frame) {
	made := map[uint64][]byte{}
	ids := make([]uint64, 0, len(frames))
	for _, f := range frames {
		if ctx.Err() != nil {
			return
		}
		if _, known := s.get(f.ID); !known {
			data, err := JPEG(f.VideoFrame, MaxFrameSide, s.quality)
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

// encodeAlert encodes the picture of an alert.
func (s *frameStore) encodeAlert(id string, f window.Frame) {
	data, err := JPEG(f.VideoFrame, MaxFrameSide, s.quality)
	if err != nil {
		s.dropped.Add(1)
		return
	}
	s.alertPicture(id, data, time.Now())
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
	if data, ok := s.jpegs[id]; ok {
		return data, true
	}
	return nil, false
}
