package models

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned by LockFolder when another process or goroutine holds the lock.
var ErrLocked = errors.New("in use by another download or conversion")

// LockFolder takes an exclusive lock on a folder. The lock is held until the
// returned file is closed or the process ends.
func LockFolder(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s: %w", dir, ErrLocked)
		}
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// FreeSpace returns the free bytes of the disk that holds dir.
func FreeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	blocks := min(s.Bavail, math.MaxInt64/uint64(max(s.Bsize, 1))) //nolint:gosec // not negative
	return int64(blocks) * s.Bsize, nil                            //nolint:gosec // bounded
}
