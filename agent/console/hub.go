package console

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"touchline/agent"
)

// Bounds of a Hub.
const (
	// queueSize is how many items a reader may be behind before it loses the oldest.
	queueSize = 500
	// replaySize is how many past items are kept for readers that come back.
	replaySize = 500
)

// readerKind is which endpoint a reader came by.
type readerKind int

const (
	eventReader  readerKind = iota // /api/events
	streamReader                   // /api/stream
	readerKinds
)

// item is one event, ready to be sent; it is shared by all readers and never changed.
type item struct {
	id     uint64 // 0: a snapshot, which is not repeated
	event  []byte // as /api/events has it
	stream []byte // as /api/stream has it; nil when it is not for it
	// state is what it tells the state of, "" when it tells what happened. Who
	// has not read an older one of the same needs it no more.
	state string
	comment
}

// comment marks the record of a comment, which the history holds as well.
type comment struct{ record bool }

// HubOptions make a Hub.
type HubOptions struct {
	// History is how many comments a late joiner is shown, 0 for none; 20 when negative.
	History int
	// JPEGQuality of the pictures kept, 1 to 100; 80 when 0.
	JPEGQuality int
}

// Hub takes what a session has to say and hands it to any number of readers,
// each with a bounded queue of its own: a slow one loses its oldest items and
// is told how many. It remembers the last comments and the pictures they are
// about. It is an agent.TextOutput and an agent.FrameOutput; none of its
// methods ever waits for a reader.
type Hub struct {
	frames *frameStore
	keep   int

	mu      sync.Mutex
	room    string // its name, which the events tell; "" when they do not
	all     *Hub   // takes the events of all rooms; nil when there is only one
	metrics []*cycleMetrics
	next    uint64
	first   uint64 // the first id of this Hub
	replay  []*item
	history []agent.Record
	last    agent.Record // the last comment
	open    [readerKinds]map[*reader]struct{}
	lost    [readerKinds]uint64
}

var (
	_ agent.TextOutput  = (*Hub)(nil)
	_ agent.FrameOutput = (*Hub)(nil)
)

// NewHub makes a Hub. Its pictures are encoded while the Server it was given
// to runs.
func NewHub(opts HubOptions) *Hub {
	if opts.History < 0 {
		opts.History = 20
	}
	if opts.JPEGQuality <= 0 {
		opts.JPEGQuality = 80
	}
	h := &Hub{
		frames: newFrameStore(opts.History, opts.JPEGQuality),
		keep:   opts.History,
		// Ids go on counting up across a restart, so that a reader that comes
		// back with an old one is not taken for one of now.
		first: uint64(time.Now().UnixMilli()) * 1000,
	}
	h.next = h.first
	for k := range h.open {
		h.open[k] = map[*reader]struct{}{}
	}
	return h
}

// settle makes it the hub of a room: its events name the room and go to all's
// readers as well, its cycles are counted in m.
func (h *Hub) settle(room string, all *Hub, m ...*cycleMetrics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.room, h.all, h.metrics = room, all, m
}

// run encodes pictures until ctx ends.
func (h *Hub) run(ctx context.Context) error { return h.frames.run(ctx) }

// Caption hands on one step of an utterance's text.
func (h *Hub) Caption(c agent.Caption) {
	it := &item{}
	if c.Delta != "" {
		it.stream = dataLines(c.Delta)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	it.event = sse("caption", named(h.room, marshal(c)))
	h.publishLocked(it)
}

// Record hands on what a cycle did, and remembers it if it was a comment.
func (h *Hub) Record(r agent.Record) {
	data := marshal(r)
	it := &item{stream: dataLines(string(data)), comment: comment{r.IsComment()}}
	h.mu.Lock()
	defer h.mu.Unlock()
	it.event = sse("record", named(h.room, data))
	for _, m := range h.metrics {
		m.observe(r)
	}
	if it.record {
		h.last = r
		h.history = append(h.history, r)
		if n := len(h.history) - h.keep; n > 0 {
			h.history = slices.Delete(h.history, 0, n)
		}
	}
	h.publishLocked(it)
}

// State hands on what the bot does right now.
func (h *Hub) State(s agent.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked(&item{event: sse("status", named(h.room, marshal(s)))})
}

// Frames takes the pictures of a look. They are encoded later, elsewhere; when
// that falls behind, they are dropped and counted. Without a running Server
// nobody can ask for them, and they are not kept.
func (h *Hub) Frames(cycle uint64, frames []agent.SeenFrame) { h.frames.offer(cycle, frames) }

// EndStreams ends the answers of /api/stream: the commentary was stopped.
// Readers of /api/events stay. The Server calls it on POST /api/stop; whoever
// else stops the commentary (an order from the room) calls it then.
func (h *Hub) EndStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.open[streamReader] {
		r.finish()
	}
}

// History returns the last comments, oldest first.
func (h *Hub) History() []agent.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]agent.Record{}, h.history...)
}

// newest returns the last comment.
func (h *Hub) newest() (agent.Record, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.last.IsComment()
}

// Remember puts comments of an earlier run, oldest first, before those of this
// one. Their cycles' and pictures' numbers began anew since: they are taken
// off. Readers that are there already are sent the whole history again.
func (h *Hub) Remember(past []agent.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	past = past[max(0, len(past)-max(0, h.keep-len(h.history))):]
	if len(past) == 0 {
		return
	}
	all := make([]agent.Record, 0, len(past)+len(h.history))
	for _, r := range past {
		r.Cycle, r.FrameIDs = 0, []uint64{}
		all = append(all, r)
	}
	if !h.last.IsComment() {
		h.last = all[len(all)-1]
	}
	h.history = append(all, h.history...)
	h.pushLocked(&item{event: sse("history", marshal(h.history)), state: "history"})
}

// watchSnapshots sends what look returns, when it has changed and somebody
// reads: once a second, and at once at a kick. It returns nil when ctx ends.
func (h *Hub) watchSnapshots(ctx context.Context, event string, kick <-chan struct{}, look func() []byte) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-kick:
		}
		if h.readers(eventReader) == 0 {
			continue
		}
		if data := look(); string(data) != last {
			last = string(data)
			h.publishSnapshot(event, data)
		}
	}
}

// publishSnapshot sends a snapshot to the page's readers, as the event of that
// name. It has no id and is not repeated.
func (h *Hub) publishSnapshot(event string, data []byte) {
	h.push(&item{event: sse(event, data), state: event})
}

// push sends items that have no id to the page's readers.
func (h *Hub) push(items ...*item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range items {
		h.pushLocked(it)
	}
}

// repeat hands on an event of one room to the readers of all.
func (h *Hub) repeat(event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked(&item{event: event})
}

func (h *Hub) publishLocked(it *item) {
	if h.all != nil {
		h.all.repeat(it.event)
	}
	h.next++
	it.id = h.next
	it.event = slices.Concat([]byte("id: "+strconv.FormatUint(it.id, 10)+"\n"), it.event)
	if len(h.replay) == replaySize {
		h.replay = slices.Delete(h.replay, 0, 1)
	}
	h.replay = append(h.replay, it)
	h.pushLocked(it)
}

func (h *Hub) pushLocked(it *item) {
	for r := range h.open[eventReader] {
		h.lost[eventReader] += r.push(it)
	}
	if it.stream == nil {
		return
	}
	for r := range h.open[streamReader] {
		h.lost[streamReader] += r.push(it)
	}
}

// readers counts the open readers of a kind.
func (h *Hub) readers(k readerKind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open[k])
}

func (h *Hub) lostItems(k readerKind) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[k]
}

// join adds a reader, or returns nil when there are too many. For a reader of
// events that comes back, after is the last id it saw (0: none): history is
// then nil if everything it missed is still known and queued, else it is what
// to start from.
func (h *Hub) join(k readerKind, after uint64) (r *reader, history []agent.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open[k]) >= maxStreams {
		return nil, nil
	}
	r = &reader{wake: make(chan struct{}, 1)}
	h.open[k][r] = struct{}{}
	if k != eventReader {
		return r, nil
	}
	known := after > h.first && after <= h.next
	complete := known && (after == h.next || h.replay[0].id <= after+1)
	if known {
		if !complete {
			r.lost = h.replay[0].id - after - 1
			h.lost[k] += r.lost
		}
		for _, it := range h.replay {
			// A comment is in the history, if that is sent and kept.
			if it.id > after && (complete || !it.record || h.keep == 0) {
				r.push(it)
			}
		}
	}
	if complete {
		return r, nil
	}
	return r, append([]agent.Record{}, h.history...)
}

func (h *Hub) leave(k readerKind, r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open[k], r)
}

// reader is one reader's queue. The Hub pushes under its own lock; the
// reader's goroutine takes.
type reader struct {
	wake chan struct{}

	mu    sync.Mutex
	queue []*item
	lost  uint64 // items that told what happened
	stale bool   // or a state
	ended bool
}

// push adds an item; when the queue is full the oldest goes, and 1 is returned
// if that told what happened.
func (r *reader) push(it *item) (lost uint64) {
	r.mu.Lock()
	if it.state != "" {
		r.queue = slices.DeleteFunc(r.queue, func(old *item) bool { return old.state == it.state })
	}
	if len(r.queue) >= queueSize {
		r.stale = true
		if r.queue[0].state == "" {
			lost = 1
		}
		r.queue = slices.Delete(r.queue, 0, 1)
		r.lost += lost
	}
	r.queue = append(r.queue, it)
	r.mu.Unlock()
	r.signal()
	return lost
}

// finish lets the reader end once it has read what is queued.
func (r *reader) finish() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.signal()
}

func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take empties the queue. lost items were older than those returned; stale tells
// that some were, and that what stands may have been told by them.
func (r *reader) take() (items []*item, lost uint64, stale, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	items, lost, stale, ended = r.queue, r.lost, r.stale, r.ended
	r.queue, r.lost, r.stale = nil, 0, false
	return items, lost, stale, ended
}

// sse formats an event.
func sse(name string, data []byte) []byte {
	return slices.Concat([]byte("event: "+name+"\n"), dataLines(string(data)))
}

// dataLines formats an unnamed event; each line of the text gets a data line
// of its own, as the format wants it.
func dataLines(text string) []byte {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	var b bytes.Buffer
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString("data: ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// named adds the room's name to an object.
func named(room string, object []byte) []byte {
	if room == "" || len(object) < 3 {
		return object
	}
	return slices.Concat([]byte(`{"room":`), marshal(room), []byte(","), object[1:])
}

// marshal writes a value of the vocabulary as JSON. What JSON has no word for
// (a not-a-number among the figures) becomes an object that says so.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return b
}
