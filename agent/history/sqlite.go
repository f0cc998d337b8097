package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/sqlite"
)

// format returns the format of a database (application_id: the bytes "TLHY").
func format() sqlite.Format {
	return sqlite.Format{Name: "history", ID: 0x544c4859, Versions: []string{schema, heardIndex}, Read: 1}
}

// schema of version 1. at is Entry.At in microseconds since 1970. The virtual columns
// identity, outcome and text are for SQL shells and take no space.
const schema = `
CREATE TABLE records (
	id       INTEGER PRIMARY KEY,
	at       INTEGER NOT NULL,
	room     TEXT    NOT NULL,
	comment  INTEGER NOT NULL,
	entry    TEXT    NOT NULL,
	identity TEXT GENERATED ALWAYS AS (json_extract(entry, '$.identity')) VIRTUAL,
	outcome  TEXT GENERATED ALWAYS AS (json_extract(entry, '$.record.outcome')) VIRTUAL,
	text     TEXT GENERATED ALWAYS AS (json_extract(entry, '$.record.text')) VIRTUAL
);
CREATE INDEX records_room_at ON records(room, at);
CREATE INDEX records_at ON records(at);
`

// heardIndex leads to version 2: an index of what people said alone, for forget. Its expressions are those of where.
const heardIndex = `
CREATE INDEX records_heard ON records(room, json_extract(entry, '$.heard.identity')) WHERE json_extract(entry, '$.heard') IS NOT NULL;
`

// database is a SQLite file. Any number of processes write to it and read it.
type database struct {
	db    *sql.DB
	cfg   Config
	fresh int // bytes written since the last trim
}

// openDatabase opens or creates a database for writing. With StoreFile, it imports the files of earlier versions first.
func openDatabase(cfg Config, log zerolog.Logger) (*database, error) {
	path := cfg.database()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if cfg.Store == StoreFile {
		n, err := importFolder(context.Background(), folder{cfg.Path}, cfg)
		if err != nil {
			return nil, fmt.Errorf("import the JSON lines of the folder: %w", err)
		}
		if n > 0 {
			log.Info().Int("records", n).Str("path", path).Msg("history imported; the .jsonl files are no longer used")
		}
	}
	db, err := format().Open(path)
	if err != nil {
		return nil, err
	}
	d := &database{db: db, cfg: cfg}
	if err := d.trim(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

// add implements store.
func (d *database) add(rows []row) error {
	if err := d.insert(context.Background(), rows); err != nil {
		return err
	}
	if d.fresh > d.cfg.MaxBytes/20 {
		_ = d.trim() // the rows are written; the next call retries
	}
	return nil
}

// insert writes all rows or none.
func (d *database) insert(ctx context.Context, rows []row) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	insert, err := tx.PrepareContext(ctx, "INSERT INTO records (at, room, comment, entry) VALUES (?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	for _, r := range rows {
		if _, err := insert.ExecContext(ctx, r.at.UnixMicro(), r.room, r.comment, string(r.json)); err != nil {
			return err
		}
		d.fresh += len(r.json)
	}
	return tx.Commit()
}

// deleteStep bounds the rows of one DELETE, which locks the database.
const deleteStep = 2000

// expire implements store.
func (d *database) expire(before time.Time) error {
	ctx := context.Background()
	for {
		res, err := d.db.ExecContext(ctx,
			"DELETE FROM records WHERE id IN (SELECT id FROM records WHERE at < ? ORDER BY at LIMIT ?)", before.UnixMicro(), deleteStep)
		if err != nil {
			return fmt.Errorf("remove old records: %w", err)
		}
		if n, err := res.RowsAffected(); err != nil || n < deleteStep {
			return d.vacuum(ctx)
		}
	}
}

// newest implements store.
func (d *database) newest() (time.Time, error) {
	var at sql.NullInt64
	err := d.db.QueryRowContext(context.Background(), "SELECT max(at) FROM records").Scan(&at)
	if err != nil || !at.Valid {
		return time.Time{}, err
	}
	return time.UnixMicro(at.Int64), nil
}

// trim removes the oldest records while the database is larger than max_bytes.
func (d *database) trim() error {
	ctx := context.Background()
	d.fresh = 0
	for {
		used, err := d.used(ctx)
		if err != nil {
			return err
		}
		if used <= int64(d.cfg.MaxBytes) {
			break
		}
		var rows int64
		if err := d.db.QueryRowContext(ctx, "SELECT count(*) FROM records").Scan(&rows); err != nil {
			return err
		}
		if rows == 0 {
			break
		}
		// Down to nine tenths, so that not each record needs a trim.
		surplus := min(rows*(used-int64(d.cfg.MaxBytes)/10*9)/used+1, deleteStep)
		if _, err := d.db.ExecContext(ctx,
			"DELETE FROM records WHERE id IN (SELECT id FROM records ORDER BY at LIMIT ?)", surplus); err != nil {
			return fmt.Errorf("remove records beyond max_bytes: %w", err)
		}
	}
	return d.vacuum(ctx)
}

// vacuum returns free pages to the file system.
func (d *database) vacuum(ctx context.Context) error {
	// The pragma frees a page each time it is stepped.
	rows, err := d.db.QueryContext(ctx, "PRAGMA incremental_vacuum")
	if err != nil {
		return fmt.Errorf("free space: %w", err)
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

// used returns the size of the database in bytes, without free pages and the log.
func (d *database) used(ctx context.Context) (int64, error) {
	var size, pages, free int64
	err := errors.Join(
		d.db.QueryRowContext(ctx, "PRAGMA page_size").Scan(&size),
		d.db.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages),
		d.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free),
	)
	return size * (pages - free), err
}

// where returns the condition of a query, and its values.
func (q Query) where() (condition string, args []any) {
	condition = " WHERE id > ? AND id <= ? AND at >= ? AND at < ?"
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if !q.From.IsZero() {
		from = q.From.UnixMicro()
	}
	if !q.To.IsZero() {
		to = q.To.UnixMicro()
	}
	args = []any{q.after, cmp.Or(q.upTo, math.MaxInt64), from, to}
	if q.Everything {
		return condition, args
	}
	condition, args = condition+" AND room = ?", append(args, q.Room)
	if q.Comments {
		condition += " AND comment = 1"
	}
	if q.Alerts {
		condition += " AND json_extract(entry, '$.alert') IS NOT NULL"
	}
	switch {
	case q.Heard:
		condition += " AND json_extract(entry, '$.heard') IS NOT NULL"
	case !q.Comments:
		condition += " AND json_extract(entry, '$.heard') IS NULL"
	}
	if q.By != "" {
		condition += " AND json_extract(entry, '$.heard.identity') = ?"
		args = append(args, q.By)
	}
	return condition, args
}

// Entries implements Reader.
func (d *database) Entries(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		const fields = "SELECT at, id, entry FROM records"
		where, args := q.where()
		statement := fields + where + " ORDER BY at, id" //nolint:gosec // the clauses are constants
		if q.Last > 0 {
			statement = "SELECT * FROM (" + fields + where + " ORDER BY at DESC, id DESC LIMIT ?) ORDER BY at, id"
			args = append(args, q.Last)
		}
		rows, err := d.db.QueryContext(ctx, statement, args...)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var at, id int64
			var text []byte
			var e Entry
			err := rows.Scan(&at, &id, &text)
			if err == nil {
				err = json.Unmarshal(text, &e)
			}
			if err != nil {
				err = fmt.Errorf("read record %d: %w", id, err)
			}
			if !yield(e, err) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Entry{}, err)
		}
	}
}

// followEvery is the polling interval of Follow.
const followEvery = 500 * time.Millisecond

// Follow implements Follower.
func (d *database) Follow(ctx context.Context, q Query, past bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		// Without a record it is 0.
		newest := func() (id int64, err error) {
			err = d.db.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM records").Scan(&id)
			return id, err
		}
		some := func(q Query) bool {
			for e, err := range d.Entries(ctx, q) {
				if !yield(e, err) {
					return false
				}
			}
			return true
		}
		last, err := newest()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		if q.upTo = last; past && last > 0 && !some(q) {
			return
		}
		q.Last = 0
		look := time.NewTicker(followEvery)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			next, err := newest()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Entry{}, err) {
					return
				}
				continue
			case next > last:
				if q.after, q.upTo = last, next; !some(q) {
					return
				}
			}
			last = next // less than before if the newest were deleted
		}
	}
}

// Rooms implements Reader.
func (d *database) Rooms(ctx context.Context) ([]RoomInfo, error) {
	rows, err := d.db.QueryContext(ctx,
		"SELECT room, count(*), sum(comment), min(at), max(at) FROM records GROUP BY room ORDER BY room")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []RoomInfo
	for rows.Next() {
		var r RoomInfo
		var first, last int64
		if err := rows.Scan(&r.Room, &r.Records, &r.Comments, &first, &last); err != nil {
			return nil, err
		}
		r.First, r.Last = time.UnixMicro(first), time.UnixMicro(last)
		out = append(out, r)
	}
	return out, rows.Err()
}

// Close implements Reader.
func (d *database) Close() error { return d.db.Close() }
