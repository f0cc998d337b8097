package jobs

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/inference"
	"touchline/internal/wake"
)

// errTakenOver ends a cycle that would begin while the room is handed over.
var errTakenOver = errors.New("room is being handed over to another worker")

const (
	// quietFor is the silence after which a bot counts as finished, even with cycles left.
	quietFor = 20 * time.Second
	// wordWait bounds the wait for the end of the present word when a job must end at once. The server waits 3 s for the agent
	// to leave.
	wordWait = time.Second
	// recordWait bounds the wait for the records of cut comments.
	recordWait = 300 * time.Millisecond
)

// drainTracker is a bot's access to shared engines. It counts the cycles with unfinished comments, and can close, so that no more
// cycles begin.
type drainTracker struct {
	busy  *engineUse
	word  wake.Signal // a step of the captions
	moved wake.Signal // begun, done, speaking or at changed

	mu       sync.Mutex
	last     bool // begin no more cycles
	begun    int
	done     int
	speaking bool
	at       time.Time // of the last event
}

func newDrainTracker(busy *engineUse) *drainTracker {
	return &drainTracker{busy: busy, word: wake.New(), moved: wake.New(), at: time.Now()}
}

// through returns the bot's access to one engine.
func (g *drainTracker) through(e *bot.Engine) inference.Model {
	return &gated{Model: e.Model, g: g, share: 1 / float64(max(e.Parallel, 1))}
}

// gated is an engine behind a drainTracker.
type gated struct {
	inference.Model

	g     *drainTracker
	share float64 // of the engine that a cycle uses
}

// Status reports a closed drainTracker as a model that loads, so that no cycle begins.
func (m *gated) Status() inference.Status {
	st := m.Model.Status()
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if m.g.last {
		st.Phase, st.Detail = inference.PhaseLoading, errTakenOver.Error()
	}
	return st
}

// Close leaves the shared engine alone.
func (*gated) Close() error { return nil }

// NewSession implements inference.Model.
func (m *gated) NewSession() (inference.Session, error) {
	inner, err := m.Model.NewSession()
	if err != nil {
		return nil, err
	}
	return &gatedSession{Session: inner, g: m.g, share: m.share}, nil
}

type gatedSession struct {
	inference.Session

	g     *drainTracker
	share float64
}

// Generate passes a cycle on, unless the drainTracker is closed.
func (s *gatedSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		s.g.mu.Lock()
		last := s.g.last
		if !p.Structured() { // a look with alert rules has no record
			s.g.begun++
		}
		s.g.at = time.Now()
		s.g.mu.Unlock()
		if last {
			yield(inference.Chunk{}, errTakenOver)
			return
		}
		s.g.busy.change(time.Now(), s.share)
		written := sync.OnceFunc(func() { s.g.busy.change(time.Now(), -s.share) })
		defer written()
		for c, err := range s.Session.Generate(ctx, p) {
			if c.TextEnds {
				written()
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// Speak implements inference.Speaker: like a cycle, it ends with a record.
func (s *gatedSession) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		speaker, ok := s.Session.(inference.Speaker)
		s.g.mu.Lock()
		last := s.g.last
		s.g.begun++
		s.g.at = time.Now()
		s.g.mu.Unlock()
		switch {
		case last:
			yield(inference.Chunk{}, errTakenOver)
			return
		case !ok:
			yield(inference.Chunk{}, inference.ErrNoVoice)
			return
		}
		for c, err := range speaker.Speak(ctx, text, voice, language) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// Caption implements agent.TextOutput.
func (g *drainTracker) Caption(agent.Caption) {
	g.mu.Lock()
	g.at = time.Now()
	g.mu.Unlock()
	g.word.Set()
}

// Record implements agent.TextOutput. A cycle that reached the engine gets its record after its comment was spoken, or when it will
// not be spoken.
func (g *drainTracker) Record(r agent.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.moved.Set()
	g.at = time.Now()
	if r.Announced != "" || len(r.FrameIDs) > 0 && !r.Skipped {
		g.done++
	}
}

// State implements agent.TextOutput.
func (g *drainTracker) State(s agent.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.moved.Set()
	g.speaking = s.State == agent.StateSpeaking
}

// finish closes the drainTracker. It returns when all begun cycles are done, ctx ends or the bot has ended.
func (g *drainTracker) finish(ctx context.Context, ended <-chan struct{}) {
	g.mu.Lock()
	g.last = true
	g.mu.Unlock()
	for {
		left := g.left(time.Now())
		if left <= 0 {
			return
		}
		select {
		case <-g.moved:
		case <-time.After(left):
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// left returns the time until the bot counts as finished if no further event comes; 0 when all begun cycles are done.
func (g *drainTracker) left(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.speaking:
		return time.Hour // State reports its end
	case g.done >= g.begun:
		return 0
	}
	return quietFor - now.Sub(g.at)
}

// endWord returns at the next step of the captions of the present sentence, at which a word begins, or when the bot has ended.
func (g *drainTracker) endWord(ended <-chan struct{}) {
	g.mu.Lock()
	speaking := g.speaking
	g.mu.Unlock()
	if !speaking {
		return
	}
	select {
	case <-g.word: // discard an earlier step
	default:
	}
	select {
	case <-g.word:
	case <-time.After(wordWait):
	case <-ended:
	}
}
