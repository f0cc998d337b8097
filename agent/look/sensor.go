package look

import (
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/rescue"
)

// sensing owns the sensor beside the engine. The goroutine of think opens and closes it.
type sensing struct {
	open    func(looked func(news bool)) (inference.Sensor, error) // nil without sensors
	looked  func(news bool)
	picture *Picture
	log     zerolog.Logger

	mu      sync.Mutex       // a leaf but for the sensor's
	sensor  inference.Sensor // nil without one
	tried   bool             // it was opened, or problem says why not
	stale   bool             // it was opened for another engine
	byFacts bool             // looks begin by facts
	problem string
	logged  string // the last problem that was logged

	began time.Time // of the last cycle
	seen  uint64    // news of the facts then
	fresh bool      // that cycle began because of news
}

// factsAge is the largest age of a measurement, in media time: with an older one looks begin by pixels.
const factsAge = 5 * time.Second

// tend opens or closes the sensor if looks begin by facts, if facts decide alert rules, or if the engine changed. After a failure, judges
// means that another sensor may be tried.
func (s *sensing) tend(byFacts, judges bool) {
	s.mu.Lock()
	s.byFacts = byFacts
	wanted := s.open != nil && (byFacts || judges)
	again := judges && s.tried && s.sensor == nil
	done := wanted == s.tried && !s.stale && !again
	if sensor, ok := s.sensor.(interface{ Problem() error }); ok {
		s.explainLocked(sensor.Problem())
	}
	s.mu.Unlock()
	if done {
		return
	}
	s.close()
	if !wanted {
		return
	}
	sensor, err := s.open(s.looked)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = true
	if err == nil {
		s.sensor = sensor
	}
	s.explainLocked(err)
}

// explainLocked keeps why there are no facts, and logs it if it is another reason than the last one; nil if there are facts.
func (s *sensing) explainLocked(err error) {
	if s.problem = ""; err == nil {
		return
	}
	s.problem = "Looks begin by pixels, not by facts: " + err.Error() + "."
	if s.problem == s.logged {
		return
	}
	s.logged = s.problem
	event, text := s.log.Info(), "no facts for alert rules"
	if s.byFacts {
		event, text = s.log.Warn(), "looks begin by pixels"
	}
	event.Err(err).Bytes("stack", rescue.Stack(err)).Msg(text)
}

func (s *sensing) close() {
	s.mu.Lock()
	sensor := s.sensor
	s.sensor, s.tried, s.stale, s.problem, s.seen, s.fresh = nil, false, false, "", 0, false
	s.mu.Unlock()
	if sensor == nil {
		return
	}
	if err := sensor.Close(); err != nil {
		s.log.Warn().Err(err).Msg("sensor not closed")
	}
}

// reopen makes the next call of tend open another sensor: the engine changed.
func (s *sensing) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale, s.logged = true, ""
}

// current returns the sensor; nil without one.
func (s *sensing) current() inference.Sensor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sensor
}

// note says why looks do not begin by facts; "" if they do, or are not meant to.
func (s *sensing) note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.byFacts {
		return ""
	}
	return s.problem
}

// facts returns the sensor's measurement of the source; nil if looks begin by pixels.
func (s *sensing) facts() *inference.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.factsLocked()
}

func (s *sensing) factsLocked() *inference.Facts {
	if s.sensor == nil || !s.byFacts {
		return nil
	}
	facts, ok := s.sensor.Facts()
	if source := s.picture.Source(); !ok || facts.Epoch != source.Epoch || source.PTS-facts.PTS > factsAge {
		return nil
	}
	return &facts
}

// begin notes the facts at the begin of a cycle.
func (s *sensing) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.fresh = now, false
	if facts := s.factsLocked(); facts != nil {
		s.fresh = facts.News != s.seen
		s.seen = facts.News
	}
}

// news reports whether the last cycle began because of news.
func (s *sensing) news() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh
}

// due returns the time of the next look while there is no news since the last cycle; zero if there is, or looks begin by pixels.
func (s *sensing) due(maxWait time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if facts := s.factsLocked(); facts == nil || facts.News != s.seen {
		return time.Time{}
	}
	return s.began.Add(maxWait)
}

// Observe passes a sampled picture to the engine and to the sensor.
func (l *Loop) Observe(f inference.Frame) {
	if newest, ok := l.picture.Newest(); ok && newest.PTS == f.PTS {
		l.judge.observe(newest)
	}
	l.engine.Observe(f)
	if sensor := l.sensing.current(); sensor != nil {
		sensor.Observe(f)
	}
}

// Note describes the limits of the engine for the page, and why looks do not begin by facts.
func (l *Loop) Note() string { return strings.TrimSpace(l.engine.Note() + " " + l.sensing.note()) }
