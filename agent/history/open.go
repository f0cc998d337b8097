package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// OpenReader opens the store at a path for reading: a folder of files, or a SQLite database.
func OpenReader(ctx context.Context, path string) (Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	if info.IsDir() {
		return &files{dir: path}, nil
	}
	if err := isSQLite(path); err != nil {
		return nil, fmt.Errorf("open the history %s: %w", path, err)
	}
	db, err := format().OpenReader(ctx, path)
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
		return errors.New("expected a folder with history.jsonl or a SQLite database, got another file")
	}
	return nil
}
