package codec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/codec"
)

// TestFind: the program is on the PATH; a folder that the bot happens to run in is not searched.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("bin", 0o700))
	path := filepath.Join(dir, "bin", "touchline-codec")
	require.NoError(t, os.WriteFile(path, nil, 0o700))
	t.Setenv("PATH", "")
	_, err := codec.Find("")
	require.EqualError(t, err, "find touchline-codec: it is neither beside this program nor on the PATH; run make build")
	t.Setenv("PATH", filepath.Dir(path))
	found, err := codec.Find("")
	require.NoError(t, err)
	require.Equal(t, path, found)
}
