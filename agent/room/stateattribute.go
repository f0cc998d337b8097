package room

import (
	"cmp"
	"encoding/json"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/room/control"
)

const (
	// attrAgentState is the attribute that LiveKit front ends read.
	attrAgentState = "lk.agent.state"
	// AttributeHearing of the bot is the mode of hearing (settings.Hearing); absent while hearing is off.
	AttributeHearing = "touchline.hearing"
	// initializingFor bounds the state "initializing": front ends give up on an agent that takes longer.
	initializingFor = 10 * time.Second
	// detailEvery is the shortest interval between updates of the metadata: each goes to every participant.
	detailEvery = time.Second
	// thinkingAfter is how long a look takes before it shows: quick looks at a still scene would make front ends flicker.
	thinkingAfter = 400 * time.Millisecond
	// settled is how long after its join a front end is expected to watch attributes.
	settled = time.Second
)

// stateAttribute is the published state: LiveKit's word for it and the hearing mode as attributes, and the whole agent.Status as
// JSON in the metadata.
//
// LiveKit's React hooks require three things. They take the changed attributes for all attributes, so no other attribute changes
// without the word. They see changes only, so after a join the word changes to another word and back. They give up on an agent that is
// not listening, thinking or speaking within 20 s, so a waiting agent is "listening", not "idle".
type stateAttribute struct {
	mu         sync.Mutex
	status     agent.Status
	calm       agent.Status // the last one that was not thinking
	thinkSince time.Time    // when the state became thinking
	initSince  time.Time    // when the state became initializing

	word     string // in the present room; "" before the first
	wordAt   time.Time
	hearing  string // in the present room
	revoked  string // as links.Shared
	shared   string // revoked, in the present room
	detail   string
	detailAt time.Time
	cameAt   time.Time // newest join of a participant that lacks the word; zero for none
}

// update is an unsent change; a part without changes is empty.
type update struct {
	attributes map[string]string
	detail     string
}

func newStateAttribute(now time.Time) *stateAttribute {
	return &stateAttribute{
		status:    agent.Status{State: agent.StateInitializing, Activity: "waiting"},
		initSince: now,
	}
}

func (b *stateAttribute) set(s agent.Status, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.State == agent.StateInitializing && b.status.State != agent.StateInitializing {
		b.initSince = now
	}
	if s.State != agent.StateThinking {
		b.calm = s
	} else if b.status.State != agent.StateThinking {
		b.thinkSince = now
	}
	b.status = s
}

// shownLocked returns the status to show: thinking only after a while.
func (b *stateAttribute) shownLocked(now time.Time) agent.Status {
	if b.status.State != agent.StateThinking || now.Sub(b.thinkSince) >= thinkingAfter {
		return b.status
	}
	st := b.calm
	st.Hearing = b.status.Hearing
	if st.State != agent.StateListening {
		st.State, st.Activity, st.Detail = agent.StateListening, agent.ActivityWatching, ""
	}
	return st
}

// attributes returns the attributes to join with.
func (b *stateAttribute) attributes(now time.Time) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]string{attrAgentState: b.wordLocked(now)}
	if b.status.Hearing != "" {
		out[AttributeHearing] = b.status.Hearing
	}
	if b.revoked != "" {
		out[control.AttributeRevoked] = b.revoked
	}
	return out
}

func (b *stateAttribute) wordLocked(now time.Time) string {
	switch state := b.shownLocked(now).State; state {
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

// due returns the change to send now. refused is why the room does not take the picture; it shows where there is no other reason.
func (b *stateAttribute) due(now time.Time, refused string) update {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n update
	word, hearing := b.newWordLocked(now), b.status.Hearing
	if word == b.word && hearing != b.hearing {
		word = otherWord(word) // for a moment
	}
	if word == b.word && b.revoked != b.shared {
		if word = otherWord(word); word == b.word { // it does not wait for the end of the speech
			word = agent.StateListening
		}
	}
	if word != b.word {
		n.attributes = map[string]string{attrAgentState: word}
		if hearing != b.hearing || b.word == "" {
			n.attributes[AttributeHearing] = hearing // "" removes it
		}
		if b.revoked != b.shared || b.word == "" && b.revoked != "" {
			n.attributes[control.AttributeRevoked] = b.revoked
		}
		b.word, b.wordAt, b.hearing, b.shared = word, now, hearing, b.revoked
	}
	shown := b.shownLocked(now)
	shown.Detail = cmp.Or(shown.Detail, refused)
	detail, err := json.Marshal(shown)
	if err != nil { // strings and a number always marshal
		detail = []byte("{}")
	}
	if string(detail) != b.detail && now.Sub(b.detailAt) >= detailEvery {
		n.detail, b.detail, b.detailAt = string(detail), string(detail), now
	}
	return n
}

// newWordLocked returns the word to publish, or another word for a moment, so that new participants see the true word as a change.
func (b *stateAttribute) newWordLocked(now time.Time) string {
	word := b.wordLocked(now)
	if b.cameAt.IsZero() || now.Sub(b.cameAt) < settled {
		return word
	}
	came := b.cameAt
	b.cameAt = time.Time{}
	if word != b.word || b.wordAt.Sub(came) >= settled/2 {
		return word // new participants see this change or saw a recent one
	}
	return otherWord(word)
}

// otherWord returns a word that may replace a word for a moment; the word itself if it changes within seconds anyway.
func otherWord(word string) string {
	switch word {
	case agent.StateListening:
		return agent.StateThinking
	case agent.StateThinking:
		return agent.StateListening
	default:
		return word
	}
}

// revoke sets the revoked links to publish, as access.Links.Shared returns them.
func (b *stateAttribute) revoke(shared string) {
	b.mu.Lock()
	b.revoked = shared
	b.mu.Unlock()
}

// newcomer records the join of a participant, which may lack the state.
func (b *stateAttribute) newcomer(now time.Time) {
	b.mu.Lock()
	b.cameAt = now
	b.mu.Unlock()
}

// forget makes everything due again.
func (b *stateAttribute) forget() {
	b.mu.Lock()
	b.word, b.detail, b.detailAt = "", "", time.Time{}
	b.mu.Unlock()
}
