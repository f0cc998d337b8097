package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OpenReader opens the store at a path for reading: a SQLite database, a folder with one, or a folder with files of an
// earlier version that are not imported yet.
func OpenReader(ctx context.Context, path string) (Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	file := path
	if info.IsDir() {
		file = filepath.Join(path, databaseName)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return folder{path}, nil
		}
	}
	if err := isSQLite(file); err != nil {
		return nil, fmt.Errorf("open the history %s: %w", path, err)
	}
	db, err := format().OpenReader(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("open the history %s: %w", path, err)
	}
	return &database{db: db}, nil
}

// isSQLite returns an error unless the file begins like a SQLite database.
func isSQLite(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	want := []byte("SQLite format 3\x00")
	got := make([]byte, len(want))
	if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, want) {
		return errors.New("expected a SQLite database or a folder with history.db, got another file")
	}
	return nil
}
