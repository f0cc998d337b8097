package room

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"touchline/agent"
)

const (
	// stateAttribute is what LiveKit front ends read.
	stateAttribute = "lk.agent.state"
	// detailAttribute carries the whole agent.Status as JSON.
	detailAttribute = "touchline.state"
	// initializingFor is how long "initializing" may be shown: front ends give an agent up that takes longer.
	initializingFor = 10 * time.Second
	// detailEvery spaces attribute changes that leave the state itself alone (loading percent).
	detailEvery = 250 * time.Millisecond
)

// stateBoard keeps what the participant's attributes shall say.
type stateBoard struct {
	mu        sync.Mutex
	status    agent.Status
	initSince time.Time // when the state became initializing

	shown   map[string]string // in the present room; nil before the first
	shownAt time.Time
}

func newStateBoard(now time.Time) *stateBoard {
	return &stateBoard{
		status:    agent.Status{State: agent.StateInitializing, Chip: "waiting"},
		initSince: now,
	}
}

func (b *stateBoard) set(s agent.Status, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.State == agent.StateInitializing && b.status.State != agent.StateInitializing {
		b.initSince = now
	}
	b.status = s
}

// attributes is what shall be shown now.
func (b *stateBoard) attributes(now time.Time) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attributesLocked(now)
}

func (b *stateBoard) attributesLocked(now time.Time) map[string]string {
	state := b.status.State
	switch state {
	case agent.StateIdle, agent.StateListening, agent.StateThinking, agent.StateSpeaking:
	default:
		state = agent.StateInitializing
		if now.Sub(b.initSince) > initializingFor {
			state = agent.StateIdle
		}
	}
	detail, err := json.Marshal(b.status)
	if err != nil { // strings and a number always marshal
		detail = []byte("{}")
	}
	return map[string]string{stateAttribute: state, detailAttribute: string(detail)}
}

// due returns what must be sent now, nil when nothing.
func (b *stateBoard) due(now time.Time) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	want := b.attributesLocked(now)
	if maps.Equal(want, b.shown) {
		return nil
	}
	if b.shown != nil && want[stateAttribute] == b.shown[stateAttribute] && now.Sub(b.shownAt) < detailEvery {
		return nil
	}
	b.shown, b.shownAt = want, now
	return want
}

// forget has everything sent again.
func (b *stateBoard) forget() {
	b.mu.Lock()
	b.shown = nil
	b.mu.Unlock()
}
