package look

import (
	"strings"
	"time"

	"touchline/agent/settings"
	"touchline/inference"
)

// factsPoll is the time between two checks for new facts.
const factsPoll = 100 * time.Millisecond

// sensing is the state of the sensor beside the engine. Guarded by Loop.mu; the goroutine of think opens and closes the sensor.
type sensing struct {
	sensor  inference.Sensor // nil without one
	tried   bool             // it was opened, or problem says why not
	stale   bool             // it was opened for another engine
	problem string

	began   time.Time // of the last cycle
	seen    uint64    // changes of the facts then
	changed bool      // that cycle began because of a change
}

// tendSensor opens or closes the sensor if the settings or the engine ask for it.
func (l *Loop) tendSensor() {
	l.mu.Lock()
	wanted := l.opts.OpenSensor != nil && l.task.Agent.LookWhen == settings.LookByFacts
	done := wanted == l.sensing.tried && !l.sensing.stale
	l.mu.Unlock()
	if done {
		return
	}
	l.closeSensor()
	if !wanted {
		return
	}
	sensor, err := l.opts.OpenSensor()
	if err != nil {
		l.log.Warn().Err(err).Msg("looks begin by pixels")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sensing.tried = true
	if err != nil {
		l.sensing.problem = "Looks begin by pixels, not by facts: " + err.Error() + "."
		return
	}
	l.sensing.sensor = sensor
}

func (l *Loop) closeSensor() {
	var sensor inference.Sensor
	l.locked(func() { sensor, l.sensing = l.sensing.sensor, sensing{began: l.sensing.began} })
	if sensor == nil {
		return
	}
	if err := sensor.Close(); err != nil {
		l.log.Warn().Err(err).Msg("sensor not closed")
	}
}

// Observe passes a sampled picture to the engine and to the sensor.
func (l *Loop) Observe(f inference.Frame) {
	l.engine.Observe(f)
	var sensor inference.Sensor
	l.locked(func() { sensor = l.sensing.sensor })
	if sensor != nil {
		sensor.Observe(f)
	}
}

// Note describes the limits of the engine for the page, and why looks do not begin by facts.
func (l *Loop) Note() (note string) {
	l.locked(func() { note = l.sensing.problem })
	return strings.TrimSpace(l.engine.Note() + " " + note)
}

// factsLocked returns the sensor's measurement of the source; nil without one.
func (l *Loop) factsLocked() *inference.Facts {
	if l.sensing.sensor == nil {
		return nil
	}
	facts, ok := l.sensing.sensor.Facts()
	if !ok || facts.Epoch != l.picture.Source().Epoch {
		return nil
	}
	return &facts
}

// beganLocked notes the facts at the begin of a cycle.
func (l *Loop) beganLocked(now time.Time) {
	l.sensing.began, l.sensing.changed = now, false
	if facts := l.factsLocked(); facts != nil {
		l.sensing.changed = facts.Changes != l.sensing.seen
		l.sensing.seen = facts.Changes
	}
}

// awaitFactsLocked returns the time of the next check while the facts have not changed since the last cycle; zero if a cycle may begin.
func (l *Loop) awaitFactsLocked(now time.Time) time.Time {
	if !l.cycled || l.gate.Urgent() || l.retry.failures > 0 {
		return time.Time{}
	}
	due := l.sensing.began.Add(l.task.Agent.LookMaxWait)
	facts := l.factsLocked()
	if facts == nil || facts.Changes != l.sensing.seen || !due.After(now) {
		return time.Time{}
	}
	if next := now.Add(factsPoll); next.Before(due) {
		return next
	}
	return due
}
