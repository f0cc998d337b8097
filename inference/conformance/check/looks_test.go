//go:build integration

package check_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/check"
)

// nanoGolden holds the recorded answers of nano.
const nanoGolden = "../../../models/nano/golden"

// someLooks returns a folder with nano's checkpoint and its first looks, after a change.
func someLooks(t *testing.T, n int, change func(fixture map[string]any)) string {
	t.Helper()
	f, err := os.Open(filepath.Join(nanoGolden, "looks", "nano.json.gz"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var fixture map[string]any
	d := json.NewDecoder(z)
	d.UseNumber()
	require.NoError(t, d.Decode(&fixture))
	looks, ok := fixture["looks"].([]any)
	require.True(t, ok)
	require.Len(t, looks, 200)
	fixture["looks"] = looks[:n]
	change(fixture)
	content, err := json.Marshal(fixture)
	require.NoError(t, err)

	dir := t.TempDir()
	checkpoint, err := filepath.Abs(filepath.Join(nanoGolden, "checkpoint"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(checkpoint, filepath.Join(dir, "checkpoint")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "looks"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "looks", "nano.json"), content, 0o600))
	return dir
}

// rows returns the rows of the looks.
func rows(r check.Report) map[string]check.Row {
	out := map[string]check.Row{}
	for _, row := range r.Rows {
		if row.Stage == "looks" {
			out[row.Fixture] = row
		}
	}
	return out
}

// In float32 the engine gives the answers of PyTorch. Few looks say nothing about the share of int4.
func TestLooksOfNano(t *testing.T) {
	got := rows(run(t, someLooks(t, 20, func(map[string]any) {})))
	for _, name := range []string{"looks/nano.json", "looks/nano.json in fp32"} {
		require.NoError(t, got[name].Err, "after a training, or a change of the generated worlds: make nano-golden")
		require.Zero(t, got[name].Worst)
	}
	require.Equal(t, 20, got["looks/nano.json in fp32"].Cases)
	require.Equal(t, 20, got["looks/nano.json in int4"].Cases)
	require.Less(t, got["looks/nano.json in int4"].Worst, 0.1, "rounded weights give the same answers")
}

func TestLooksOfOtherWeightsOrPictures(t *testing.T) {
	got := rows(run(t, someLooks(t, 1, func(f map[string]any) { f["weights"] = "0" })))
	require.ErrorContains(t, got["looks/nano.json"].Err, "record them again")
	require.Len(t, got, 1)

	got = rows(run(t, someLooks(t, 1, func(f map[string]any) { f["looks"].([]any)[0].(map[string]any)["seed"] = 7 })))
	require.ErrorContains(t, got["looks/nano.json in fp32"].Err, "pictures of match 7")
}
