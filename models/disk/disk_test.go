package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models/disk"
)

// TestLockFolder: one holder at a time; closing the file frees the folder.
func TestLockFolder(t *testing.T) {
	dir := t.TempDir()
	lock, err := disk.LockFolder(dir)
	require.NoError(t, err)
	_, err = disk.LockFolder(dir)
	require.ErrorIs(t, err, disk.ErrLocked)
	require.ErrorContains(t, err, dir)
	other, err := disk.LockFolder(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, other.Close())

	require.NoError(t, lock.Close())
	lock, err = disk.LockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())

	_, err = disk.LockFolder(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFreeSpace(t *testing.T) {
	free, err := disk.FreeSpace(t.TempDir())
	require.NoError(t, err)
	require.Positive(t, free)
	_, err = disk.FreeSpace(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
