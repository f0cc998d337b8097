// Package outbox keeps messages for targets until they are delivered: in memory and, with a database, across restarts.
//
// It owns the order, the bounds and the rows of the messages. Its users deliver them, at least once each: a program
// that is killed between a delivery and Done delivers the message again.
package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Limit bounds the messages of a target; beyond it the oldest is dropped.
	Limit = 1000
	// MaxAge bounds the age of a message; an older one is dropped.
	MaxAge = 24 * time.Hour
	// commitTime is how long a message waits for the disk before it is delivered from memory.
	commitTime = 2 * time.Second
	// deleteAfter is the time after which a delivered message is deleted from the database, unless a commit of new messages deletes it
	// earlier.
	deleteAfter = time.Second
)

// Schema is the statement that creates the table of the messages.
const Schema = `
CREATE TABLE outbox (
	seq    INTEGER PRIMARY KEY AUTOINCREMENT,
	key    TEXT    NOT NULL UNIQUE,
	target TEXT    NOT NULL,
	topic  TEXT    NOT NULL,
	at     INTEGER NOT NULL, -- us since 1970
	body   BLOB    NOT NULL
);
`

// Message is a message for a target.
type Message struct {
	// Target is the name of its queue.
	Target string
	// Topic is for the target: the destination of the message, or its room.
	Topic string
	At    time.Time
	Body  []byte

	key string
}

// Outbox is the queues of a process. It is safe for concurrent use.
type Outbox struct {
	// Failed is called with the error of messages that the database refused or did not commit within two seconds; may be nil. Set it
	// before the first Put.
	Failed func(error)
	// Now is the clock; New sets it to time.Now. Set it before the first Queue.
	Now func() time.Time

	db *sql.DB // nil: memory only

	dropped, uncommitted atomic.Uint64

	mu        sync.Mutex
	queues    map[string]*Queue
	problem   string
	held      []held        // for their queues, oldest first; until they are written, or commitTime has passed
	unwritten []Message     // oldest first
	gone      []string      // keys of rows to delete
	sweep     bool          // delete them now
	writer    chan struct{} // closed when the goroutine that writes ends; nil without one
	overdue   *time.Timer   // queues what waits too long; nil when nothing is held
	timer     *time.Timer   // has rows deleted; nil when there are none
}

// held is a message that is not in its queue yet.
type held struct {
	Message

	until time.Time
}

// New returns an Outbox that stores messages in a database with the table of Schema, or in memory only if db is nil. The database must
// stay open while queues are in use.
func New(db *sql.DB) *Outbox { return &Outbox{Now: time.Now, db: db, queues: map[string]*Queue{}} }

// Durable reports whether messages survive restarts.
func (o *Outbox) Durable() bool { return o.db != nil }

// Queue returns the queue of a target, with the messages from earlier runs, oldest first.
func (o *Outbox) Queue(target string) (*Queue, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.queues[target]; q != nil {
		return q, nil
	}
	q := &Queue{outbox: o, ready: make(chan struct{}, 1)}
	if o.db != nil {
		left, err := o.load(target)
		if err != nil {
			return nil, fmt.Errorf("read the alerts that are not delivered: %w", err)
		}
		o.forgetLocked(q.put(left)...)
	}
	o.queues[target] = q
	return q, nil
}

// load reads the messages of a target.
func (o *Outbox) load(target string) (out []Message, err error) {
	rows, err := o.db.QueryContext(context.Background(), "SELECT key, topic, at, body FROM outbox WHERE target = ? ORDER BY seq", target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	now := o.Now()
	for rows.Next() {
		m := Message{Target: target}
		var at int64
		if err := rows.Scan(&m.key, &m.Topic, &at, &m.Body); err != nil {
			return nil, err
		}
		m.At = now.Add(min(0, time.UnixMicro(at).Sub(now))) // its age now counts: the wall clock may be set later, or was fast
		out = append(out, m)
	}
	return out, rows.Err()
}

// Put commits messages and then queues them, in order; messages for a target without a queue are dropped. It does not wait: a message
// that is not committed within two seconds is queued all the same, and committed when the disk responds.
func (o *Outbox) Put(messages ...Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range messages {
		q := o.queues[m.Target]
		switch {
		case q == nil:
			continue
		case o.db == nil:
			m.key = rand.Text()
			q.put([]Message{m})
			continue
		}
		m.key = rand.Text()
		o.held = append(o.held, held{m, time.Now().Add(commitTime)})
		o.unwritten = append(o.unwritten, m)
	}
	if n := len(o.unwritten) - Limit; n > 0 {
		o.unwritten = slices.Delete(o.unwritten, 0, n)
		o.uncommitted.Add(uint64(n))
		o.queueLocked(len(o.held) - Limit)
	}
	o.workLocked()
}

// queueLocked passes the first n held messages to their queues.
func (o *Outbox) queueLocked(n int) {
	if n > 0 {
		for _, m := range o.held[:n] {
			o.forgetLocked(o.queues[m.Target].put([]Message{m.Message})...)
		}
		o.held = slices.Delete(o.held, 0, n)
	}
	if o.overdue != nil {
		o.overdue.Stop()
		o.overdue = nil
	}
	if len(o.held) > 0 {
		o.overdue = time.AfterFunc(time.Until(o.held[0].until), o.queueOverdue)
	}
}

var errHangs = errors.New("the disk does not answer")

// queueOverdue queues the messages whose commit takes too long.
func (o *Outbox) queueOverdue() {
	now, n := time.Now(), 0
	o.mu.Lock()
	for n < len(o.held) && !o.held[n].until.After(now) {
		n++
	}
	o.queueLocked(n)
	if n > 0 {
		o.problem = notKept(errHangs)
	}
	o.mu.Unlock()
	if n > 0 && o.Failed != nil {
		o.Failed(errHangs)
	}
}

func notKept(err error) string { return "alerts are not kept: " + err.Error() }

// workLocked starts a goroutine that writes waiting messages, and ends when there are none.
func (o *Outbox) workLocked() {
	if o.overdue == nil {
		o.queueLocked(0) // starts the timer
	}
	if o.writer == nil && (len(o.unwritten) > 0 || o.sweep) {
		o.writer = make(chan struct{})
		go o.work(o.writer)
	}
}

// work writes until there is nothing left to write. A hanging disk blocks only this goroutine.
func (o *Outbox) work(done chan struct{}) {
	defer close(done)
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.unwritten) > 0 || o.sweep {
		messages, gone := o.unwritten, o.gone
		o.unwritten, o.gone, o.sweep = nil, nil, false
		if o.timer != nil {
			o.timer.Stop()
			o.timer = nil
		}
		o.mu.Unlock()
		err := o.write(messages, gone)
		if err != nil && len(messages) > 0 && o.Failed != nil {
			o.Failed(err)
		}
		o.mu.Lock()
		o.settleLocked(messages, gone, err)
	}
	o.writer = nil
}

// settleLocked records the result of a transaction and queues its messages.
func (o *Outbox) settleLocked(messages []Message, gone []string, err error) {
	switch {
	case err == nil:
		o.problem = ""
	case len(messages) > 0:
		o.problem = notKept(err)
		o.uncommitted.Add(uint64(len(messages)))
		o.gone = append(o.gone, gone...) // the next transaction deletes them
	default:
		o.problem = "delivered alerts may be sent again after a restart: " + err.Error()
	}
	for i := len(messages) - 1; i >= 0; i-- { // the last of them that is held, and all before it
		if n := slices.IndexFunc(o.held, func(h held) bool { return h.key == messages[i].key }); n >= 0 {
			o.queueLocked(n + 1)
			return
		}
	}
}

// forget deletes the rows of messages soon. A row that is not deleted is delivered again after a restart.
func (o *Outbox) forget(messages ...Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetLocked(messages...)
}

func (o *Outbox) forgetLocked(messages ...Message) {
	if o.db == nil || len(messages) == 0 {
		return
	}
	for _, m := range messages {
		if i := slices.IndexFunc(o.unwritten, func(x Message) bool { return x.key == m.key }); i >= 0 {
			o.unwritten = slices.Delete(o.unwritten, i, i+1)
		} else {
			o.gone = append(o.gone, m.key)
		}
	}
	if o.timer == nil && len(o.gone) > 0 {
		o.timer = time.AfterFunc(deleteAfter, o.startSweep)
	}
}

func (o *Outbox) startSweep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
	}
	o.timer, o.sweep = nil, len(o.gone) > 0
	o.workLocked()
}

// Flush writes pending messages, for at most two seconds. It must be called before the database is closed.
func (o *Outbox) Flush() {
	o.startSweep()
	o.mu.Lock()
	writer := o.writer
	o.mu.Unlock()
	if writer == nil {
		return
	}
	select {
	case <-writer:
	case <-time.After(commitTime):
	}
}

// write inserts messages and deletes rows, in one transaction.
func (o *Outbox) write(messages []Message, gone []string) error {
	ctx := context.Background()
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	for _, m := range messages {
		if _, err := tx.ExecContext(ctx, "INSERT INTO outbox (key, target, topic, at, body) VALUES (?, ?, ?, ?, ?)",
			m.key, m.Target, m.Topic, m.At.UnixMicro(), m.Body); err != nil {
			return err
		}
	}
	if err := remove(ctx, tx, gone); err != nil {
		return err
	}
	return tx.Commit()
}

func remove(ctx context.Context, tx *sql.Tx, keys []string) error {
	for _, key := range keys {
		if _, err := tx.ExecContext(ctx, "DELETE FROM outbox WHERE key = ?", key); err != nil {
			return err
		}
	}
	return nil
}

// Problem returns why messages are not stored at present, or "".
func (o *Outbox) Problem() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problem
}

// Waiting returns the number of undelivered messages.
func (o *Outbox) Waiting() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = len(o.held)
	for _, q := range o.queues {
		n += q.Len()
	}
	return n
}

// Dropped returns the number of messages dropped because their queue was full or they were too old.
func (o *Outbox) Dropped() uint64 { return o.dropped.Load() }

// Uncommitted returns the number of messages that the database did not commit.
func (o *Outbox) Uncommitted() uint64 { return o.uncommitted.Load() }

// Queue holds the messages of one target, for one reader.
type Queue struct {
	outbox *Outbox
	ready  chan struct{}

	mu       sync.Mutex
	messages []Message // oldest first
	taken    bool      // the first is with the reader
}

// put appends messages. It drops and returns the oldest beyond Limit, except the message that the reader holds.
func (q *Queue) put(messages []Message) (over []Message) {
	q.mu.Lock()
	q.messages = append(q.messages, messages...)
	if n := len(q.messages) - Limit; n > 0 {
		from := 0
		if q.taken {
			from = 1
		}
		over = slices.Clone(q.messages[from : from+n])
		q.messages = slices.Delete(q.messages, from, from+n)
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
	q.outbox.dropped.Add(uint64(len(over)))
	return over
}

// Next returns the oldest message, and waits if there is none. The message stays in the queue until Done. After ctx has ended, Next
// returns without waiting.
func (q *Queue) Next(ctx context.Context) (Message, error) {
	for {
		if m, ok := q.take(q.outbox.Now()); ok {
			return m, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			m, ok := q.take(q.outbox.Now())
			if !ok {
				return Message{}, ctx.Err()
			}
			return m, nil
		}
	}
}

func (q *Queue) take(now time.Time) (m Message, ok bool) {
	q.mu.Lock()
	old := 0
	for old < len(q.messages) && now.Sub(q.messages[old].At) > MaxAge {
		old++
	}
	expired := slices.Clone(q.messages[:old])
	q.messages = slices.Delete(q.messages, 0, old)
	if q.taken = len(q.messages) > 0; q.taken {
		m, ok = q.messages[0], true
	}
	q.mu.Unlock()
	q.outbox.dropped.Add(uint64(old))
	q.outbox.forget(expired...)
	return m, ok
}

// Done removes a message that was delivered, or permanently refused by its target.
func (q *Queue) Done(m Message) {
	q.mu.Lock()
	q.taken = false
	q.messages = slices.DeleteFunc(q.messages, func(x Message) bool { return x.key == m.key })
	q.mu.Unlock()
	q.outbox.forget(m)
}

// Len returns the number of messages.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages)
}
