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
