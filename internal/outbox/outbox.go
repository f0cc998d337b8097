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
	// commitTime bounds the wait for the disk.
	commitTime = 2 * time.Second
	// deleteAfter is the time after which a delivered message leaves the database, if no other one is committed before:
	// new messages do not wait for it.
	deleteAfter = time.Second
)

// Schema is the statement that makes the table of the messages.
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
	// Topic is for the target: where the message goes, or which room it is of.
	Topic string
	At    time.Time
	Body  []byte

	key string
}

// Outbox is the queues of a process. It is safe for concurrent use.
type Outbox struct {
	db *sql.DB // nil: memory only

	dropped, uncommitted atomic.Uint64

	mu      sync.Mutex
	queues  map[string]*Queue
	problem string
	gone    []string    // keys of rows to delete
	timer   *time.Timer // deletes them; nil when there are none
}

// New returns an Outbox that keeps messages in a database with the table of Schema; in memory only if db is nil. The
// database must stay open while queues are in use.
func New(db *sql.DB) *Outbox { return &Outbox{db: db, queues: map[string]*Queue{}} }

// Durable reports whether messages last across restarts.
func (o *Outbox) Durable() bool { return o.db != nil }

// Queue returns the queue of a target, with the messages that earlier runs left, oldest first.
func (o *Outbox) Queue(target string) (*Queue, error) {
	var over []Message
	defer func() { o.forget(over...) }()
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
		over = q.put(left)
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
	for rows.Next() {
		m := Message{Target: target}
		var at int64
		if err := rows.Scan(&m.key, &m.Topic, &at, &m.Body); err != nil {
			return nil, err
		}
		m.At = time.UnixMicro(at)
		out = append(out, m)
	}
	return out, rows.Err()
}

// Put commits messages and then queues them; those for a target without a queue are left out. It waits for the disk for
// at most two seconds. After an error the messages are queued in memory only.
func (o *Outbox) Put(messages ...Message) error {
	o.mu.Lock()
	messages = slices.DeleteFunc(slices.Clone(messages), func(m Message) bool { return o.queues[m.Target] == nil })
	o.mu.Unlock()
	if len(messages) == 0 {
		return nil
	}
	for i := range messages {
		messages[i].key = rand.Text()
	}
	var over []Message
	defer func() { o.forget(over...) }()
	err := o.commit(messages)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.problem = ""
	if err != nil {
		o.problem = "alerts are not kept: " + err.Error()
		o.uncommitted.Add(uint64(len(messages)))
	}
	for _, m := range messages {
		over = append(over, o.queues[m.Target].put([]Message{m})...)
	}
	return err
}

// commit writes messages. It leaves a disk that hangs to itself after commitTime.
func (o *Outbox) commit(messages []Message) error {
	if o.db == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- o.insert(ctx, messages) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("the disk does not answer")
	}
}

func (o *Outbox) insert(ctx context.Context, messages []Message) error {
	gone := o.takeGone()
	err := o.write(ctx, func(tx *sql.Tx) error {
		for _, m := range messages {
			if _, err := tx.ExecContext(ctx, "INSERT INTO outbox (key, target, topic, at, body) VALUES (?, ?, ?, ?, ?)",
				m.key, m.Target, m.Topic, m.At.UnixMicro(), m.Body); err != nil {
				return err
			}
		}
		return remove(ctx, tx, gone)
	})
	if err != nil && len(gone) > 0 { // they are deleted with the next ones
		o.mu.Lock()
		o.gone = append(o.gone, gone...)
		o.mu.Unlock()
	}
	return err
}

// forget has the rows of messages deleted soon. A row that is not deleted is delivered again after a restart.
func (o *Outbox) forget(messages ...Message) {
	if o.db == nil || len(messages) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range messages {
		o.gone = append(o.gone, m.key)
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(deleteAfter, o.Flush)
	}
}

// Flush deletes the rows of delivered messages. It must be called before the database is closed.
func (o *Outbox) Flush() {
	ctx, cancel := context.WithTimeout(context.Background(), commitTime)
	defer cancel()
	gone := o.takeGone()
	if len(gone) == 0 {
		return
	}
	err := o.write(ctx, func(tx *sql.Tx) error { return remove(ctx, tx, gone) })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.problem = ""; err != nil {
		o.problem = "delivered alerts may be sent again after a restart: " + err.Error()
	}
}

// takeGone returns the rows to delete and stops the timer.
func (o *Outbox) takeGone() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := o.gone
	o.gone = nil
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	return gone
}

func remove(ctx context.Context, tx *sql.Tx, keys []string) error {
	for _, key := range keys {
		if _, err := tx.ExecContext(ctx, "DELETE FROM outbox WHERE key = ?", key); err != nil {
			return err
		}
	}
	return nil
}

// write runs a transaction.
func (o *Outbox) write(ctx context.Context, body func(*sql.Tx) error) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := body(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Problem returns why messages are not kept at present; "" when they are.
func (o *Outbox) Problem() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problem
}

// Waiting is the number of messages that are not delivered.
func (o *Outbox) Waiting() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		n += q.Len()
	}
	return n
}

// Dropped is the number of messages that were dropped, as their queue was full or they were too old.
func (o *Outbox) Dropped() uint64 { return o.dropped.Load() }

// Uncommitted is the number of messages that the database did not take.
func (o *Outbox) Uncommitted() uint64 { return o.uncommitted.Load() }

// Queue is the messages of one target, for one reader.
type Queue struct {
	outbox *Outbox
	ready  chan struct{}

	mu       sync.Mutex
	messages []Message // oldest first
	taken    bool      // the first is with the reader
}

// put appends messages, and returns the oldest beyond Limit, which it drops unless the reader has them.
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

// Next returns the oldest message, and waits for one. It stays in the queue until Done. After ctx has
// ended, Next returns what is there.
func (q *Queue) Next(ctx context.Context) (Message, error) {
	for {
		if m, ok := q.take(time.Now()); ok {
			return m, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			m, ok := q.take(time.Now())
			if !ok {
				return Message{}, ctx.Err()
			}
			return m, nil
		}
	}
}

// Try returns the oldest message, if there is one.
func (q *Queue) Try() (Message, bool) { return q.take(time.Now()) }

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

// Done removes a message that was delivered, or that its target refused for good.
func (q *Queue) Done(m Message) {
	q.mu.Lock()
	q.taken = false
	q.messages = slices.DeleteFunc(q.messages, func(x Message) bool { return x.key == m.key })
	q.mu.Unlock()
	q.outbox.forget(m)
}

// Len is the number of messages.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages)
}
