package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/rs/zerolog"
)

// Forget deletes what people said, of the room, the times and the identity of a query, from the store at a path, and
// returns the number of texts. Spoken orders are deleted too. A folder of an earlier version is imported first; what is
// deleted stays in its files (see OldFiles).
func Forget(ctx context.Context, path string, q Query) (n int, err error) {
	cfg := DefaultConfig()
	cfg.Store, cfg.Path, cfg.MaxBytes = StoreSQLite, path, math.MaxInt64 // the next start removes what is too much
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

// ofHeard returns the query of what people said in the room, the times and the identity of another.
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
	res, err := conn.ExecContext(ctx, "DELETE FROM records"+where, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	// The log of the database has the old pages; a reader may hold it for a while.
	_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return int(n), err
}
