package nano_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference/nano"
	"touchline/internal/child"
	"touchline/models"
	checkpoint "touchline/models/nano"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The version is that of the checkpoint; after a training it is another.
func TestVersion(t *testing.T) {
	version, err := checkpoint.Version()
	require.NoError(t, err)
	require.Equal(t, nano.Version, version) // print what the constant has to be
}

// The bundle is converted once and has what the engine needs.
func TestBundle(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "touchline")
	dir, err := nano.Bundle(t.Context(), cache, checkpoint.Convert)
	require.NoError(t, err)
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	require.Equal(t, nano.Name, b.Manifest.Name)
	require.NotNil(t, b.Manifest.Dims.Vision)
	require.False(t, b.Manifest.Random)
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the bundle is left")

	manifest := filepath.Join(dir, "manifest.json")
	before, err := os.Stat(manifest)
	require.NoError(t, err)
	again, err := nano.Bundle(t.Context(), cache, func(context.Context, string) error { return errors.New("unused") })
	require.NoError(t, err)
	require.Equal(t, dir, again)
	after, err := os.Stat(manifest)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
}

// The bundle of an older program stays in the cache, and a bundle of this format is made beside it.
func TestOlderCache(t *testing.T) {
	cache := t.TempDir()
	dir, err := nano.Bundle(t.Context(), cache, checkpoint.Convert)
	require.NoError(t, err)
	old := regexp.MustCompile(`-\d+$`).ReplaceAllString(dir, "")
	require.NotEqual(t, dir, old)
	require.NoError(t, os.Rename(dir, old)) // as format 5 named it
	b, err := models.OpenBundle(old)
	require.NoError(t, err)
	b.Manifest.Format = 5
	for i := range b.Manifest.Graphs {
		b.Manifest.Graphs[i].Table = nil
	}
	require.NoError(t, models.WriteManifest(old, &b.Manifest))
	again, err := nano.Bundle(t.Context(), cache, checkpoint.Convert)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	b, err = models.OpenBundle(again)
	require.NoError(t, err)
	require.Equal(t, models.FormatVersion, b.Manifest.Format)
	require.DirExists(t, old)
}

// Two processes may convert at once; a folder that cannot be written is named.
func TestBundleFailures(t *testing.T) {
	cache := t.TempDir()
	errs := make(chan error)
	for range 2 {
		go func() {
			_, err := nano.Bundle(t.Context(), cache, checkpoint.Convert)
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := nano.Bundle(t.Context(), file, checkpoint.Convert)
	require.ErrorContains(t, err, file)
}

// touchline-model makes the bundle; its error is passed on, and the program is named where it is missing.
func TestRunProgram(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := t.TempDir()
	t.Setenv("PATH", path)
	_, err := nano.Bundle(t.Context(), models.Cache(), nano.RunProgram)
	require.ErrorIs(t, err, child.ErrNoModelProgram)
	require.ErrorIs(t, nano.Check(t.Context()), child.ErrNoModelProgram)

	program := "#!/bin/sh\necho \"touchline-model: the disk is full\" >&2\nexit 3\n"
	require.NoError(t, os.WriteFile(filepath.Join(path, child.ModelProgram), []byte(program), 0o700))
	require.NoError(t, nano.Check(t.Context()))
	_, err = nano.Bundle(t.Context(), models.Cache(), nano.RunProgram)
	require.ErrorContains(t, err, "exit status 3: touchline-model: the disk is full")

	t.Setenv("PATH", "")
	_, err = nano.Bundle(t.Context(), models.Cache(), checkpoint.Convert)
	require.NoError(t, err)
	require.NoError(t, nano.Check(t.Context()), "the bundle is there")
}

// The program ends with the context.
func TestRunProgramIsCanceled(t *testing.T) {
	path := t.TempDir()
	started := filepath.Join(path, "started")
	t.Setenv("PATH", path+string(os.PathListSeparator)+os.Getenv("PATH"))
	program := "#!/bin/sh\ntouch " + started + "\nexec sleep 600\n"
	require.NoError(t, os.WriteFile(filepath.Join(path, child.ModelProgram), []byte(program), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- nano.RunProgram(ctx, filepath.Join(path, "bundle")) }()
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, time.Minute, 10*time.Millisecond)
	cancel()
	require.Error(t, <-ended)
}
