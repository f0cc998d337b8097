package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// importSuffix ends the name of a database during the import of a folder.
const importSuffix = ".import"

// lockWait bounds the wait for another process that imports the same folder.
const lockWait = 10 * time.Second

// importFolder makes the database of a folder from the files of an earlier version, if there is none yet, and keeps the
// files. The database appears complete or not at all, so a killed import starts again.
func importFolder(ctx context.Context, f folder, cfg Config) (entries int, err error) {
	path := cfg.database()
	done := func() bool {
		_, err := os.Stat(path)
		return !errors.Is(err, fs.ErrNotExist)
	}
	names, err := f.files()
	if done() || err != nil || len(names) == 0 {
		return 0, err
	}
	unlock, err := lockFolder(f.dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if done() { // by another process
		return 0, nil
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + importSuffix + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	db, err := format().Open(path + importSuffix) //nolint:contextcheck // a new file needs no wait
	if err != nil {
		return 0, err
	}
	entries, err = (&database{db: db, cfg: cfg}).take(ctx, f, names)
	if err = errors.Join(err, db.Close()); err != nil {
		return 0, err
	}
	return entries, os.Rename(path+importSuffix, path)
}

// lockFolder locks a folder against a writer of an earlier version and against another import.
func lockFolder(dir string) (unlock func() error, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for begin := time.Now(); ; <-pause.C {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			// Closing is not enough: a child process between fork and exec also holds the descriptor.
			return func() error { return errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close()) }, nil
		}
		if time.Since(begin) > lockWait {
			return nil, errors.Join(fmt.Errorf("a process of an earlier version writes to this folder: stop it first: %w", err), lock.Close())
		}
	}
}

// take writes the entries of files that are sorted by age, the newest file first, until the database has nine tenths of
// max_bytes.
func (d *database) take(ctx context.Context, f folder, names []string) (entries int, err error) {
	for i := len(names) - 1; i >= 0; i-- {
		used, err := d.used(ctx)
		if err != nil || used > int64(d.cfg.MaxBytes)/10*9 {
			return entries, err
		}
		var rows []row
		for text, err := range f.lines(ctx, names[i]) {
			if err != nil && ctx.Err() == nil {
				break // skip a damaged file
			}
			if e, ok := text.entry(); ok {
				rows = append(rows, row{at: e.At, room: e.Room, comment: e.IsComment(), json: append([]byte(nil), text...)})
			}
		}
		if err := d.insert(ctx, rows); err != nil {
			return entries, err
		}
		entries += len(rows)
	}
	return entries, ctx.Err()
}
