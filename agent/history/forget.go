package history

import (
	"bufio"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"
)

// Forget deletes the speech of people from the store at a path, spoken orders included, for the room, the times and the
// identity of a query. It returns the number of texts. A folder of an earlier version is imported first. Comments stay, without the
// instructions that were deleted orders. The files of an earlier version lose the same.
func Forget(ctx context.Context, path string, q Query) (n int, err error) {
	cfg := DefaultConfig()
	cfg.Store, cfg.Path, cfg.MaxBytes = StoreSQLite, path, math.MaxInt64 // the next start enforces the limit
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		cfg.Store = StoreFile
	default:
		err = isSQLite(path)
	}
	if err == nil {
		n, err = forgetRows(ctx, cfg, q.ofHeard())
	}
	if err != nil {
		return n, fmt.Errorf("delete from the history %s: %w", path, err)
	}
	return n, nil
}

// ofHeard returns the query for the speech of people with the room, the times and the identity of q.
func (q Query) ofHeard() Query {
	return Query{Room: q.Room, From: q.From, To: q.To, By: q.By, Heard: true}
}

// forgetRows is Forget for a database.
func forgetRows(ctx context.Context, cfg Config, q Query) (n int, err error) {
	d, err := openDatabase(cfg, zerolog.Nop()) //nolint:contextcheck // opening takes none
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.forget(ctx, q)
}

// forget implements store. The deleted texts are overwritten.
func (d *database) forget(ctx context.Context, q Query) (int, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "PRAGMA secure_delete = ON"); err != nil {
		return 0, err
	}
	orders, deletion, args := q.forgetting()
	if err := forgetInstructions(ctx, conn, q.Room, orders, args); err != nil {
		return 0, err
	}
	res, err := conn.ExecContext(ctx, deletion, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	// The write-ahead log still has the old pages; a reader may keep it for a while.
	_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if d.cfg.Store == StoreFile {
		err = errors.Join(err, folder{d.cfg.Path}.forget(ctx, q))
	}
	return int(n), err
}

// forgetting returns the statements for the spoken orders of a query and for the deletion of its texts, with their values. The index has
// nothing else: without it they would read all records of the room.
func (q Query) forgetting() (orders, deletion string, args []any) {
	where, args := q.where()
	from := " FROM records INDEXED BY records_heard" + where
	// An order acts without its full stop.
	return "SELECT min(id), trim(rtrim(json_extract(entry, '$.heard.order.text'), '.!')) AS said" + from + " AND said <> '' GROUP BY said",
		"DELETE" + from, args
}

// ordersWritten is by how many records an order may be written after the first comment under it.
const ordersWritten = 1000

// forgetInstructions removes instructions from the comments of a room: those that a query of orders returns. Comments from before the first
// of them are not read. It takes the lock of the database for comments that change only.
func forgetInstructions(ctx context.Context, conn *sql.Conn, room, orders string, args []any) error {
	first, texts := int64(math.MaxInt64), []string{}
	if err := each(ctx, conn, func(rows *sql.Rows) error {
		var id int64
		var text string
		err := rows.Scan(&id, &text)
		first, texts = min(first, id), append(texts, text)
		return err
	}, orders, args...); err != nil || len(texts) == 0 {
		return err
	}
	list, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	comments := "SELECT id FROM records NOT INDEXED WHERE id > ? AND room = ?" +
		" AND json_extract(entry, '$.record.instruction') IN (SELECT value FROM json_each(?))"
	var found []int64
	if err := each(ctx, conn, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		found = append(found, id)
		return err
	}, comments, first-ordersWritten, room, string(list)); err != nil {
		return err
	}
	for some := range slices.Chunk(found, deleteStep) {
		ids, err := json.Marshal(some)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "UPDATE records SET entry = json_remove(entry, '$.record.instruction')"+
			" WHERE id IN (SELECT value FROM json_each(?))", string(ids)); err != nil {
			return err
		}
	}
	return nil
}

// each calls row for each row of a query.
func each(ctx context.Context, conn *sql.Conn, row func(*sql.Rows) error, query string, args ...any) error {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// forget deletes the same from the files of an earlier version, also from one that files leaves out as it is there compressed too.
func (f folder) forget(ctx context.Context, q Query) error {
	dir, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	orders := map[string]bool{}
	var names []string
	for _, file := range dir {
		name := file.Name()
		if name != currentName && (!strings.HasPrefix(name, closedPrefix) ||
			!strings.HasSuffix(name, plainSuffix) && !strings.HasSuffix(name, packedSuffix)) {
			continue
		}
		names = append(names, name)
		for line, err := range f.lines(ctx, name) {
			if err != nil {
				break // rewrite reports it
			}
			if e, ok := line.entry(); ok && q.takes(&e) && e.Heard.Order != nil && e.Heard.Order.Text != "" {
				orders[strings.TrimSpace(strings.TrimRight(e.Heard.Order.Text, ".!"))] = true
			}
		}
	}
	var errs []error
	for _, name := range names {
		if err := f.rewrite(ctx, name, q, orders); err != nil {
			errs = append(errs, fmt.Errorf("%w; delete this file, which may have deleted texts", err))
		}
	}
	return errors.Join(errs...)
}

// rewrite replaces a file by one without the entries of a query, and without some instructions in the room.
func (f folder) rewrite(ctx context.Context, name string, q Query, instructions map[string]bool) (err error) {
	file, err := os.CreateTemp(f.dir, "rewrite-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // unless it was renamed
	defer func() { _ = file.Close() }()
	packed := gzip.NewWriter(file)
	var to io.Writer = file
	if strings.HasSuffix(name, packedSuffix) {
		to = packed
	}
	out, changed := bufio.NewWriter(to), false
	for text, err := range f.lines(ctx, name) {
		if err != nil {
			return err
		}
		e, ok := text.entry()
		switch {
		case ok && q.takes(&e):
			changed = true
			continue
		case ok && e.Room == q.Room && instructions[e.Record.Instruction]:
			changed, e.Record.Instruction = true, ""
			if text, err = json.Marshal(&e); err != nil {
				return err
			}
		}
		_, _ = out.Write(append(text, '\n')) // Flush returns the error
	}
	if !changed {
		return nil
	}
	err = out.Flush()
	if to == packed {
		err = errors.Join(err, packed.Close())
	}
	if err = errors.Join(err, file.Sync()); err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(f.dir, name))
}
