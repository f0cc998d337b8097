package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media/window"
)

const (
	// queueSize bounds the entries that wait to be written; further ones are lost.
	queueSize = 4096
	// gather is how long entries are collected before a write. A killed process loses at most the entries of this time.
	gather = 200 * time.Millisecond
	// batchSize is the number of entries written at once.
	batchSize = 256
	// retryAfter is the wait after a failed write.
	retryAfter = 2 * time.Second
	// expireEvery is the interval of the removal by age.
	expireEvery = time.Minute
)

// Log writes the entries of all rooms of one process. Its outputs never wait for the disk: entries that cannot be
// written in time are lost and counted. A panic switches it off without affecting the rooms.
type Log struct {
	cfg   Config
	store store
	age   ageLimit
	log   zerolog.Logger
	wake  wake.Signal

	forgets chan forgetting
	ended   chan struct{} // closed at the end of Run

	written atomic.Uint64
	lost    atomic.Uint64
	off     atomic.Bool // after a panic

	mu    sync.Mutex
	queue []row
}

// Open opens or creates the store of the settings. The caller starts Run, which closes the store.
func Open(cfg Config, log zerolog.Logger) (*Log, error) {
	l := &Log{
		cfg: cfg, log: log.With().Str("component", "history").Logger(), wake: wake.New(),
		forgets: make(chan forgetting), ended: make(chan struct{}),
	}
	var err error
	if cfg.Store != StoreFile && cfg.Store != StoreSQLite {
		return nil, fmt.Errorf("history.store: must be file or sqlite, is %q", cfg.Store)
	}
	if l.store, err = openDatabase(cfg, l.log); err == nil {
		l.age = ageLimit{maxAge: cfg.MaxAge}
		if l.age.wall, err = l.store.newest(); err != nil {
			err = errors.Join(err, l.store.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the history %s: %w", cfg.Path, err)
	}
	return l, nil
}

// Run writes until ctx ends, then writes the queue and closes the store. Neither a
// full or missing disk nor a panic ends it; after a panic it writes nothing.
func (l *Log) Run(ctx context.Context) error {
	defer close(l.ended)
	err := rescue.Call(func() error {
		left := l.write(ctx)
		if n := l.drop(); n > 0 {
			l.log.Error().Err(left).Int("records", n).Msg("records lost at shutdown")
		}
		return nil
	})
	if err != nil {
		l.crashed(err)
		l.drop()
		<-ctx.Done()
	}
	if err := rescue.Call(l.store.Close); err != nil {
		return fmt.Errorf("close the history: %w", err)
	}
	return nil
}

// drop empties the queue and counts its entries as lost.
func (l *Log) drop() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.queue)
	l.queue = nil
	l.lost.Add(uint64(n))
	return n
}

// crashed switches the history off at the first panic.
func (l *Log) crashed(err error) {
	if !l.off.Swap(true) {
		l.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("history panicked; it is off until the program restarts")
	}
}

// write writes the queue until ctx ends, then once more. It returns the error of the last attempt.
func (l *Log) write(ctx context.Context) error {
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	next := time.NewTimer(0) // time of the next write; stopped while nothing is queued
	defer next.Stop()
	<-next.C
	armed, failing := false, false
	began := time.Now()
	l.expire(began, 0)
	for {
		select {
		case <-ctx.Done():
			return l.flush()
		case <-expire.C:
			l.expire(time.Now(), time.Since(began))
		case f := <-l.forgets:
			f.done <- l.forget(f)
		case <-l.wake:
			if !armed {
				armed = true
				next.Reset(gather)
			}
		case <-next.C:
			err := l.flush()
			if armed = err != nil; armed {
				if !failing {
					l.log.Error().Err(err).Msg("history not written; retrying")
				}
				next.Reset(retryAfter)
			} else if failing {
				l.log.Info().Uint64("lost", l.lost.Load()).Msg("history written again")
			}
			failing = err != nil
		}
	}
}

// expire removes records older than max_age. The wall clock shows wall at elapsed after the start.
func (l *Log) expire(wall time.Time, elapsed time.Duration) {
	before, jump, ok := l.age.before(wall, elapsed)
	if jump != 0 {
		l.log.Warn().Float64("jump_s", jump.Seconds()).Float64("resume_in_s", (l.age.steady - elapsed).Seconds()).
			Msg("clock jumped; old records kept")
	}
	if !ok {
		return
	}
	if err := l.store.expire(before); err != nil {
		l.log.Warn().Err(err).Msg("old records not removed")
	}
}

// flush writes the queue. Entries that could not be written stay in it.
func (l *Log) flush() error {
	for {
		l.mu.Lock()
		batch := l.queue[:min(len(l.queue), batchSize)]
		l.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if err := l.store.add(batch); err != nil {
			return err
		}
		l.written.Add(uint64(len(batch)))
		l.mu.Lock()
		if l.queue = l.queue[len(batch):]; len(l.queue) == 0 {
			l.queue = nil
		}
		l.mu.Unlock()
	}
}

// forgetting is a call of Forget.
type forgetting struct {
	ctx  context.Context //nolint:containedctx // of the call, for the goroutine that carries it out
	q    Query
	done chan forgotten
}

type forgotten struct {
	n   int
	err error
}

// forget writes the queue, then deletes from the store.
func (l *Log) forget(f forgetting) (out forgotten) {
	if out.err = l.flush(); out.err == nil {
		out.n, out.err = l.store.forget(f.ctx, f.q.ofHeard())
	}
	return out
}

// errClosed is returned by Forget of a Log that does not run.
var errClosed = errors.New("the history is closed or off")

// Forget deletes the speech of people like the function Forget, but from the store of a running Log. It returns the number of texts.
func (l *Log) Forget(ctx context.Context, q Query) (int, error) {
	f := forgetting{ctx, q, make(chan forgotten, 1)}
	if l.off.Load() {
		return 0, errClosed
	}
	select {
	case l.forgets <- f:
	case <-l.ended:
		return 0, errClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case out := <-f.done:
		if out.err != nil {
			return out.n, fmt.Errorf("delete from the history: %w", out.err)
		}
		return out.n, nil
	case <-l.ended:
		return 0, errClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// put queues an entry.
func (l *Log) put(e Entry) {
	if l.off.Load() {
		l.lost.Add(1)
		return
	}
	text, err := json.Marshal(&e)
	if err != nil { // a NaN or an infinity
		l.lost.Add(1)
		l.log.Error().Err(err).Uint64("cycle", e.Record.Cycle).Msg("record cannot be encoded")
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= queueSize {
		l.lost.Add(1)
		return
	}
	l.queue = append(l.queue, row{at: e.At, room: e.Room, comment: e.IsComment(), json: text})
	l.wake.Set()
}

// Written is the number of entries written.
func (l *Log) Written() uint64 { return l.written.Load() }

// Lost is the number of entries that were never written.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Off reports whether a panic has switched the history off.
func (l *Log) Off() bool { return l.off.Load() }

// Last returns the records of the last n written comments of a room, oldest first.
func (l *Log) Last(ctx context.Context, room string, n int) ([]look.Record, error) {
	if n <= 0 {
		return nil, nil
	}
	var out []look.Record
	err := rescue.Call(func() (damaged error) {
		for e, err := range l.store.Entries(ctx, Query{Room: room, Last: n, Comments: true}) {
			if err != nil {
				damaged = err
				continue
			}
			out = append(out, e.Record)
		}
		return damaged
	})
	return out, err
}

// Room returns the output of one commentator's session.
func (l *Log) Room(room, identity string) agent.TextOutput {
	return &output{log: l, room: room, identity: identity}
}

// maxWords bounds the stored pieces of one comment. Further pieces are appended to the last.
const maxWords = 512

// output collects the words of the comment being spoken.
type output struct {
	log            *Log
	room, identity string

	mu    sync.Mutex
	words map[uint64]*captionWords // by cycle
}

// captionWords are the words of a comment so far.
type captionWords struct {
	texts []string
	at    []time.Time
}

// maxSpoken bounds the comments that are spoken at once, such as a cut one and the next.
const maxSpoken = 8

// Caption implements agent.TextOutput.
func (o *output) Caption(c agent.Caption) {
	if c.Delta == "" {
		return
	}
	defer rescue.Guard(o.log.crashed)
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.words[c.Cycle]
	if s == nil {
		if o.words == nil || len(o.words) >= maxSpoken { // comments without a record
			o.words = map[uint64]*captionWords{}
		}
		s = &captionWords{}
		o.words[c.Cycle] = s
	}
	if n := len(s.texts); n >= maxWords {
		s.texts[n-1] += c.Delta
		return
	}
	s.texts, s.at = append(s.texts, c.Delta), append(s.at, now)
}

// Record implements agent.TextOutput.
func (o *output) Record(r look.Record) {
	defer rescue.Guard(o.log.crashed)
	o.mu.Lock()
	s := o.words[r.Cycle]
	delete(o.words, r.Cycle)
	o.mu.Unlock()
	if o.log.cfg.OnlyComments && !r.IsComment() {
		return
	}
	e := Entry{At: r.StartedAt, Room: o.room, Identity: o.identity, Record: r}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if s != nil && strings.TrimSpace(strings.Join(s.texts, "")) == r.Text {
		e.Words = make([]Word, len(s.texts))
		for i, text := range s.texts {
			at := max(s.at[i].Sub(e.At), 0).Round(time.Millisecond)
			e.Words[i] = Word{At: at.Seconds(), Text: text}
		}
	}
	e.At = e.At.Round(0)
	o.log.put(e)
}

// Alert implements agent.AlertOutput; frames are not stored.
func (o *output) Alert(a alert.Alert, _ *window.Frame) {
	defer rescue.Guard(o.log.crashed)
	o.log.put(Entry{At: a.At.Round(0), Room: o.room, Identity: o.identity, Alert: &a})
}

// Heard implements agent.HeardOutput: spoken orders, and with HeardText all final texts.
func (o *output) Heard(h agent.Heard) {
	defer rescue.Guard(o.log.crashed)
	if !h.Final || h.Text == "" || h.Order == nil && (!h.Caption || o.log.cfg.Heard != HeardText) {
		return
	}
	if !h.Ended.IsZero() { // as if the wall clock was not set meanwhile
		h.Ended = h.Began.Add(h.Ended.Sub(h.Began))
	}
	o.log.put(Entry{At: h.Began.Round(0), Room: o.room, Identity: o.identity, Heard: &h})
}

// State implements agent.TextOutput. States are not stored.
func (o *output) State(agent.Status) {}

// Collector exports the counts of written and lost entries.
func (l *Log) Collector() prometheus.Collector {
	return metrics.Bundle{
		metrics.Counter("touchline_history_written_total", "Records written to the history.", l.Written),
		metrics.Counter("touchline_history_lost_total",
			"Records that were not written to the history: the disk was too slow or refused them.", l.Lost),
		metrics.Gauge("touchline_history_off", "1 when the history is off after a panic of its code.",
			func() float64 { return metrics.Flag(l.Off()) }),
	}
}
