package events

import (
	"slices"
	"strconv"
	"sync"

	"touchline/internal/wake"
)

// Reader is one reader's queue. The Hub pushes to it, and one goroutine takes from it.
type Reader struct {
	hub    *Hub
	format Format
	hears  bool // it gets people's speech
	wake   wake.Signal

	mu    sync.Mutex
	queue []*item
	lost  uint64 // events dropped, without snapshots
	stale bool   // a snapshot may be among the dropped items
	ended bool
}

// Batch holds the queued events of a Reader.
type Batch struct {
	// Events are server-sent events, ready to be written. If events were dropped, the first is a "lost" event with their
	// number.
	Events [][]byte
	// Stale is true when a snapshot may have been dropped: the reader needs the full state again.
	Stale bool
	// Ended is true for the last batch.
	Ended bool
}

func newReader(h *Hub, f Format, hears bool) *Reader {
	return &Reader{hub: h, format: f, hears: hears, wake: wake.New()}
}

// Ready returns a channel that receives a value when Take has events.
func (r *Reader) Ready() <-chan struct{} { return r.wake }

// Close removes the reader from its Hub.
func (r *Reader) Close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	delete(r.hub.open[r.format], r)
}

// push adds an item. A full queue drops the oldest item, and push returns 1 unless that was a snapshot. A full queue accepts
// no interim text, because the final text follows.
func (r *Reader) push(it *item) (lost uint64) {
	if it.heard && !r.hears {
		return 0
	}
	r.mu.Lock()
	if it.key != "" {
		r.queue = slices.DeleteFunc(r.queue, func(old *item) bool { return old.key == it.key })
	}
	if len(r.queue) >= QueueSize && it.heard && it.id == 0 {
		r.mu.Unlock()
		return 0
	}
	if len(r.queue) >= QueueSize {
		r.stale = true
		if r.queue[0].key == "" || r.queue[0].id != 0 {
			lost = 1
		}
		r.queue = slices.Delete(r.queue, 0, 1)
		r.lost += lost
	}
	r.queue = append(r.queue, it)
	r.mu.Unlock()
	r.wake.Set()
	return lost
}

// end makes the reader end after its queued events.
func (r *Reader) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.wake.Set()
}

// Take empties the queue.
func (r *Reader) Take() Batch {
	r.mu.Lock()
	items, lost := r.queue, r.lost
	b := Batch{Stale: r.stale, Ended: r.ended}
	r.queue, r.lost, r.stale = nil, 0, false
	r.mu.Unlock()
	if lost > 0 {
		b.Events = append(b.Events, SSE("lost", []byte(`{"count":`+strconv.FormatUint(lost, 10)+`}`)))
	}
	for _, it := range items {
		data := it.named
		if r.format == Plain {
			data = it.plain
		}
		b.Events = append(b.Events, data)
	}
	return b
}
