package history

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Forget deletes what people said, of the room, the times and the identity of a query, from the store at a path, and
// returns the number of texts. Spoken orders are deleted too. A folder must not have a writer; a database may.
func Forget(ctx context.Context, path string, q Query) (n int, err error) {
	q = q.ofHeard()
	info, err := os.Stat(path)
	if err == nil {
		if info.IsDir() {
			n, err = forgetFiles(ctx, path, q)
		} else if err = isSQLite(path); err == nil {
			n, err = forgetRows(ctx, path, q)
		}
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
func forgetRows(ctx context.Context, path string, q Query) (int, error) {
	db, err := format().Open(path) //nolint:contextcheck // opening takes none
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	return (&database{db: db}).forget(ctx, time.Time{}, q)
}

// forget implements store. The deleted texts are overwritten.
func (d *database) forget(ctx context.Context, _ time.Time, q Query) (int, error) {
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

// forgetFiles is Forget for a folder: each file that has such a text is written anew.
func forgetFiles(ctx context.Context, dir string, q Query) (n int, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return 0, fmt.Errorf("another process writes to this folder: stop it first: %w", err)
	}
	return (&files{dir: dir}).rewrite(ctx, q)
}

// forget implements store. The growing file is closed while it is written anew.
func (f *files) forget(ctx context.Context, now time.Time, q Query) (int, error) {
	if f.file != nil {
		if err := errors.Join(f.file.Sync(), f.file.Close()); err != nil {
			f.file = nil
			return 0, err
		}
		f.file = nil
	}
	n, err := f.rewrite(ctx, q)
	return n, errors.Join(err, f.openCurrent(now))
}

// rewrite writes each file anew that has texts of a query.
func (f *files) rewrite(ctx context.Context, q Query) (n int, err error) {
	closed, err := f.closed()
	if err != nil {
		return 0, err
	}
	names := []string{currentName}
	for _, c := range closed {
		names = append(names, c.name)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		dropped, err := forgetLines(filepath.Join(f.dir, name), q)
		if n += dropped; err != nil {
			return n, fmt.Errorf("%s: %w", name, err)
		}
	}
	return n, nil
}

// forgetLines writes a file without the lines that a query takes. The file changes whole or not at all.
func forgetLines(path string, q Query) (n int, err error) {
	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(path+tempSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return 0, err
	}
	var r io.Reader = in
	var w io.WriteCloser = out
	if strings.HasSuffix(path, packedSuffix) {
		if r, err = gzip.NewReader(in); err != nil {
			return 0, errors.Join(err, out.Close(), os.Remove(path+tempSuffix))
		}
		w = gzip.NewWriter(out)
	}
	n, err = copyLines(w, r, func(line []byte) bool {
		var e Entry
		return !bytes.Contains(line, []byte(`"heard":`)) || json.Unmarshal(line, &e) != nil || !q.takes(&e)
	})
	if w != out {
		err = errors.Join(err, w.Close())
	}
	err = errors.Join(err, out.Sync(), out.Close())
	if err != nil || n == 0 {
		return 0, errors.Join(err, os.Remove(path+tempSuffix))
	}
	return n, os.Rename(path+tempSuffix, path)
}

// copyLines copies the lines that keep returns true for, and returns the number of the others.
func copyLines(w io.Writer, r io.Reader, keep func(line []byte) bool) (dropped int, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 && !keep(line) {
			dropped++
		} else if _, err := w.Write(line); err != nil {
			return dropped, err
		}
		if errors.Is(err, io.EOF) {
			return dropped, nil
		}
		if err != nil {
			return dropped, err
		}
	}
}
