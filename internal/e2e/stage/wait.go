package stage

import (
	"context"
	"fmt"
	"time"
)

// Wait waits for a duration, or returns the error of ctx.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Until polls cond every 10 ms until it holds, and returns the elapsed time, or an error after most.
func Until(ctx context.Context, most time.Duration, what string, cond func() bool) (time.Duration, error) {
	start := time.Now()
	for !cond() {
		if time.Since(start) > most {
			return most, fmt.Errorf("%s: timed out after %v", what, most)
		}
		if err := Wait(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
