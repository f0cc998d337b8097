package models_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

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

// TestCache: a home that does not exist and cannot be made leaves the folder of temporary files.
func TestCache(t *testing.T) {
	home, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", filepath.Join(home, "new"))
	require.Equal(t, filepath.Join(home, "new", ".cache", "touchline"), models.Cache())
	file := filepath.Join(home, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	t.Setenv("HOME", file)
	require.Equal(t, filepath.Join(temp, "touchline"), models.Cache())
	t.Setenv("HOME", "")
	require.Equal(t, filepath.Join(temp, "touchline"), models.Cache())
}
