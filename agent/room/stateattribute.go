package room

import (
	"encoding/json"
	"sync"
	"time"

	"touchline/agent"
)

const (
	// attrAgentState is what LiveKit front ends read.
	attrAgentState = "lk.agent.state"
	// initializingFor is how long "initializing" may be shown: front ends give an agent up that takes longer.
	initializingFor = 10 * time.Second
	// detailEvery spaces changes of mere detail (loading percent).
	detailEvery = 250 * time.Millisecond
	// settled is how long after somebody came their front end is taken to look at attributes.
	settled = time.Second
)

// stateAttribute keeps what the participant shall say of its state: a word of
// LiveKit's as an attribute, and the whole agent.Status as JSON in the metadata.
//
// Three habits of LiveKit's React hooks shape it. They take the attributes that
// changed for all there are, so the word is the only attribute that ever
// changes. They hear changes alone, so those who come while the word stays have
// it said to them: another one and back. And they give an agent up that is
// not listening, thinking or speaking after 20 s, so one that waits is
// listening (to orders it does), not idle.
type stateAttribute struct {
	mu        sync.Mutex
	status    agent.Status
	initSince time.Time // when the state became initializing

	word     string // as the present room has it; "" before the first
	wordAt   time.Time
	detail   string
	detailAt time.Time
	cameAt   time.Time // when the last of those came who may not know the word; zero when all do
}

// update is what must be sent; "" where nothing has changed.
type update struct {
	word, detail string
}

func newStateAttribute(now time.Time) *stateAttribute {
	return &stateAttribute{
		status:    agent.Status{State: agent.StateInitializing, Chip: "waiting"},
		initSince: now,
	}
}

func (b *stateAttribute) set(s agent.Status, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.State == agent.StateInitializing && b.status.State != agent.StateInitializing {
		b.initSince = now
	}
	b.status = s
}

// attributes is what to join with.
func (b *stateAttribute) attributes(now time.Time) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return map[string]string{attrAgentState: b.wordLocked(now)}
}

func (b *stateAttribute) wordLocked(now time.Time) string {
	switch state := b.status.State; state {
	case agent.StateListening, agent.StateThinking, agent.StateSpeaking:
		return state
	case agent.StateIdle:
		return agent.StateListening
	default:
		if now.Sub(b.initSince) > initializingFor {
			return agent.StateListening
		}
		return agent.StateInitializing
	}
}

// due returns what must be sent now.
func (b *stateAttribute) due(now time.Time) update {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n update
	if word := b.newWordLocked(now); word != b.word {
		n.word, b.word, b.wordAt = word, word, now
	}
	detail, err := json.Marshal(b.status)
	if err != nil { // strings and a number always marshal
		detail = []byte("{}")
	}
	if string(detail) != b.detail && (n.word != "" || now.Sub(b.detailAt) >= detailEvery) {
		n.detail, b.detail, b.detailAt = string(detail), string(detail), now
	}
	return n
}

// newWordLocked is the word to show, or for one moment another, so that those
// who came hear the true one as a change.
func (b *stateAttribute) newWordLocked(now time.Time) string {
	word := b.wordLocked(now)
	if b.cameAt.IsZero() || now.Sub(b.cameAt) < settled {
		return word
	}
	came := b.cameAt
	b.cameAt = time.Time{}
	switch {
	case word != b.word || b.wordAt.Sub(came) >= settled/2:
		return word // they hear it, or have heard it
	case word == agent.StateListening:
		return agent.StateThinking
	case word == agent.StateThinking:
		return agent.StateListening
	default:
		return word // it changes by itself within seconds
	}
}

// newcomer notes that somebody came who may not know the state.
func (b *stateAttribute) newcomer(now time.Time) {
	b.mu.Lock()
	b.cameAt = now
	b.mu.Unlock()
}

// forget has everything sent again.
func (b *stateAttribute) forget() {
	b.mu.Lock()
	b.word, b.detail = "", ""
	b.mu.Unlock()
}
