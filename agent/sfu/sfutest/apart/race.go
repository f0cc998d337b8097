//go:build race

package apart

import (
	"context"
	"os"

	"touchline/agent/sfu"
)

// Of returns how a server runs and when it is ready: in a process of its own, because of the race detector.
func Of(s *sfu.Server) (run, ready func(context.Context) error) {
	up := make(chan struct{})
	run = func(ctx context.Context) error { return Run(ctx, s, func(*os.Process) { close(up) }) }
	ready = func(ctx context.Context) error {
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return run, ready
}
