package models_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

// TestLockFolder: one holder at a time; closing the file frees the folder.
func TestLockFolder(t *testing.T) {
	dir := t.TempDir()
	lock, err := models.LockFolder(dir)
	require.NoError(t, err)
	_, err = models.LockFolder(dir)
	require.ErrorIs(t, err, models.ErrLocked)
	require.ErrorContains(t, err, dir)
	other, err := models.LockFolder(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, other.Close())

	require.NoError(t, lock.Close())
	lock, err = models.LockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())

	_, err = models.LockFolder(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFreeSpace(t *testing.T) {
	free, err := models.FreeSpace(t.TempDir())
	require.NoError(t, err)
	require.Positive(t, free)
	_, err = models.FreeSpace(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestReadFile: a file of exactly the limit is read, a larger one is refused.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte("12345"), 0o600))
	text, err := models.ReadFile(path, 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(text))
	_, err = models.ReadFile(path, 4)
	require.EqualError(t, err, path+": larger than 4 bytes")
}
