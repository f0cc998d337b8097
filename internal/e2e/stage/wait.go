package stage

import (
	"context"
	"fmt"
	"time"
)

// Wait waits for a while or for ctx.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Until waits until cond holds, looking every 10 ms, and says how long that
// took; an error after most.
func Until(ctx context.Context, most time.Duration, what string, cond func() bool) (time.Duration, error) {
	start := time.Now()
	for !cond() {
		if time.Since(start) > most {
			return most, fmt.Errorf("waited %v for %s in vain", most, what)
		}
		if err := Wait(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
