package codec_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media/codec"
)

// TestRefusedCallIsTheReason: the reason of a restart names the system call that ended the process.
func TestRefusedCallIsTheReason(t *testing.T) {
	path := filepath.Join(t.TempDir(), "touchline-codec")
	script := "#!/bin/sh\necho 'refused system call 263 unlinkat' >&2\nexit 159\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reasons := make(chan string, 1)
	log := zerolog.New(zerolog.SyncWriter(writer(func(p []byte) {
		if bytes.Contains(p, []byte("codec process ended")) {
			select {
			case reasons <- string(p):
			default:
			}
		}
	})))
	d, err := codec.New(codec.Options{Path: path, Log: log})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	require.Contains(t, <-reasons, "exit status 159: refused system call 263 unlinkat")
	cancel()
	require.NoError(t, <-done)
}

type writer func([]byte)

var _ io.Writer = writer(nil)

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
