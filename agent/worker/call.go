package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/livekit/protocol/livekit"
)

// Errors of Dispatch and Withdraw.
var (
	// ErrDispatched tells that the room has its agent already, or waits for one.
	ErrDispatched = errors.New("the room is served already")
	// ErrNotDispatched tells that the room has no agent of this name and waits for none.
	ErrNotDispatched = errors.New("the room is not served")
	// ErrMetadata is wrapped by what is wrong with the metadata of a call.
	ErrMetadata = errors.New("the metadata cannot be used")
)

// Dispatch asks the server for this agent in a room, which is opened when it is
// not open. Whichever worker of this agent name has a place gets the job. It
// returns the dispatch's id.
func (w *Worker) Dispatch(ctx context.Context, room string, m Metadata) (id string, err error) {
	text, err := m.text()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	open, err := w.api.list(ctx, room)
	if err != nil {
		return "", err
	}
	if len(open) > 0 { // the server has nothing to say about dispatches of a room that is not open
		roots, copies, err := w.wanted(ctx, room)
		if err != nil {
			return "", err
		}
		if len(roots)+len(copies) > 0 {
			return "", fmt.Errorf("%w: %q", ErrDispatched, room)
		}
	}
	return w.api.dispatch(ctx, &livekit.CreateAgentDispatchRequest{
		AgentName: w.opts.AgentName, Room: room, Metadata: text, Deployment: w.opts.Deployment,
	})
}

// Withdraw deletes what asks for this agent in a room, so that it leaves,
// whichever worker it belongs to.
func (w *Worker) Withdraw(ctx context.Context, room string) error {
	open, err := w.api.list(ctx, room)
	if err != nil {
		return err
	}
	found := false
	if len(open) > 0 {
		roots, copies, err := w.wanted(ctx, room)
		if err != nil {
			return err
		}
		for _, d := range slices.Concat(roots, copies) {
			if err := w.api.undispatch(ctx, room, d.GetId()); err != nil {
				return err
			}
			found = true
		}
	}
	// A simulated job has no dispatch.
	for _, r := range w.ownRooms()[room] {
		if r.job.DispatchID == "" {
			r.cancel(ErrTerminated)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%w: %q", ErrNotDispatched, room)
	}
	return nil
}
