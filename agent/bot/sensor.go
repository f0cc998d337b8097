package bot

import (
	"errors"
	"fmt"
	"time"

	"touchline/agent"
	"touchline/agent/alert"
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
func (c *engineSwitcher) openSensor(looked func(news bool)) (inference.Sensor, error) {
	switch name := c.inForce().choice.Engine; name {
	case inference.EngineMiniCPM, inference.EngineRemote:
	default:
		return nil, fmt.Errorf("engine %s is no large model", name)
	}
	e, err := c.engines.take(c.bot.opts.Settings.with(agent.EngineChoice{Engine: inference.EngineSight}), true)
	c.senses(e, err)
	if err != nil {
		return nil, err
	}
	c.engines.start(e, false)
	room, err := e.Open(nil)
	if err != nil {
		c.senses(nil, err)
		return nil, errors.Join(err, c.engines.release(e))
	}
	return sight.NewSensor(sensorEyes{room, func() error {
		_, failed := c.engines.loaded(e)
		c.senses(nil, failed)
		return c.engines.release(e)
	}}, looked), nil
}

// sensorState is what is known of the sensor beside an engine.
type sensorState struct {
	beside  *sharedEngine
	engine  *sharedEngine // of the sensor; nil while there is none
	problem error         // of the last one
	at      time.Time     // of this state
}

// sensorRetry is how long after a problem another sensor may be tried.
const sensorRetry = time.Minute

// senses notes a sensor beside the engine in force, or why there is none.
func (c *engineSwitcher) senses(e *sharedEngine, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sensor = sensorState{c.now, e, problem, time.Now()}
}

// acceptsRule reports whether facts decide a rule, or why neither they nor the engine in force can.
func (b *Bot) acceptsRule(r alert.RuleText) (facts bool, err error) {
	if err := b.Regions.Resting(r.When); err != nil {
		return false, err
	}
	now, zones := b.engine.inForce(), b.Regions.Zones(true)
	can := now.Capabilities()
	switch {
	case can.CheckRule != nil && r.By == alert.ByModel:
		return false, fmt.Errorf("engine %s is no model; choose by: auto, or an engine that follows instructions", now.choice.Engine)
	case can.Facts, can.CheckRule != nil && r.By == alert.ByAuto:
		return can.Facts, can.CheckRule(r.When, zones)
	case r.By == alert.ByModel:
		return false, nil
	}
	if err = b.engine.noSensor(); err == nil {
		err = sight.Capabilities().CheckRule(r.When, zones)
	}
	if r.By == alert.ByFacts {
		return true, err
	}
	return err == nil, nil
}

// noSensor returns why there can be no sensor beside the engine in force; nil if there can.
func (c *engineSwitcher) noSensor() error {
	c.mu.Lock()
	now, sensor := c.now, c.sensor
	c.mu.Unlock()
	switch name := now.choice.Engine; {
	case name != inference.EngineMiniCPM && name != inference.EngineRemote:
		return fmt.Errorf("engine %s has no facts; choose engine sight, or a large model with the networks of sight", name)
	case sensor.beside != now:
		return nil // not tried
	case sensor.engine != nil:
		_, err := c.engines.loaded(sensor.engine)
		return err
	case time.Since(sensor.at) >= sensorRetry:
		return nil
	}
	return sensor.problem
}
