package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/rs/zerolog"
)

// Forget deletes the speech of people from the store at a path, spoken orders included, for the room, the times and the
// identity of a query. It returns the number of texts. A folder of an earlier version is imported first; its files keep
// the deleted texts (see OldFiles).
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
	return int(n), err
}
