package bot_test

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/configs"
	"touchline/inference/nano"
	"touchline/models"
	checkpoint "touchline/models/nano"
)

// Nano says what it can do before it is loaded; it needs no settings.
func TestNanoEngine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := nano.Bundle(t.Context(), models.Cache(), checkpoint.Convert)
	require.NoError(t, err)
	cfg := configs.Default()
	cfg.Inference.Engine = "nano"
	require.NoError(t, cfg.Validate())
	e, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.Equal(t, "nano", e.Name())
	can := e.Capabilities()
	require.True(t, can.Instructions)
	require.True(t, can.Speaks("en-GB"))
	require.True(t, can.Speaks("es-MX"))
	require.False(t, can.Speaks("de"))
	require.Contains(t, e.Note, "generated worlds")
}

// The automatic choice outside of the demo is the scene engine.
func TestAutomaticEngine(t *testing.T) {
	e, err := bot.NewEngine(configs.Default().Bot(), zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.Equal(t, "scene", e.Name())
}

// Sight is refused without its networks. The program chooses it for "auto", whose note says why it is not.
func TestSightEngine(t *testing.T) {
	cfg := configs.Default()
	cfg.Inference.Engine = "sight"
	cfg.Inference.Sight.Bundle = t.TempDir()
	require.NoError(t, cfg.Validate())
	_, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.ErrorContains(t, err, "touchline models pull sight")
	cfg.Inference.Engine, cfg.Inference.Auto = "auto", bot.Auto{Engine: "sight"}
	_, err = bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.ErrorContains(t, err, "prepare sight")
	cfg.Inference.Auto = bot.Auto{Why: "its networks are away"}
	e, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.Equal(t, "scene", e.Name())
	require.Contains(t, e.Note, "its networks are away")
}

// An engine without a voice cannot be given its own.
func TestModelWithoutAVoice(t *testing.T) {
	cfg := configs.Default()
	cfg.Inference.Voice.Program = "model"
	require.NoError(t, cfg.Validate())
	_, err := bot.NewEngine(cfg.Bot(), zerolog.Nop())
	require.ErrorContains(t, err, "inference.voice.program model: this model has no voice (scene); choose auto, flite, ")
}
