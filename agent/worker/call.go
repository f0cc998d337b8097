package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Errors of Dispatch and Withdraw.
var (
	// ErrDispatched is returned for a room that has its agent or waits for one.
	ErrDispatched = errors.New("the room already has the agent")
	// ErrNotDispatched is returned for a room without a dispatch for this agent.
	ErrNotDispatched = errors.New("the room does not have the agent")
	// ErrMetadata is wrapped by errors in the metadata of a call.
	ErrMetadata = errors.New("the metadata cannot be used")
)

// Dispatch requests this agent for a room, which is created if needed. Any worker with this agent name and a free slot
// may get the job. It returns the dispatch's id.
func (w *Worker) Dispatch(ctx context.Context, room string, m Metadata) (id string, err error) {
	text, err := m.text()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	open, err := w.api.list(ctx, room)
	if err != nil {
		return "", err
	}
	if len(open) > 0 { // a closed room has no dispatches
		roots, copies, err := w.api.dispatched(ctx, room)
		if err != nil {
			return "", err
		}
		if len(roots)+len(copies) > 0 {
			return "", fmt.Errorf("%w: %q", ErrDispatched, room)
		}
	}
	return w.api.dispatch(ctx, room, text, nil)
}

// Withdraw deletes the dispatches for this agent in a room, so that the agent
// leaves, whichever worker runs it.
func (w *Worker) Withdraw(ctx context.Context, room string) error {
	open, err := w.api.list(ctx, room)
	if err != nil {
		return err
	}
	found := false
	if len(open) > 0 {
		roots, copies, err := w.api.dispatched(ctx, room)
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
