// Package state stores people's changes in the rooms of a process, so that they survive restarts.
//
// It owns one SQLite file in a folder, which several processes may share. It stores a room's values by name, as JSON; their
// meaning belongs to the bot. One goroutine (Run) writes, so that a slow or broken disk stops no room.
package state

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/internal/metrics"
	"touchline/internal/outbox"
	"touchline/internal/rescue"
	"touchline/internal/sqlite"
	"touchline/internal/wake"
)

const fileName = "state.db"

// retryAfter is the wait after a failed write.
const retryAfter = time.Second

// versions returns the statements that make each version of the file from the previous one. The table of another package that
// shares the file (DB) counts as one more version.
func versions() []string {
	return []string{`
CREATE TABLE room_values (
	room     TEXT NOT NULL,
	identity TEXT NOT NULL, -- of the commentator
	name     TEXT NOT NULL,
	value    TEXT NOT NULL, -- JSON
	PRIMARY KEY (room, identity, name)
) WITHOUT ROWID;
`, outbox.Schema, `
CREATE TABLE room_uses (
	room     TEXT NOT NULL,
	identity TEXT NOT NULL,
	used     INTEGER NOT NULL, -- s since 1970
	PRIMARY KEY (room, identity)
) WITHOUT ROWID;
`}
}

// Store is the open state file of a process.
type Store struct {
	db   *sql.DB
	path string
	log  zerolog.Logger
	wake wake.Signal

	written, failed, removed atomic.Uint64

	writing sync.Mutex // held while pending values are written, and before mu

	mu      sync.Mutex
	pending map[key]*pending
	uses    map[owner]int             // of rooms in use, and of those left since they were noted in the file
	names   map[owner]map[string]bool // of the values that the file has or is about to get, of the same rooms
	problem string

	last  time.Time // when the clock was last compared, and slept as it was then; used by Run only
	slept time.Duration
}

// key is the name of a value.
type key struct{ room, identity, name string }

func (k key) owner() owner { return owner{k.room, k.identity} }

// pending is a value that is not in the file yet; nil deletes it.
type pending struct{ value json.RawMessage }

// Open opens the state file in the folder of the settings, or makes it. The caller starts Run, which closes the file.
func Open(cfg Config, log zerolog.Logger) (*Store, error) {
	path := filepath.Join(cfg.Path, fileName)
	if err := os.MkdirAll(cfg.Path, 0o700); err != nil {
		return nil, fmt.Errorf("open the state %s: %w; choose another folder", path, err)
	}
	// The ID is the bytes "TLST".
	format := sqlite.Format{Name: "state", ID: 0x544c5354, Versions: versions(), Durable: true}
	db, err := format.Open(path)
	if err == nil {
		if err = check(db); err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the state %s: %w; choose another folder, or move the file away to begin anew", path, err)
	}
	return &Store{
		db: db, path: path, log: log.With().Str("component", "state").Logger(), wake: wake.New(),
		pending: map[key]*pending{}, uses: map[owner]int{}, names: map[owner]map[string]bool{},
	}, nil
}

// maxChecked is the size of the largest file that is read whole at the start, in bytes.
const maxChecked = 64 << 20

// check returns an error for a damaged file, unless it is large.
func check(db *sql.DB) error {
	var found string
	var size int
	err := db.QueryRowContext(context.Background(), "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&size)
	if err != nil || size > maxChecked {
		return err
	}
	if err := db.QueryRowContext(context.Background(), "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("the file is damaged: %s", found)
	}
	return nil
}

// DB returns the database, for the tables of other packages. It is open until Run returns. Transactions start in immediate mode and wait up
// to two seconds for another writer. Commits are durable.
func (s *Store) DB() *sql.DB { return s.db }

// Close closes the file of a Store whose Run was not called.
func (s *Store) Close() error { return s.db.Close() }

// Forget deletes the values of all rooms and undelivered alerts, but none of the process, which have the room "". It returns the number of
// rooms that had values.
func (s *Store) Forget() (rooms int, err error) {
	ctx := context.Background()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("forget the rooms in %s: %w", s.path, err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	err = tx.QueryRowContext(ctx, "SELECT count(DISTINCT room) FROM room_values WHERE room <> ''").Scan(&rooms)
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM room_values WHERE room <> ''; DELETE FROM outbox")
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return 0, fmt.Errorf("forget the rooms in %s: %w", s.path, err)
	}
	return rooms, nil
}

// Run writes changed values until ctx ends, then once more, and closes the file.
func (s *Store) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	<-retry.C
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	s.last, s.slept = time.Now(), slept()
	for {
		select {
		case <-ctx.Done():
			_, err := s.note(time.Now())                        //nolint:contextcheck // a write has no context to wait with
			if err := errors.Join(s.flush(), err); err != nil { //nolint:contextcheck // as above
				s.log.Error().Err(err).Msg("last changes not kept")
			}
			if err := s.Close(); err != nil {
				return fmt.Errorf("close the state: %w", err)
			}
			return nil
		case <-s.wake:
		case <-retry.C:
		case <-tidy.C:
			if err := s.tidy(time.Now()); err != nil { //nolint:contextcheck // as above
				s.log.Warn().Err(err).Msg("old state not removed")
			}
			continue
		}
		if s.flush() != nil { //nolint:contextcheck // as above
			retry.Reset(retryAfter)
		}
	}
}

// flush writes all pending values in one transaction. After an error they are still pending.
func (s *Store) flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	batch := maps.Clone(s.pending)
	var added []key
	for k, v := range batch {
		if v.value != nil && !s.storedLocked(k) {
			s.names[k.owner()][k.name] = true
			added = append(added, k)
		}
	}
	s.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := rescue.Call(func() error { return s.write(batch) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed.Add(1)
		for _, k := range added {
			if delete(s.names[k.owner()], k.name); s.pending[k].value == nil {
				delete(s.pending, k)
			}
		}
		if s.problem == "" {
			s.log.Error().Err(err).Str("path", s.path).Bytes("stack", rescue.Stack(err)).Msg("state not written; retrying")
		}
		s.problem = "changes are not kept, the state file cannot be written (its path is in the log): " + err.Error()
		return err
	}
	if s.problem != "" {
		s.log.Info().Str("path", s.path).Msg("state written again")
	}
	s.problem = ""
	s.written.Add(uint64(len(batch)))
	for k, v := range batch {
		if v.value == nil {
			delete(s.names[k.owner()], k.name)
		}
		if s.pending[k] == v { // not changed since
			delete(s.pending, k)
		}
	}
	return nil
}

// storedLocked reports whether the file may have a value: it may, unless its room was loaded.
func (s *Store) storedLocked(k key) bool {
	names, loaded := s.names[k.owner()]
	return !loaded || names[k.name]
}

func (s *Store) write(batch map[key]*pending) error {
	ctx := context.Background()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	for k, v := range batch {
		if v.value == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM room_values WHERE room = ? AND identity = ? AND name = ?", k.room, k.identity, k.name)
		} else {
			_, err = tx.ExecContext(ctx, "INSERT INTO room_values (room, identity, name, value) VALUES (?, ?, ?, ?) "+
				"ON CONFLICT DO UPDATE SET value = excluded.value", k.room, k.identity, k.name, string(v.value))
		}
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Problem returns the reason why changes cannot be stored at present; "" when they can.
func (s *Store) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Collector exports the counts of written values and failed writes.
func (s *Store) Collector() prometheus.Collector {
	return metrics.Bundle{
		metrics.Counter("touchline_state_written_total", "Changed values of rooms written to the state file.", s.written.Load),
		metrics.Gauge("touchline_state_pending", "Changed values of rooms that are not in the state file yet.", func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.pending))
		}),
		metrics.Counter("touchline_state_failures_total", "Writes that the disk of the state file refused; they are retried.", s.failed.Load),
		metrics.Counter("touchline_state_removed_rooms_total", "Rooms whose state was removed, 30 days after its last use.", s.removed.Load),
	}
}

// Room is the state of one commentator in one room. It is safe for concurrent use.
type Room struct {
	store          *Store
	room, identity string
}

// Room returns the state of a commentator.
func (s *Store) Room(room, identity string) *Room {
	return &Room{store: s, room: room, identity: identity}
}

// Load returns the stored values by name, including values that are not in the file yet. The room is in use until Leave.
func (r *Room) Load() (map[string]json.RawMessage, error) {
	// At once, because another process that shares the file may remove the state of an unused room. The disk may be broken.
	if _, err := r.store.db.ExecContext(context.Background(), noteUse, r.room, r.identity, time.Now().Unix()); err != nil {
		r.store.log.Warn().Err(err).Str("room", r.room).Msg("use of the room not noted")
	}
	r.store.writing.Lock() // so that each value is in the file or pending
	defer r.store.writing.Unlock()
	out, names := map[string]json.RawMessage{}, map[string]bool{}
	rows, err := r.store.db.QueryContext(context.Background(),
		"SELECT name, value FROM room_values WHERE room = ? AND identity = ?", r.room, r.identity)
	if err != nil {
		return nil, fmt.Errorf("read the state of room %q from %s: %w", r.room, r.store.path, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var value []byte
		if err := rows.Scan(&name, &value); err != nil {
			return nil, fmt.Errorf("read the state of room %q from %s: %w", r.room, r.store.path, err)
		}
		out[name], names[name] = bytes.Clone(value), true
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the state of room %q from %s: %w", r.room, r.store.path, err)
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.uses[owner{r.room, r.identity}]++
	r.store.names[owner{r.room, r.identity}] = names
	for k, v := range r.store.pending {
		if k.room != r.room || k.identity != r.identity {
			continue
		}
		if v.value == nil {
			delete(out, k.name)
		} else {
			out[k.name] = v.value
		}
	}
	return out, nil
}

// Keep sets a value, or deletes it if it is nil. It does not wait for the disk.
func (r *Room) Keep(name string, value json.RawMessage) {
	s, k := r.store, key{r.room, r.identity, name}
	s.mu.Lock()
	if value == nil && !s.storedLocked(k) {
		delete(s.pending, k) // while the disk refuses, nothing is left of values that came and went
	} else {
		s.pending[k] = &pending{value}
	}
	s.mu.Unlock()
	s.wake.Set()
}
