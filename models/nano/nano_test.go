package nano_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/models/nano"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The name of the folder says which nano is wanted.
func TestConvertIsOfThisVersion(t *testing.T) {
	err := nano.Convert(t.Context(), filepath.Join(t.TempDir(), "nano-0123456789ab-6"))
	require.ErrorContains(t, err, "take both programs of one release")
}

// The checkpoint has the published layout, and a size that suits a repository.
func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, nano.Write(dir))
	var config struct {
		Type string `json:"model_type"`
	}
	content, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &config))
	require.Equal(t, "minicpmo", config.Type)
	var size int64
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		size += info.Size()
	}
	require.LessOrEqual(t, size, int64(8_000_000))
}
