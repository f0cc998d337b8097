package checkpoint_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models/safetensors"
)

// shards reads the gzipped shards of a folder into memory.
func shards(t *testing.T, dir string) (list []*safetensors.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.safetensors.gz"))
	require.NoError(t, err)
	for _, path := range paths {
		f, err := os.Open(path)
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		content, err := io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		s, err := safetensors.Parse(path, content)
		require.NoError(t, err)
		list = append(list, s)
	}
	return list
}
