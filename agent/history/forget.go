package history

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
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
	where, args := q.where()
	// An order acts without its full stop.
	orders := "SELECT trim(rtrim(json_extract(entry, '$.heard.order.text'), '.!')) FROM records" + where
	update := "UPDATE records SET entry = json_remove(entry, '$.record.instruction') WHERE room = ?" + //nolint:gosec // constants
		" AND json_extract(entry, '$.record.instruction') IN (" + orders + ")"
	if _, err := conn.ExecContext(ctx, update, append([]any{q.Room}, args...)...); err != nil {
		return 0, err
	}
	res, err := conn.ExecContext(ctx, "DELETE FROM records"+where, args...) //nolint:gosec // the clauses are constants
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
