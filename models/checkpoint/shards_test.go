package checkpoint_test

import (
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models/safetensors"
)

// unpacked returns the content of the gzipped shards of a folder by path.
func unpacked(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.safetensors.gz"))
	require.NoError(t, err)
	contents := map[string][]byte{}
	for _, path := range paths {
		f, err := os.Open(path)
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		contents[path], err = io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return contents
}

// shards reads the gzipped shards of a folder into memory.
func shards(t *testing.T, dir string) (list []*safetensors.File) {
	t.Helper()
	contents := unpacked(t, dir)
	for _, path := range slices.Sorted(maps.Keys(contents)) {
		s, err := safetensors.Parse(path, contents[path])
		require.NoError(t, err)
		list = append(list, s)
	}
	return list
}

// replaceShards replaces the gzipped shards of a copy by their content, unless
// the copy has others than the original. Opening it is then faster.
func replaceShards(t *testing.T, dir string, contents map[string][]byte) {
	t.Helper()
	for path, content := range contents {
		original, err := os.Stat(path)
		require.NoError(t, err)
		name := filepath.Join(dir, filepath.Base(path))
		if info, err := os.Stat(name); err == nil && info.Size() == original.Size() {
			require.NoError(t, os.Remove(name))
			require.NoError(t, os.WriteFile(strings.TrimSuffix(name, ".gz"), content, 0o600))
		}
	}
}
