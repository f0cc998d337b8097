package bot

import (
	"errors"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/region"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/scene"
	"touchline/inference/sight"
)

// A sensor is for large models only. It takes the networks of sight for the room and releases them in the end.
func TestOpenSensor(t *testing.T) {
	r := NewEngines(inference.VoiceConfig{}, zerolog.Nop())
	c := &engineSwitcher{bot: &Bot{}, engines: r}
	for _, name := range []string{inference.EngineScene, inference.EngineNano, inference.EngineSight} {
		c.now = &sharedEngine{choice: agent.EngineChoice{Engine: name}}
		_, err := c.openSensor(func(bool) {})
		require.EqualError(t, err, "engine "+name+" is no large model")
	}
	for _, name := range []string{inference.EngineMiniCPM, inference.EngineRemote} {
		c.now = &sharedEngine{choice: agent.EngineChoice{Engine: name}}
		r.make = NewEngine
		c.bot.opts.Settings.Sight.Bundle = t.TempDir() // without networks
		_, err := c.openSensor(func(bool) {})
		require.ErrorContains(t, err, "prepare sight")
		require.Empty(t, r.shared)

		r.make = func(cfg Settings, log zerolog.Logger) (*Engine, error) {
			require.Equal(t, inference.EngineSight, cfg.Engine.Engine)
			return WithVoice(scene.Model{}, cfg.Engine.Voice, log)
		}
		sensor, err := c.openSensor(func(bool) {})
		require.NoError(t, err)
		require.Len(t, r.shared, 1)
		_, ok := sensor.Facts()
		require.False(t, ok, "no look yet")
		require.NoError(t, sensor.Close())
		require.Empty(t, r.shared)
	}
}

// What decides a rule, by engine. Without a sensor, rules by facts have a problem and the others go to the model.
func TestAcceptsRule(t *testing.T) {
	regions, err := region.NewSet(region.Config{})
	require.NoError(t, err)
	b := &Bot{Regions: regions}
	b.engine = &engineSwitcher{bot: b, engines: NewEngines(inference.VoiceConfig{}, zerolog.Nop())}
	force := func(name string, can inference.Capabilities) {
		b.engine.now = &sharedEngine{
			Engine: &Engine{ModelManager: engine.Of(&agenttest.Engine{Called: name, Can: &can}, nil)}, choice: agent.EngineChoice{Engine: name},
		}
	}
	check := func(by, when, want string) {
		t.Helper()
		facts, err := b.acceptsRule(alert.RuleText{When: when, By: by})
		got := "engine"
		if facts {
			got = "facts"
		}
		if err != nil {
			got = err.Error()
		}
		require.Contains(t, got, want, "%s: %s", by, when)
	}
	const known, other = "a person enters", "a goal is scored"
	force(inference.EngineSight, sight.Capabilities())
	check(alert.ByAuto, known, "facts")
	check(alert.ByFacts, known, "facts")
	check(alert.ByFacts, other, "the sight engine answers rules about people")
	check(alert.ByAuto, other, "the sight engine answers rules about people")
	check(alert.ByModel, known, "engine sight is no model")

	force(inference.EngineScene, scene.Model{}.Capabilities())
	check(alert.ByAuto, "cut", "engine")
	check(alert.ByFacts, "cut", "engine scene has no facts")
	check(alert.ByModel, "cut", "engine scene is no model")

	force(inference.EngineNano, inference.Capabilities{Instructions: true})
	check(alert.ByAuto, known, "engine")
	check(alert.ByModel, other, "engine")
	check(alert.ByFacts, known, "engine nano has no facts")

	force(inference.EngineRemote, inference.Capabilities{Instructions: true})
	check(alert.ByAuto, known, "facts")
	check(alert.ByAuto, other, "engine")
	check(alert.ByModel, known, "engine")
	check(alert.ByFacts, known, "facts")
	check(alert.ByFacts, other, "the sight engine answers rules about people")
	b.engine.senses(nil, errors.New("no networks"))
	check(alert.ByAuto, known, "engine")
	check(alert.ByFacts, known, "no networks")
	b.engine.sensor.at = b.engine.sensor.at.Add(-sensorRetry)
	check(alert.ByAuto, known, "facts")
	b.engine.senses(nil, errors.New("no networks"))
	check(alert.ByAuto, known, "engine")
	force(inference.EngineRemote, inference.Capabilities{Instructions: true}) // another one
	check(alert.ByAuto, known, "facts")
}
