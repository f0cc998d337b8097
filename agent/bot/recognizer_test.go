//go:build integration

package bot_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/inference"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// TestRecognizerOfABundle: a checkpoint is converted, loaded on demand, and hears.
func TestRecognizerOfABundle(t *testing.T) {
	t.Parallel()
	cfg := inference.DefaultConfig().Recognizer
	none, err := bot.NewRecognizer(cfg, "", zerolog.Nop())
	require.NoError(t, err)
	require.Nil(t, none)
	cfg.Program, cfg.Bundle, cfg.Device = inference.RecognizerModel, t.TempDir(), "cpu"
	_, err = bot.NewRecognizer(cfg, "", zerolog.Nop())
	require.ErrorIs(t, err, models.ErrNoBundle)

	src, err := checkpoint.Open(moduleRoot + "models/testdata/qwen3-asr/checkpoint")
	require.NoError(t, err)
	defer src.Close()
	cfg.Bundle, cfg.Slots = filepath.Join(t.TempDir(), "b"), 2
	require.NoError(t, convert.Convert(t.Context(), src, cfg.Bundle, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	r, err := bot.NewRecognizer(cfg, moduleRoot+"bin/runtime", zerolog.Nop())
	require.NoError(t, err)
	require.Contains(t, r.Recognizes().Languages, "en")
	require.False(t, r.Recognizes().WordTimes)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for part, err := range r.Transcribe(ctx, make([]float32, inference.RecognizerRate), inference.Hearing{}) {
		require.NoError(t, err)
		require.True(t, part.Final)
		require.NotEmpty(t, part.Text)
	}
	require.Equal(t, inference.PhaseReady, r.Status().Phase)
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(r.Metrics))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 11)
	cancel()
	require.NoError(t, <-ended)
}
