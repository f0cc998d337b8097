// Package sqlite opens the SQLite files of the program.
//
// It owns the settings of a connection, the check that a file has the right kind and version, and
// migrations. Its users own the tables.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// busyTimeout bounds the wait for another process's lock, in ms.
const busyTimeout = 2000

// Format is one kind of file.
type Format struct {
	// Name is the kind in errors, such as "history".
	Name string
	// ID marks the files of this kind (application_id).
	ID int
	// Versions are the statements that lead from each version (user_version) to the next one. The first make the tables.
	Versions []string
	// Read is the first version that OpenReader reads, if it is not the newest one: what came since are indexes.
	Read int
	// Durable makes a commit survive a crash of the machine. Otherwise a crash of the machine may lose the last commits, but damages
	// nothing; a crash of the program loses nothing.
	Durable bool
}

// Open opens a file for writing, or makes it, and brings it to the newest version. Any number of processes may
// have it open.
func (f Format) Open(path string) (_ *sql.DB, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // the files have what people said
	if err != nil {
		return nil, err
	}
	if err := errors.Join(private(path), file.Close()); err != nil {
		return nil, err
	}
	synchronous := "synchronous(NORMAL)"
	if f.Durable {
		synchronous = "synchronous(FULL)"
	}
	// The driver sends the pragmas in alphabetical order: auto_vacuum must come before the first write.
	db, err := sql.Open("sqlite", dsn(path, url.Values{"_txlock": {"immediate"}},
		"auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "journal_size_limit(4194304)", synchronous))
	if err != nil {
		return nil, err
	}
	if err := f.migrate(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.SetMaxOpenConns(2) // one writes, one reads
	return db, nil
}

// private takes a file and its journal from other users; earlier versions let them read both. The files of another user stay as they are.
func private(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(name, 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// OpenReader opens a file for reading: of the newest version, or of one from Read on.
func (f Format) OpenReader(ctx context.Context, path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, url.Values{"mode": {"ro"}}, "query_only(1)"))
	if err != nil {
		return nil, err
	}
	version, err := f.version(ctx, db)
	switch {
	case err != nil:
	case version == 0:
		err = fmt.Errorf("expected a %s, got an empty database", f.Name)
	case version < cmp.Or(f.Read, len(f.Versions)):
		err = fmt.Errorf("%s of version %d, this program reads version %d: open it once for writing, which converts it",
			f.Name, version, len(f.Versions))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// dsn is the driver's name for a file, with the pragmas of each connection.
func dsn(path string, query url.Values, pragmas ...string) string {
	query["_pragma"] = append(pragmas, fmt.Sprintf("busy_timeout(%d)", busyTimeout))
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// migrate brings a file to the newest version, and refuses another program's database.
func (f Format) migrate(db *sql.DB) error {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil) // excludes a second process
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	version, err := f.version(ctx, tx)
	if err != nil || version == len(f.Versions) {
		return err
	}
	for i, statements := range f.Versions[version:] {
		if _, err := tx.ExecContext(ctx, statements); err != nil {
			return fmt.Errorf("convert the %s to version %d: %w", f.Name, version+i+1, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", f.ID, len(f.Versions))); err != nil {
		return fmt.Errorf("set the version: %w", err)
	}
	return tx.Commit()
}

// rowQuerier is a database or a transaction.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns the version of a file, 0 for an empty one. It refuses files of another kind and newer ones.
func (f Format) version(ctx context.Context, q rowQuerier) (int, error) {
	var id, version, tables int
	if err := errors.Join(
		q.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id),
		q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version),
		q.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables),
	); err != nil {
		return 0, err
	}
	switch {
	case id == 0 && version == 0 && tables == 0:
		return 0, nil
	case id != f.ID:
		return 0, fmt.Errorf("not a touchline %s but another program's database: choose another file", f.Name)
	case version > len(f.Versions) || version < 1:
		return 0, fmt.Errorf("%s of version %d, this program reads version %d: use the program that wrote it, or choose another file",
			f.Name, version, len(f.Versions))
	}
	return version, nil
}
