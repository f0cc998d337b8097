package bot

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/inference"
	"touchline/inference/scene"
)

// A sensor is for large models only. It takes the networks of sight for the room and releases them in the end.
func TestOpenSensor(t *testing.T) {
	r := NewEngines(inference.VoiceConfig{}, zerolog.Nop())
	c := &engineSwitcher{bot: &Bot{}, engines: r}
	for _, name := range []string{inference.EngineScene, inference.EngineNano, inference.EngineSight} {
		c.now = &sharedEngine{choice: agent.EngineChoice{Engine: name}}
		_, err := c.openSensor(func() {})
		require.EqualError(t, err, "engine "+name+" is no large model")
	}
	for _, name := range []string{inference.EngineMiniCPM, inference.EngineRemote} {
		c.now = &sharedEngine{choice: agent.EngineChoice{Engine: name}}
		r.make = NewEngine
		c.bot.opts.Settings.Sight.Bundle = t.TempDir() // without networks
		_, err := c.openSensor(func() {})
		require.ErrorContains(t, err, "prepare sight")
		require.Empty(t, r.shared)

		r.make = func(cfg Settings, log zerolog.Logger) (*Engine, error) {
			require.Equal(t, inference.EngineSight, cfg.Engine.Engine)
			return WithVoice(scene.Model{}, cfg.Engine.Voice, log)
		}
		sensor, err := c.openSensor(func() {})
		require.NoError(t, err)
		require.Len(t, r.shared, 1)
		_, ok := sensor.Facts()
		require.False(t, ok, "no look yet")
		require.NoError(t, sensor.Close())
		require.Empty(t, r.shared)
	}
}
