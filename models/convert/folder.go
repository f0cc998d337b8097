package convert

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"touchline/models/disk"
)

// folder is the hidden folder next to the destination that a conversion writes to. The conversion
// holds a lock on it that ends with the process, so a folder without a lock is left over from a
// killed conversion.
type folder struct {
	dst, path string
	lock      io.Closer
	done      bool
}

// newFolder creates the hidden folder and replaces a leftover one.
func newFolder(dst string) (*folder, error) {
	dst, err := filepath.Abs(dst)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dst)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("%s: the folder is not empty, it has %s: remove it or choose another folder", dst, entries[0].Name())
	}
	parent := filepath.Dir(dst)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	f := &folder{dst: dst, path: filepath.Join(parent, "."+filepath.Base(dst)+".partial")}
	for range 3 { // another process may remove it between the steps
		err := os.Mkdir(f.path, 0o755)
		if errors.Is(err, fs.ErrExist) {
			if err := f.removeStale(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if f.lock, err = disk.LockFolder(f.path); err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", dst, disk.ErrLocked)
}

// removeStale removes the folder if it is not locked.
func (f *folder) removeStale() error {
	l, err := disk.LockFolder(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(f.path), l.Close())
}

// file is the path of a file in the folder.
func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// commit renames the folder to the destination.
func (f *folder) commit() error {
	err := unix.Rename(f.path, f.dst) // unlike os.Rename it replaces an empty folder
	f.done = err == nil
	return err
}

// close removes the folder, unless it was committed.
func (f *folder) close() error {
	if f.done {
		return f.lock.Close()
	}
	return errors.Join(os.RemoveAll(f.path), f.lock.Close())
}
