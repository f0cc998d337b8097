package hub_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/models/hub"
)

// Downloads a large file over loopback, with writing and checksum.
func BenchmarkPull(b *testing.B) {
	content := make([]byte, 256<<20)
	for i := range content {
		content[i] = byte(i * 7)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer server.Close()
	c, err := hub.New(hub.Options{Endpoint: server.URL, Now: time.Now, Chunk: 16 << 20})
	require.NoError(b, err)
	defer c.Close()
	r := hub.Revision{Model: model, Commit: commit, Files: []hub.File{
		{Path: "model.safetensors", Size: int64(len(content)), SHA256: sha256Of(content)},
	}}
	b.SetBytes(int64(len(content)))
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		require.NoError(b, c.Pull(b.Context(), r, filepath.Join(dir, strconv.Itoa(i)), nil))
	}
}
