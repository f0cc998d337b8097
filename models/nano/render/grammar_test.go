//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/toyworld"
)

// The tests of the training's grammar, on the truth of a film of each world.
func TestGrammar(t *testing.T) {
	truth := t.TempDir()
	for _, world := range toyworld.Worlds() {
		require.NoError(t, run(t.Context(), []string{
			"-world", world, "-out", filepath.Join(truth, world), "-first", "500", "-seeds", "1", "-seconds", "600", "-pixels=false",
		}, t.Output()))
	}
	python := exec.CommandContext(t.Context(), "python3", "-m", "unittest")
	python.Dir = filepath.Join("..", "train")
	python.Env = append(os.Environ(), "NANO_TRUTH="+truth, "PYTHONDONTWRITEBYTECODE=1")
	out, err := python.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
