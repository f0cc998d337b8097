package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// folder is the destination while it is being filled: a hidden folder beside
// it. Who fills it holds a lock on it, which ends with the process; so one
// without a lock was left behind.
type folder struct {
	dst, path string
	lock      *os.File
	done      bool
}

// ErrBusy is returned when another conversion to the same folder is under way.
var ErrBusy = errors.New("another conversion to this folder is under way")

// newFolder makes the hidden folder, in place of one that was left behind.
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
		return nil, fmt.Errorf("%s: expected a new or empty folder, has %s and more: remove it or choose another", dst, entries[0].Name())
	}
	parent := filepath.Dir(dst)
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // to be shared
		return nil, err
	}
	f := &folder{dst: dst, path: filepath.Join(parent, "."+filepath.Base(dst)+".partial")}
	for range 3 { // another process may remove it between the steps
		err := os.Mkdir(f.path, 0o755) //nolint:gosec // to be shared
		if errors.Is(err, fs.ErrExist) {
			if err := f.removeStale(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if f.lock, err = lock(f.path); err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", dst, ErrBusy)
}

// removeStale removes the folder if nobody holds its lock.
func (f *folder) removeStale() error {
	l, err := lock(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.dst, err)
	}
	return errors.Join(os.RemoveAll(f.path), l.Close())
}

// lock opens a folder and locks it, or returns ErrBusy.
func lock(path string) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// file is the path of a file in the folder.
func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// commit gives the folder its name.
func (f *folder) commit() error {
	err := unix.Rename(f.path, f.dst) // unlike os.Rename it takes the place of an empty folder
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

// freeSpace of the disk that a folder is on.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	blocks := min(s.Bavail, math.MaxInt64/uint64(max(s.Bsize, 1))) //nolint:gosec // not negative
	return int64(blocks) * s.Bsize, nil                            //nolint:gosec // bounded
}
