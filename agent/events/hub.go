// Package events fans out the captions, records, states and pictures of one session to its readers.
//
// It owns the readers' bounded queues, the backlog for readers that reconnect, the last comments and their pictures. It
// never waits for a reader and decides nothing about the commentary. It has no HTTP: an adapter subscribes and writes to
// its client.
package events

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/media/window"
)

// Bounds of a Hub.
const (
	// QueueSize is the length of a reader's queue. Beyond it, the reader loses the oldest items.
	QueueSize = 500
	// BacklogSize is the number of past items for readers that reconnect.
	BacklogSize = 500
	// HeardSize is the number of final texts of people's speech for readers that join.
	HeardSize = 20
)

// Format is the format of the server-sent events for a reader.
type Format int

const (
	// Named events have a name, and an id unless they are snapshots: captions, records, states.
	Named Format = iota
	// Plain events have neither: text as it is generated, then each cycle's record.
	Plain
	// Formats is the number of formats.
	Formats
)

// item is one event, ready to be sent. Readers share it and never change it.
type item struct {
	id      uint64 // 0: a snapshot, which is not in the backlog
	named   []byte
	plain   []byte // nil for named readers only
	key     string // see Event.Key
	comment bool   // a comment's record, which the history has too
	heard   bool   // speech of a person, for readers with the right only
	by      string // the speaker
	author  string // of the instruction in a record, whose JSON is asked
	asked   []byte
	room    string // of speech, and of a record with an instruction
}

// Options configure a Hub.
type Options struct {
	// History is the number of comments for readers that join, 0 for none; 20 when negative.
	History int
	// JPEGQuality of the stored pictures, 1 to 100; 80 when 0.
	JPEGQuality int
}

// Hub fans out captions, records, states and pictures of one session. Each reader has a bounded queue: a slow reader loses
// its oldest items, and gets their number. A Hub is an agent.TextOutput and an agent.FrameOutput. It is safe for concurrent
// use, and no method waits for a reader.
type Hub struct {
	frames *frameStore
	alerts alertStore
	keep   int

	mu       sync.Mutex
	room     string // named in the events unless ""
	all      *Hub   // also gets this room's events; nil when there is one room
	observe  []func(look.Record)
	next     uint64
	first    uint64 // the id before the first item's
	backlog  []*item
	comments []look.Record
	last     look.Record // the last comment
	heard    []heardText // the last final texts of people's speech
	open     [Formats]map[*Reader]struct{}
	lost     [Formats]uint64
}

var (
	_ agent.TextOutput  = (*Hub)(nil)
	_ agent.FrameOutput = (*Hub)(nil)
	_ agent.AlertOutput = (*Hub)(nil)
	_ agent.HeardOutput = (*Hub)(nil)
)

// NewHub makes a Hub. It stores pictures only while Run runs.
func NewHub(opts Options) *Hub {
	if opts.History < 0 {
		opts.History = 20
	}
	if opts.JPEGQuality <= 0 {
		opts.JPEGQuality = 80
	}
	h := &Hub{
		frames: newFrameStore(opts.History, opts.JPEGQuality),
		keep:   opts.History,
		// Ids keep growing across restarts, so that this run does not reuse an id of an earlier run.
		first: uint64(time.Now().UnixMilli()) * 1000,
	}
	h.frames.alertPicture = h.alerts.picture
	h.next = h.first
	for f := range h.open {
		h.open[f] = map[*Reader]struct{}{}
	}
	return h
}

// Bind makes h the hub of a room: its events name the room and also go to the readers of all (nil for none), and each
// record goes to observe.
func (h *Hub) Bind(room string, all *Hub, observe ...func(look.Record)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.room, h.all, h.observe = room, all, observe
}

// Run encodes pictures until ctx ends.
func (h *Hub) Run(ctx context.Context) error { return h.frames.run(ctx) }

// Caption publishes one step of an utterance's text.
func (h *Hub) Caption(c agent.Caption) {
	it := &item{}
	if c.Delta != "" {
		it.plain = dataLines(c.Delta)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	it.named = SSE("caption", withRoom(h.room, JSON(c)))
	h.publishLocked(it)
}

// Record publishes the record of a cycle, and stores it if it is a comment.
func (h *Hub) Record(r look.Record) {
	data := JSON(r)
	it := &item{plain: dataLines(string(data)), comment: r.IsComment()}
	h.mu.Lock()
	defer h.mu.Unlock()
	it.named = SSE("record", withRoom(h.room, data))
	if r.Instruction != "" {
		it.author, it.room, it.asked = r.InstructionBy, h.room, slices.Concat([]byte(`"instruction":`), JSON(r.Instruction), []byte(","))
	}
	for _, f := range h.observe {
		f(r)
	}
	if it.comment {
		h.last = r
		h.comments = append(h.comments, r)
		if n := len(h.comments) - h.keep; n > 0 {
			h.comments = slices.Delete(h.comments, 0, n)
		}
	}
	h.publishLocked(it)
}

// State publishes the session's state.
func (h *Hub) State(s agent.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked(&item{named: SSE("status", withRoom(h.room, JSON(s)))})
}

// Alert publishes a phase of an alert, and stores the frame of a new alert for a while.
func (h *Hub) Alert(a alert.Alert, frame *window.Frame) {
	h.alerts.take(a)
	if frame != nil {
		h.frames.offerAlert(a.ID, *frame)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked(&item{named: SSE("alert", withRoom(h.room, JSON(a)))})
}

// Heard publishes the speech of a person to the readers with the right to it. An interim text is a snapshot, which a later text
// of its segment replaces.
func (h *Hub) Heard(said agent.Heard) {
	data := JSON(said)
	h.mu.Lock()
	defer h.mu.Unlock()
	it := &item{
		named: SSE("heard", withRoom(h.room, data)), key: "heard " + said.Segment + " " + h.room,
		heard: true, by: said.Identity, room: h.room,
	}
	if !said.Final {
		h.pushLocked(it)
		if h.all != nil {
			h.all.push(it)
		}
		return
	}
	h.heard = slices.DeleteFunc(h.heard, func(old heardText) bool { return old.said.Segment == said.Segment })
	if said.Text != "" { // an empty text removes the caption
		kept := *it
		h.heard = append(h.heard[max(0, len(h.heard)+1-HeardSize):], heardText{&kept, said})
	}
	h.publishLocked(it)
}

// heardText is the speech of a person, and its event for readers that join.
type heardText struct {
	item *item
	said agent.Heard
}

// ForgetHeard deletes the speech of an identity, or of all if it is "". Readers get each stored text again without words, and
// readers that reconnect get no text. Records lose the instructions that were given in the room.
func (h *Hub) ForgetHeard(by string) {
	h.mu.Lock()
	kept, room, all := slices.Clone(h.heard), h.room, h.all
	forget := func(r *look.Record) {
		if r.Cycle == 0 || prompt.GaveInRoom(r.InstructionBy, by) { // the author of an earlier run is not known
			r.Instruction = ""
		}
	}
	forget(&h.last)
	for i := range h.comments {
		forget(&h.comments[i])
	}
	h.mu.Unlock()
	h.clearHeard(room, by)
	if all != nil {
		all.clearHeard(room, by)
	}
	for _, k := range kept {
		if by == "" || k.said.Identity == by {
			k.said.Text, k.said.Order = "", nil
			h.Heard(k.said)
		}
	}
}

// clearHeard empties the speech events of a room in the backlog, or only those of the identity by, and removes the instructions that were
// given in the room from records.
func (h *Hub) clearHeard(room, by string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, it := range h.backlog {
		switch {
		case it.heard && it.room == room && (by == "" || it.by == by):
			h.backlog[i] = &item{id: it.id, named: []byte("id: " + strconv.FormatUint(it.id, 10) + "\n\n"), heard: true}
		case it.asked != nil && it.room == room && prompt.GaveInRoom(it.author, by):
			h.backlog[i] = &item{id: it.id, named: bytes.Replace(it.named, it.asked, nil, 1), comment: it.comment}
		}
	}
}

// Frames receives the pictures of a cycle. Run encodes them later; if it falls behind, they are dropped and counted. While Run
// does not run, they are not stored.
func (h *Hub) Frames(_ uint64, frames []window.Frame) { h.frames.offer(frames) }

// Frame returns a picture of a stored comment or alert as JPEG; false if it is not stored.
func (h *Hub) Frame(id uint64) (data []byte, ok bool) {
	if data, ok = h.frames.get(id); ok {
		return data, true
	}
	return h.alerts.byFrame(id)
}

// FramesDropped is the number of pictures that were dropped because encoding fell behind.
func (h *Hub) FramesDropped() uint64 { return h.frames.dropped.Load() }

// EndStreams ends plain readers once they have read their queues, because the commentary was stopped. Named readers stay.
func (h *Hub) EndStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.open[Plain] {
		r.end()
	}
}

// History returns the last comments, oldest first.
func (h *Hub) History() []look.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]look.Record{}, h.comments...)
}

// Last returns the last comment, even if it is not stored.
func (h *Hub) Last() (look.Record, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.last.IsComment()
}

// Remember adds comments of an earlier run, oldest first, before the comments of this run. Their cycle and picture numbers
// are removed, because this run counts from the start. Present readers get the whole history again.
func (h *Hub) Remember(past []look.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	past = past[max(0, len(past)-max(0, h.keep-len(h.comments))):]
	if len(past) == 0 {
		return
	}
	all := make([]look.Record, 0, len(past)+len(h.comments))
	for _, r := range past {
		r.Cycle, r.FrameIDs = 0, []uint64{}
		all = append(all, r)
	}
	if !h.last.IsComment() {
		h.last = all[len(all)-1]
	}
	h.comments = append(all, h.comments...)
	h.pushLocked(&item{named: SSE("history", JSON(h.comments)), key: "history"})
}

// Event is a snapshot for named readers.
type Event struct {
	Name string
	Data []byte // JSON
	// Key names the state that the event carries. A queued event of the same key is replaced.
	Key string
}

// Publish sends snapshots. They have no id and are not in the backlog.
func (h *Hub) Publish(events ...Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		h.pushLocked(&item{named: SSE(e.Name, e.Data), key: e.Key})
	}
}

// forward publishes an event of one room to the readers of all rooms.
func (h *Hub) forward(it *item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked(&item{named: it.named, key: it.key, heard: it.heard, by: it.by, author: it.author, room: it.room, asked: it.asked})
}

func (h *Hub) publishLocked(it *item) {
	if h.all != nil {
		h.all.forward(it)
	}
	h.next++
	it.id = h.next
	it.named = slices.Concat([]byte("id: "+strconv.FormatUint(it.id, 10)+"\n"), it.named)
	if len(h.backlog) == BacklogSize {
		h.backlog = slices.Delete(h.backlog, 0, 1)
	}
	h.backlog = append(h.backlog, it)
	h.pushLocked(it)
}

func (h *Hub) push(it *item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushLocked(it)
}

func (h *Hub) pushLocked(it *item) {
	for r := range h.open[Named] {
		h.lost[Named] += r.push(it)
	}
	if it.plain == nil {
		return
	}
	for r := range h.open[Plain] {
		h.lost[Plain] += r.push(it)
	}
}

// Readers is the number of open readers of a format.
func (h *Hub) Readers(f Format) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open[f])
}

// Lost is the number of items that slow readers of a format have lost.
func (h *Hub) Lost(f Format) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[f]
}

// Subscribe adds a reader. For a named reader that reconnects, after is the
// last id that it read (0: none): history is then nil if the backlog has everything it missed, otherwise the comments to
// start from. With hears set, it gets people's speech; a new reader gets the last final texts first.
func (h *Hub) Subscribe(f Format, after uint64, hears bool) (r *Reader, history []look.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r = newReader(h, f, hears)
	h.open[f][r] = struct{}{}
	if f != Named {
		return r, nil
	}
	known := after > h.first && after <= h.next
	complete := known && (after == h.next || h.backlog[0].id <= after+1)
	if known {
		if !complete {
			r.lost = h.backlog[0].id - after - 1
			h.lost[f] += r.lost
		}
		for _, it := range h.backlog {
			// Skip comments that are in the history.
			if it.id > after && (complete || !it.comment || h.keep == 0) {
				r.push(it)
			}
		}
	}
	if complete {
		return r, nil
	}
	if !known {
		for _, k := range h.heard {
			r.push(k.item)
		}
	}
	return r, append([]look.Record{}, h.comments...)
}
