//go:build integration

package timing_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/bundles"
	"touchline/inference/conformance/timing"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/qwen3asr"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

const root = "../../../"

// TestStages times each run of a small bundle that speaks.
func TestStages(t *testing.T) {
	orttest.NoLeaks(t)
	dir := t.TempDir()
	require.NoError(t, bundles.Speaking(t.Context(), root, t.TempDir(), filepath.Join(dir, "bundle")))
	b, err := models.OpenBundle(filepath.Join(dir, "bundle"))
	require.NoError(t, err)
	c := minicpmo.DefaultSettings()
	c.MiniCPM.Device, c.MiniCPM.Runtime, c.MiniCPM.Slots, c.MiniCPM.MaxLen = "cpu", orttest.Library(t), 2, 256
	s, err := timing.TimeStages(t.Context(), b, minicpmo.Options{Config: c, Threads: 1}, timing.StageOptions{
		Runs: 1, Prompt: 20, Images: []int{1, 8}, Rooms: []int{1, 2, 4}, Speaking: []int{1, 2},
	})
	require.NoError(t, err)
	require.Len(t, s.Prefill, len(s.Decode))
	for w, rooms := range s.Decode {
		require.Len(t, rooms, 2, "%s: no more rooms than slots", w)
	}
	require.NotContains(t, s.Vision, 8)
	require.Len(t, s.Speech.Step[2], 1)
	require.Len(t, s.Speech.Sound, 2)
	require.Len(t, s.Speech.Beside, 2)
	require.Positive(t, s.Speech.Slot)
}

func TestHearing(t *testing.T) {
	orttest.NoLeaks(t)
	src, err := checkpoint.Open(root + "models/testdata/qwen3-asr/checkpoint")
	require.NoError(t, err)
	defer src.Close()
	dir := filepath.Join(t.TempDir(), "bundle")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	o := qwen3asr.Options{Device: "cpu", Runtime: orttest.Library(t), Threads: 1}
	s, err := timing.TimeHearing(t.Context(), b, o, 1, []int{1, 2, 64}, time.Now)
	require.NoError(t, err)
	require.Len(t, s.Encode, 2)
	require.Len(t, s.Prefill, 2)
	require.Len(t, s.Decode, 2)
	require.Positive(t, s.Positions)
}
