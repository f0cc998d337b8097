//go:build integration && !race

package child_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/internal/child"
	"touchline/media/codec"
	"touchline/media/source"
	"touchline/media/source/file"
)

// TestMemoryOfOwners: a codec process that is ended, because all programs use too much, is started again, and its log says why. A file
// whose program is ended is not given up.
func TestMemoryOfOwners(t *testing.T) {
	child.LimitMemory(t, 0)
	t.Run("codec", func(t *testing.T) {
		var log bytes.Buffer
		d, err := codec.New(codec.Options{
			Path: filepath.Join(os.Getenv("TOUCHLINE_BIN"), "touchline-codec"), Log: zerolog.New(&log),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.NoError(t, d.Run(ctx))
		require.Greater(t, strings.Count(log.String(), child.ErrMemory.Error()), 1, log.String())
	})
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		clip := filepath.Join(dir, "x.mp4")
		require.NoError(t, os.WriteFile(clip, []byte("x"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ffprobe"), []byte("#!/bin/sh\nsleep 600\n"), 0o755)) // still at work
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		c, err := file.New(file.Options{Access: source.Access{
			Address: source.Address{Kind: source.File, Path: clip}, Allow: source.AllowEverything(), Now: time.Now,
		}})
		require.NoError(t, err)
		err = c.Pull(t.Context(), source.Sink{})
		require.ErrorIs(t, err, child.ErrMemory)
		require.False(t, source.IsPermanent(err))
	})
}
