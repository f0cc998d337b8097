// Package step decides what a GPU does next.
//
// An Owner has the work of all clients of one GPU: the words of commentary, its voice and the recognizer. Each posts when its work is
// due and what it costs, and asks before a run whether it is its turn. A Loop batches the answers of one engine, step by step, as a
// client. The clients have a thread and a stream each; the owner starts no goroutine.
package step

import (
	"context"
	"slices"
	"sync"
	"time"

	"touchline/inference/internal/ort"
)

// Priority is the order of clients whose work is due.
type Priority int8

const (
	// Interim has the interim texts of a model of their own, which go after all other work on the same GPU.
	Interim Priority = iota - 1
	// Recognition goes after commentary. It is the zero value.
	Recognition
	// Commentary has the words and the voices.
	Commentary
)

const (
	// maxShare is the longest pause that a client leaves to others that run at the same time.
	maxShare = 30 * time.Millisecond
	// idleAfter is the time without a run after which a client no longer counts as active.
	idleAfter = 100 * time.Millisecond
)

// Owner decides which client of a GPU works next. Safe for concurrent use.
type Owner struct {
	now     func() time.Time
	mu      sync.Mutex
	clients []*Client
	loads   []load // the first one loads, others wait
}

// load is a part of a model that loads.
type load struct {
	priority Priority
	turn     chan struct{}
}

// NewOwner returns an owner without clients.
func NewOwner(now func() time.Time) *Owner { return &Owner{now: now} }

// OwnerOf returns the owner of a device: all engines of the process on one GPU have the same. On the CPU each has its own.
func OwnerOf(dev *ort.Device, now func() time.Time) *Owner {
	return dev.OfGPU(func() any { return NewOwner(now) }).(*Owner) //nolint:forcetypeassert // there is no other value
}

// Client is a user of the GPU. Safe for concurrent use; a client may have several runs at once.
type Client struct {
	owner    *Owner
	priority Priority

	// Guarded by owner.mu.
	due   time.Time // of the waiting work; zero for none
	runs  int       // now
	since time.Time // begin of the first of these runs; without one, end of the last
	busy  time.Duration
}

// Load waits until nothing else loads on the GPU, and keeps others waiting until done is called. Loading makes sessions, plans and graphs:
// the first run of a shape, or a new session, on another thread ends the capture of a graph now and then, also in a thread's capture mode
// (seen with ONNX Runtime 1.30 on an H200). The highest priority goes first.
func (o *Owner) Load(ctx context.Context, p Priority) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	o.mu.Lock()
	l := load{p, make(chan struct{})}
	if o.loads = append(o.loads, l); len(o.loads) == 1 {
		close(l.turn)
	}
	o.mu.Unlock()
	done = sync.OnceFunc(func() { o.loaded(l) })
	select {
	case <-l.turn:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		done()
		return nil, context.Cause(ctx)
	}
	return done, nil
}

// TryLoad is Load if nothing loads now.
func (o *Owner) TryLoad() (done func(), ok bool) {
	l := load{Commentary, make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.loads) > 0 {
		return nil, false
	}
	o.loads = append(o.loads, l)
	return sync.OnceFunc(func() { o.loaded(l) }), true
}

// loaded ends a load, and begins another if it had its turn.
func (o *Owner) loaded(l load) {
	o.mu.Lock()
	defer o.mu.Unlock()
	had := o.loads[0].turn == l.turn
	o.loads = slices.DeleteFunc(o.loads, func(w load) bool { return w.turn == l.turn })
	if len(o.loads) == 0 || !had {
		return
	}
	next := 0
	for i, w := range o.loads {
		if w.priority > o.loads[next].priority {
			next = i
		}
	}
	first := o.loads[next]
	o.loads = slices.Insert(slices.Delete(o.loads, next, next+1), 0, first)
	close(first.turn)
}

// Join adds a client.
func (o *Owner) Join(p Priority) *Client {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &Client{owner: o, priority: p}
	o.clients = append(o.clients, c)
	return c
}

// Leave removes the client.
func (c *Client) Leave() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	for i, o := range c.owner.clients {
		if o == c {
			c.owner.clients = append(c.owner.clients[:i:i], c.owner.clients[i+1:]...)
			return
		}
	}
}

// Post sets when waiting work is due; the zero time means that no work waits.
func (c *Client) Post(due time.Time) {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.due = due
}

// Do runs work of the device, and returns how long it took.
func (c *Client) Do(work func() error) (took time.Duration, err error) {
	begin := c.count(1)
	err = work()
	return c.count(-1).Sub(begin), err
}

// count adds to the runs, and returns the time.
func (c *Client) count(n int) time.Time {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	now := c.owner.now()
	if c.runs += n; c.runs == 0 {
		c.busy += now.Sub(c.since)
		c.since = now
	} else if n == c.runs {
		c.since = now
	}
	return now
}

// Busy returns how long the client has worked. Runs at the same time count once.
func (c *Client) Busy() time.Duration {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.runs == 0 {
		return c.busy
	}
	return c.busy + c.owner.now().Sub(c.since)
}

// Run is work that a client may do now.
type Run struct {
	// Due is when it must begin at the latest.
	Due time.Time
	// Last is the end of the last run of its kind, Cost how long that took.
	Last time.Time
	Cost time.Duration
}

// Delay returns how long the client lets others go first: 0 if it may run now. It never waits beyond the later of Due and its share.
//
//   - Active clients of a higher priority, and clients of its own priority whose waiting work is due earlier, go first until Due.
//   - While another client of its priority runs, the device is shared: it waits for as long as its last run took.
func (c *Client) Delay(r Run) time.Duration {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	now := c.owner.now()
	until := now
	for _, o := range c.owner.clients {
		switch {
		case o == c || o.priority < c.priority:
			continue
		case o.priority > c.priority && o.active(now), o.priority == c.priority && !o.due.IsZero() && o.due.Before(r.Due):
			if r.Due.After(until) {
				until = r.Due
			}
		}
		if share := r.Last.Add(min(r.Cost, maxShare)); o.priority == c.priority && o.runs > 0 && share.After(until) {
			until = share
		}
	}
	return until.Sub(now)
}

// active reports whether the client works, or has worked a moment ago.
func (c *Client) active(now time.Time) bool {
	return c.runs > 0 || !c.due.IsZero() || !c.since.IsZero() && now.Sub(c.since) < idleAfter
}
