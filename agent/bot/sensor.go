package bot

import (
	"errors"
	"fmt"

	"touchline/agent"
	"touchline/inference"
	"touchline/inference/sight"
)

// sensorEyes are a room's conversation with engine sight beside the engine in force.
type sensorEyes struct {
	sight.Eyes

	release func() error
}

func (e sensorEyes) Close() error { return errors.Join(e.Eyes.Close(), e.release()) }

// openSensor opens a sensor for the engine in force, if that is a large model.
func (c *engineSwitcher) openSensor(changed func()) (inference.Sensor, error) {
	switch name := c.inForce().choice.Engine; name {
	case inference.EngineMiniCPM, inference.EngineRemote:
	default:
		return nil, fmt.Errorf("engine %s is no large model", name)
	}
	e, err := c.engines.take(c.bot.opts.Settings.with(agent.EngineChoice{Engine: inference.EngineSight}), true)
	if err != nil {
		return nil, err
	}
	c.engines.start(e, false)
	room, err := e.Open(nil)
	if err != nil {
		return nil, errors.Join(err, c.engines.release(e))
	}
	return sight.NewSensor(sensorEyes{room, func() error { return c.engines.release(e) }}, changed), nil
}
