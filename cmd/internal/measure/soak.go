package measure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
)

// Soak keeps a bot commenting for long, with viewers that come and go, and says
// whether anything grew.
func Soak(ctx context.Context, length time.Duration, log zerolog.Logger) ([]Row, error) {
	engine := NewEngine(11, 400*time.Millisecond, 3*time.Second)
	s, err := NewStage(ctx, StageOptions{Model: engine, Seed: 9, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	const settle = time.Minute
	if err := Wait(ctx, min(settle, length/4)); err != nil {
		return nil, err
	}
	runtime.GC()
	before, err := UsageOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	routines := runtime.NumGoroutine()
	start := time.Now()
	for i := 0; time.Since(start) < length; i++ {
		_, leave, err := s.AddViewer(true)
		if err != nil {
			return nil, err
		}
		if err := Wait(ctx, min(20*time.Second, length/4)); err != nil {
			return nil, err
		}
		leave()
		if err := Wait(ctx, 3*time.Second); err != nil {
			return nil, err
		}
	}
	runtime.GC()
	after, err := UsageOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	var errs []time.Duration
	lost := 0
	for _, r := range s.Reader.Records() {
		switch {
		case r.Outcome == agent.OutcomeSpoken && r.Aligned && r.Cycle > unsettled:
			errs = append(errs, seconds(r.AlignmentError).Abs())
		case r.Outcome == agent.OutcomeDropped || r.Outcome == agent.OutcomeFailed:
			lost++
		}
	}
	hours := time.Since(start).Hours()
	return []Row{
		Note("comments", strconv.Itoa(len(errs))),
		Check("alignment error p95 (the bot's figure)", ms(Quantile(errs, 0.95)), 100, "ms"),
		Note("comments dropped or failed", strconv.Itoa(lost)),
		Note("memory at the start and at the end", fmt.Sprintf("%d MB, %d MB", before.RSS>>20, after.RSS>>20)),
		Note("memory slope", fmt.Sprintf("%.1f MB/h", float64(after.RSS-before.RSS)/1e6/hours)),
		Check("goroutines more than at the start", float64(runtime.NumGoroutine()-routines), 20, ""),
	}, s.Errors()
}
