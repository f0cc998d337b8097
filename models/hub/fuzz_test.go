package hub_test

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/models/hub"
)

// always responds to every request with the same body.
type always []byte

func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: int64(len(a)),
		Body: io.NopCloser(bytes.NewReader(a)), Request: r,
	}, nil
}

// A list is refused, or its files are inside the folder and have a size and a checksum.
func FuzzList(f *testing.F) {
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"config.json","size":5,"blobId":"` + commit + `"}]}`))
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"m.safetensors","blobId":"` + commit +
		`","lfs":{"sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":1}}]}`))
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"a/../../b","size":-1}]}`))
	f.Fuzz(func(t *testing.T, list []byte) {
		c, err := hub.New(hub.Options{Now: time.Now, Transport: always(list), Attempts: 1, Backoff: 1})
		require.NoError(t, err)
		r, err := c.Files(t.Context(), model, "", nil)
		if err != nil {
			return
		}
		for _, file := range r.Files {
			require.True(t, filepath.IsLocal(file.Path))
			require.GreaterOrEqual(t, file.Size, int64(0))
			require.True(t, len(file.SHA256) == 64 || len(file.Blob) == 40)
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, seed := range []string{"bytes 0-0/1", "bytes 5-99/*", "bytes 5-3/9", "bytes */5", "bytes 0-9223372036854775807/*", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		first, last, size, err := hub.ContentRange(v)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, first, int64(0))
		require.GreaterOrEqual(t, last, first)
		require.True(t, size == -1 || size > last)
	})
}
