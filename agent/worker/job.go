package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/livekit/protocol/livekit"
)

// ParseJobType reads the scope of a job: room, publisher or participant.
func ParseJobType(s string) (livekit.JobType, error) {
	t, ok := livekit.JobType_value["JT_"+strings.ToUpper(s)]
	if !ok || s != strings.ToLower(s) {
		return 0, fmt.Errorf("job type: expected room, publisher or participant, got %q", s)
	}
	return livekit.JobType(t), nil
}

// Runner serves one job from beginning to end. It is called once per job, in a separate goroutine.
//
// Run joins Job.Room as Job.Identity, calls Job.Joined, and returns when it has left. It leaves for one of three reasons:
//   - Job.Draining is closed: another worker takes over. Run finishes the present sentence first.
//   - ctx ends: at once, and within 3 s; after that the server removes the agent.
//   - the work itself is over (nil) or impossible (an error, which is reported to the server).
//
// Run may leave and join again. It calls Job.Leaving before it leaves for good: without it, the
// server counts the job as failed. A panic of Run ends its job only.
type Runner interface {
	Run(ctx context.Context, job Job) error
}

// Explainer is implemented by a Runner that can show in the room why a job cannot run. Explain returns after a few seconds, or when ctx or
// the worker's drain ends it.
type Explainer interface {
	Explain(ctx context.Context, job Job, reason error)
}

// Job is one room, or one participant of a room, to be served.
type Job struct {
	// ID is the job's id, DispatchID the id of its dispatch; "" for a simulated job.
	ID, DispatchID string
	// Room is the name of the room.
	Room string
	// Participant is the subject of a publisher's or participant's job; "" for a room's.
	Participant string
	// AgentName is the name this worker is dispatched by; "" with automatic dispatch.
	AgentName string
	// Identity and Name to join with. The identity is the same for all workers, so that the server admits only one.
	Identity, Name string
	// Metadata of the dispatch.
	Metadata Metadata
	// URL and Token admit to the room for an hour. A runner that stays longer signs its own tokens.
	URL, Token string
	// Draining is closed to end the job at the end of the sentence.
	Draining <-chan struct{}
	// Joined is to be called when the agent has joined the room.
	Joined func()
	// State is what the previous job of this room passed to HandOver, on any worker; "" for none. HandOver is to be called before Run
	// returns with the state for the next job.
	State    string
	HandOver func(state string)
	// Replaced reports whether another agent has taken the place of the agent with a SID, for a runner whose process stood still.
	Replaced func(ctx context.Context, sid string) (bool, error)
	// Leaving is to be called before the agent leaves the room, with the error that Run will return.
	Leaving func(err error)
}

// ErrUnwanted is returned by a Runner whose agent was removed from its room: the
// dispatch is deleted and no worker joins again.
var ErrUnwanted = errors.New("the agent is not wanted in this room")

// Causes of the end of a job's context.
var (
	// ErrTerminated ends a job at the request of the server.
	ErrTerminated = errors.New("the server ended the job")
	// ErrStopping ends a job because its worker stops now.
	ErrStopping = errors.New("the worker stops")
)

// maxIdentity bounds an identity, in bytes.
const maxIdentity = 96

// Identity returns the identity of the agent in a room, which depends only on the
// agent's name and, for a participant's job, on the participant.
func Identity(agentName, participant string) string {
	id := "agent-" + agentName
	if agentName == "" {
		id = "agent"
	}
	if participant != "" {
		id += ":" + participant
	}
	if len(id) > maxIdentity {
		sum := sha256.Sum256([]byte(id))
		id = strings.ToValidUTF8(id[:maxIdentity-17], "") + "-" + hex.EncodeToString(sum[:8])
	}
	return id
}
