// Package disk has what downloads, conversions and checks of bundles do on a disk: locks, free space, checksums, lists of bundles.
package disk

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned by LockFolder when another process or goroutine holds the lock.
var ErrLocked = errors.New("in use by another download or conversion")

// folderLock is the descriptor of a folder that is locked.
type folderLock struct{ *os.File }

// Close releases the lock. Closing the descriptor alone is not enough: a child process also has it
// between its fork and its exec.
func (l folderLock) Close() error {
	return errors.Join(unix.Flock(int(l.Fd()), unix.LOCK_UN), l.File.Close())
}

// LockFolder locks a folder exclusively. The lock is held until the result is closed or the process
// ends.
func LockFolder(dir string) (io.Closer, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s: %w", dir, ErrLocked)
		}
		return nil, errors.Join(err, d.Close())
	}
	return folderLock{d}, nil
}

// FreeSpace returns the free bytes of the disk that holds dir.
func FreeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	blocks := min(s.Bavail, math.MaxInt64/uint64(max(s.Bsize, 1)))
	return int64(blocks) * s.Bsize, nil
}
