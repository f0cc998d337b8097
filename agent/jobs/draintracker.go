package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/look"
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

// drainTracker is a bot's admission to shared engines. It counts the cycles with unfinished comments, and can close, so that no more
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

// Admit implements engine.Admission: it counts what ends with a record, and the share of the engine that an answer takes until its text
// is complete.
func (g *drainTracker) Admit(recorded bool, share float64) (written func(), err error) {
	g.mu.Lock()
	if recorded {
		g.begun++
	}
	g.at = time.Now()
	g.mu.Unlock()
	if err := g.Closed(); err != nil {
		return nil, err
	}
	g.busy.change(time.Now(), share)
	return sync.OnceFunc(func() { g.busy.change(time.Now(), -share) }), nil
}

// Closed implements engine.Admission.
func (g *drainTracker) Closed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last {
		return errTakenOver
	}
	return nil
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
func (g *drainTracker) Record(r look.Record) {
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

// finish closes the drainTracker. It returns when all running cycles are done, or ctx or the bot ends.
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

// endWord returns at the next word of the current sentence's captions, or when the bot ends.
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
