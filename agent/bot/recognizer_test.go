//go:build integration

package bot_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/inference"
	"touchline/internal/e2e/stage"
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

// TestInterimBundle: a second bundle answers while somebody speaks, and the first one only at the end.
func TestInterimBundle(t *testing.T) {
	t.Parallel()
	cfg := inference.DefaultConfig().Recognizer
	src, err := checkpoint.Open(moduleRoot + "models/testdata/qwen3-asr/checkpoint")
	require.NoError(t, err)
	defer src.Close()
	cfg.Program, cfg.Device, cfg.Slots, cfg.Bundle = inference.RecognizerModel, "cpu", 2, filepath.Join(t.TempDir(), "b")
	require.NoError(t, convert.Convert(t.Context(), src, cfg.Bundle, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	cfg.Interim.Bundle = t.TempDir()
	_, err = bot.NewRecognizer(cfg, "", zerolog.Nop())
	require.ErrorIs(t, err, models.ErrNoBundle)
	require.ErrorContains(t, err, "inference.recognizer.interim: ")
	cfg.Interim.Bundle = cfg.Bundle
	r, err := bot.NewRecognizer(cfg, moduleRoot+"bin/runtime", zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	_, err = stage.Until(ctx, time.Minute, "both models", func() bool {
		return strings.Contains(r.Status().Detail, "; interim texts by ")
	})
	require.NoError(t, err)
	u, err := r.Listen(ctx, inference.Hearing{})
	require.NoError(t, err)
	sound := make([]float32, 2*inference.RecognizerRate)
	text, err := u.Hear(ctx, sound)
	require.NoError(t, err)
	require.NotEmpty(t, text.Text)
	text, err = u.Finish(ctx, sound)
	require.NoError(t, err)
	require.True(t, text.Final)
	require.NoError(t, u.Close())
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(r.Metrics))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 22)
	answers := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if strings.HasSuffix(f.GetName(), "_answers_total") && len(m.GetLabel()) == 1 {
				answers[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.InDelta(t, 1, answers["touchline_recognizer_interim_answers_total partial"], 0)
	require.Zero(t, answers["touchline_recognizer_answers_total partial"])
	require.InDelta(t, 1, answers["touchline_recognizer_answers_total final"], 0)
	cancel()
	require.NoError(t, <-ended)
}
