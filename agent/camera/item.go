package camera

import (
	"context"
	"fmt"
	"sync"
	"time"

	"touchline/internal/redact"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media/source"
)

// leaveTime bounds the wait for a source that is replaced or removed.
const leaveTime = 800 * time.Millisecond

// item is one source of a Manager and its participant.
type item struct {
	id      string
	began   time.Time
	opts    Options
	changed wake.Signal // next was set
	failed  func(error) // called when its source failed for good; nil for sources of the page

	// Under the Manager's lock.
	stop context.CancelFunc // nil when it does not run
	done chan struct{}

	mu      sync.Mutex
	feed    *Feed // another one for each stay in the room; nil before the first
	ended   bool  // the feed's Run has returned
	next    *played
	wanted  source.Request
	address source.Address
	trouble string // why it left the room, gets no pictures or cannot be opened
}

// played is a source ready to be opened.
type played struct {
	puller  source.Puller
	address source.Address
}

// play sets the source to pull, at once or when the item runs.
func (it *item) play(p played) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.feed == nil || it.ended {
		f, err := New(it.opts)
		if err != nil {
			return fmt.Errorf("bring the source into the room: %w", err)
		}
		it.feed, it.ended = f, false
	}
	it.next, it.address, it.trouble = &p, p.address, ""
	it.changed.Set()
	return nil
}

// entered reports whether the item has had a participant. An item that could not be restored has none.
func (it *item) entered() bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.feed != nil
}

// waiting reports whether a source waits for run.
func (it *item) waiting() bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.next != nil && !it.ended
}

// take returns the next source of a feed; nil for none.
func (it *item) take(feed *Feed) *played {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.feed != feed {
		return nil // the source belongs to the next stay in the room
	}
	p := it.next
	it.next = nil
	return p
}

// run keeps the participant in the room and pulls one source after the other. It returns when ctx ends or the
// participant had to leave.
func (it *item) run(ctx context.Context, run func(*Feed, context.Context) error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	it.mu.Lock()
	feed := it.feed
	it.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer leave()
		err := run(feed, ctx)
		it.mu.Lock()
		defer it.mu.Unlock()
		it.ended = true
		if err != nil {
			it.trouble = "it had to leave the room: " + err.Error()
			it.opts.Log.Warn().Err(err).Msg("source left the room")
		}
	})
	defer wg.Wait()
	var pulling sync.WaitGroup
	defer pulling.Wait()
	stop, over := func() {}, make(chan struct{})
	close(over)
	defer func() { stop() }()
	for {
		if p := it.take(feed); p != nil {
			stop()
			select {
			case <-over:
			case <-time.After(leaveTime): // its pictures are no longer published
			}
			pctx, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			stop, over = cancel, ended
			pulling.Go(func() {
				defer close(ended)
				it.pull(pctx, feed, p)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-it.changed:
		}
	}
}

// pull pulls one source until ctx ends or the source ends.
func (it *item) pull(ctx context.Context, feed *Feed, p *played) {
	err := rescue.Call(func() error { return feed.Pull(ctx, p.puller, p.address.Hide) })
	if err == nil || ctx.Err() != nil {
		return
	}
	it.opts.Log.Warn().Err(err).Msg("source given up")
	if _, crash := rescue.Of(err); crash {
		it.mu.Lock()
		defer it.mu.Unlock()
		it.trouble = "its code crashed: " + err.Error()
	} else if it.failed != nil {
		it.failed(err)
	}
}

// source describes the item's present state.
func (it *item) source() source.Info {
	it.mu.Lock()
	defer it.mu.Unlock()
	out := source.Info{Kind: string(it.address.Kind), Identity: it.opts.Identity}
	if it.feed != nil {
		out = describe(it.feed, it.feed.Status(), it.address.Kind)
	}
	out.ID, out.Name, out.Address = it.id, it.wanted.Name, it.address.String()
	if out.Since.IsZero() {
		out.Since = it.began
	}
	if it.trouble != "" {
		out.State, out.Reason = source.Failed.String(), redact.Addresses(it.trouble)
	}
	return out
}
