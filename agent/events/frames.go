package events

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"touchline/agent"
)

const (
	// frameQueue is the number of cycles whose pictures may wait to be encoded.
	frameQueue = 8
	// framesInFlight is the number of cycles kept beyond the history, whose comments are not finished.
	framesInFlight = 4
	// frameBytes bounds the JPEGs kept.
	frameBytes = 32 << 20
	// alertBytes and alertAge bound the JPEGs of alerts.
	alertBytes = 8 << 20
	alertAge   = 15 * time.Minute
	// MaxFrameSide is the longest side of the pictures kept, in pixels.
	MaxFrameSide = 448
)

// frameStore keeps the pictures of the last comments and alerts, as JPEG.
type frameStore struct {
	keep    int
	quality int
	queue   chan offered
	dropped atomic.Uint64
	running atomic.Bool // run empties the queue

	mu     sync.Mutex
	jpegs  map[uint64][]byte
	cycles [][]uint64 // picture ids by cycle, oldest first
	bytes  int
	alerts []alertFrame // oldest first
}

// offered are the pictures of a cycle, or the one of an alert.
type offered struct {
	frames []agent.SeenFrame
	alert  bool
}

// alertFrame is the picture of an alert.
type alertFrame struct {
	id   uint64
	at   time.Time
	data []byte
}

func newFrameStore(history, quality int) *frameStore {
	return &frameStore{
		keep:    history + framesInFlight,
		quality: quality,
		queue:   make(chan offered, frameQueue),
		jpegs:   map[uint64][]byte{},
	}
}

// offer queues a cycle's pictures, or drops them when the encoder is behind.
// Without an encoder they would only use up memory.
func (s *frameStore) offer(frames []agent.SeenFrame) {
	if len(frames) > 0 {
		s.put(offered{frames: slices.Clone(frames)})
	}
}

// offerAlert queues the picture of an alert as offer does.
func (s *frameStore) offerAlert(frame agent.SeenFrame) {
	s.put(offered{frames: []agent.SeenFrame{frame}, alert: true})
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
			if o.alert {
				s.encodeAlert(o.frames[0], time.Now())
			} else {
				s.encode(ctx, o.frames)
			}
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

// encodeAlert adds the picture of an alert.
func (s *frameStore) encodeAlert(f agent.SeenFrame, now time.Time) {
	data, err := JPEG(f.Frame, MaxFrameSide, s.quality)
	if err != nil {
		s.dropped.Add(1)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alerts = append(s.alerts, alertFrame{f.ID, now, data})
	s.trimAlertsLocked(now)
}

// forgetAlert forgets the picture of an alert.
func (s *frameStore) forgetAlert(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alerts = slices.DeleteFunc(s.alerts, func(a alertFrame) bool { return a.id == id })
}

// trimAlertsLocked forgets the pictures of alerts that are too old or too many.
func (s *frameStore) trimAlertsLocked(now time.Time) {
	size, from := 0, len(s.alerts)
	for from > 0 {
		a := s.alerts[from-1]
		if size += len(a.data); size > alertBytes || now.Sub(a.at) > alertAge {
			break
		}
		from--
	}
	s.alerts = slices.Delete(s.alerts, 0, from)
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
	s.trimAlertsLocked(time.Now())
	for _, a := range s.alerts {
		if a.id == id {
			return a.data, true
		}
	}
	return nil, false
}
