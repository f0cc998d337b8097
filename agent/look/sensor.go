package look

import (
	"strings"
	"time"

	"touchline/agent/settings"
	"touchline/inference"
)

// sensing is the state of the sensor beside the engine. Guarded by Loop.mu; the goroutine of think opens and closes the sensor.
type sensing struct {
	sensor  inference.Sensor // nil without one
	tried   bool             // it was opened, or problem says why not
	stale   bool             // it was opened for another engine
	problem string

	began   time.Time // of the last cycle
	seen    uint64    // news of the facts then
	changed bool      // that cycle began because of news
}

// factsAge is the largest age of a measurement, in media time: with an older one looks begin by pixels.
const factsAge = 5 * time.Second

// tendSensor opens or closes the sensor if the settings or the engine ask for it.
func (l *Loop) tendSensor() {
	judges := !l.engine.Capabilities().Facts && l.judges(time.Now())
	l.mu.Lock()
	wanted := l.opts.OpenSensor != nil && (judges || l.looksByFactsLocked())
	done := wanted == l.sensing.tried && !l.sensing.stale
	l.mu.Unlock()
	if done {
		return
	}
	l.closeSensor()
	if !wanted {
		return
	}
	sensor, err := l.opts.OpenSensor(l.sensed)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sensing.tried = true
	if err != nil {
		if l.looksByFactsLocked() {
			l.log.Warn().Err(err).Msg("looks begin by pixels")
		} else {
			l.log.Info().Err(err).Msg("no facts for alert rules")
		}
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

func (l *Loop) looksByFactsLocked() bool { return l.task.Agent.LookWhen == settings.LookByFacts }

// Observe passes a sampled picture to the engine and to the sensor.
func (l *Loop) Observe(f inference.Frame) {
	if newest, ok := l.picture.Newest(); ok && newest.PTS == f.PTS {
		l.judge.observe(newest)
	}
	l.engine.Observe(f)
	var sensor inference.Sensor
	l.locked(func() { sensor = l.sensing.sensor })
	if sensor != nil {
		sensor.Observe(f)
	}
}

// Note describes the limits of the engine for the page, and why looks do not begin by facts.
func (l *Loop) Note() (note string) {
	l.locked(func() {
		if l.looksByFactsLocked() {
			note = l.sensing.problem
		}
	})
	return strings.TrimSpace(l.engine.Note() + " " + note)
}

// factsLocked returns the sensor's measurement of the source; nil without one.
func (l *Loop) factsLocked() *inference.Facts {
	if l.sensing.sensor == nil || !l.looksByFactsLocked() {
		return nil
	}
	facts, ok := l.sensing.sensor.Facts()
	if source := l.picture.Source(); !ok || facts.Epoch != source.Epoch || source.PTS-facts.PTS > factsAge {
		return nil
	}
	return &facts
}

// beganLocked notes the facts at the begin of a cycle.
func (l *Loop) beganLocked(now time.Time) {
	l.sensing.began, l.sensing.changed = now, false
	if facts := l.factsLocked(); facts != nil {
		l.sensing.changed = facts.News != l.sensing.seen
		l.sensing.seen = facts.News
	}
}

// awaitFactsLocked returns the time of the next check while there is no news since the last cycle; zero if a cycle may begin.
func (l *Loop) awaitFactsLocked(now time.Time) time.Time {
	if !l.cycled || l.gate.Urgent() || l.retry.failures > 0 {
		return time.Time{}
	}
	due := l.sensing.began.Add(l.task.Agent.LookMaxWait)
	facts := l.factsLocked()
	if facts == nil || facts.News != l.sensing.seen || !due.After(now) {
		return time.Time{}
	}
	return due
}
