package sight

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/sight/facts"
	"touchline/internal/rescue"
	"touchline/internal/wake"
)

// Eyes are a conversation with this engine.
type Eyes interface {
	inference.Session
	inference.Seer
	inference.Judge
}

// Sensor implements inference.Sensor: it has the eyes of this engine, and what the engine would say is news.
type Sensor struct {
	Eyes

	looked func(news bool)
	wake   wake.Signal // set after each look
	stop   context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	newest  inference.Frame // that was observed
	news    uint64
	facts   *inference.Facts // of the last look; nil before the first, and after one that failed
	problem error            // of the last look
	regions []inference.Region
}

// stalled is the time without a look after which the engine is asked why.
const stalled = 5 * time.Second

var _ inference.Sensor = (*Sensor)(nil)

// NewSensor returns a Sensor, which closes the eyes in the end. It calls looked, which does not block, after each look; news is set after
// the first and when there is any.
func NewSensor(eyes Eyes, looked func(news bool)) *Sensor {
	ctx, stop := context.WithCancel(context.Background())
	s := &Sensor{Eyes: eyes, looked: looked, wake: wake.New(), stop: stop, done: make(chan struct{})}
	eyes.Watch(func(inference.Sight) { s.wake.Set() })
	go s.run(ctx)
	return s
}

// Observe implements inference.Sensor.
func (s *Sensor) Observe(f inference.Frame) {
	s.mu.Lock()
	s.newest = f
	s.mu.Unlock()
	s.Eyes.Observe(f)
}

// Judge implements inference.Judge. It keeps the zones and lines, which the next look's prompt has too: without them they would begin anew.
func (s *Sensor) Judge(rules []string, regions []inference.Region) (inference.Judgement, bool) {
	s.mu.Lock()
	s.regions = regions
	s.mu.Unlock()
	return s.Eyes.Judge(rules, regions)
}

// Facts implements inference.Sensor.
func (s *Sensor) Facts() (inference.Facts, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts == nil {
		return inference.Facts{}, false
	}
	return *s.facts, true
}

// Problem returns why the last look has no facts; nil if it has.
func (s *Sensor) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Forget implements inference.Sensor.
func (s *Sensor) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Eyes.Forget()
	s.facts, s.newest = nil, inference.Frame{}
}

// Close implements inference.Sensor.
func (s *Sensor) Close() error {
	s.stop()
	<-s.done
	return s.Eyes.Close()
}

func (s *Sensor) run(ctx context.Context) {
	defer close(s.done)
	for {
		looked := true
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-time.After(stalled):
			looked = false
		}
		var said string
		err := rescue.Call(func() (err error) { said, err = s.ask(ctx); return err })
		if ctx.Err() != nil {
			return
		}
		if looked {
			err = errors.Join(err, rescue.Call(func() error { s.looked(s.note(said, err)); return nil }))
		}
		s.mu.Lock()
		s.problem = err
		s.mu.Unlock()
	}
}

// ask returns what the engine says now.
func (s *Sensor) ask(ctx context.Context) (string, error) {
	s.mu.Lock()
	p := inference.Prompt{Frames: []inference.Frame{s.newest}, Regions: s.regions}
	s.mu.Unlock()
	if p.Frames[0].Pix == nil {
		return inference.Silence, nil // no picture yet, or none since Forget
	}
	var said strings.Builder
	for c, err := range s.Generate(ctx, p) {
		if err != nil {
			return "", err
		}
		said.WriteString(c.Text)
	}
	return said.String(), nil
}

// note keeps what the last look found, and reports whether there is news.
func (s *Sensor) note(said string, err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.Sight() // with the lock: Forget may come
	if err != nil || !ok {
		s.facts = nil
		return false
	}
	if said != inference.Silence {
		s.news++
	}
	news = s.facts == nil || s.news != s.facts.News
	s.facts = &inference.Facts{PTS: seen.PTS, Epoch: seen.Epoch, News: s.news, Things: facts.Numbers(seen.Things), Texts: seen.Texts}
	return news
}
