// Package clocktest simulates steps of the wall clock in tests, as by NTP, a dead clock battery or a resumed machine.
package clocktest

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// Steps are the steps that every use of the wall clock is tested with.
var Steps = []time.Duration{0, -time.Hour, time.Hour, 31 * 24 * time.Hour} //nolint:gochecknoglobals // a constant table

// Step returns a time of time.Now as it would be if the wall clock had been set by whole seconds. Its monotonic reading stays.
func Step(at time.Time, by time.Duration) time.Time {
	out := at
	wall := (*uint64)(unsafe.Pointer(&out)) // the first word of a time: a flag, 33 bits of seconds, 30 bits of nanoseconds
	*wall += uint64(by/time.Second) << 30   // wraps for a step back, as intended
	if out.Sub(at) != 0 || out.Round(0).Sub(at.Round(0)) != by {
		panic("clocktest: expected a time with a monotonic reading")
	}
	return out
}

// Late measures how late a busy machine wakes this process during a test: the sum of all delays so far.
func Late(tb testing.TB) (sum func() time.Duration) {
	tb.Helper()
	const every = 20 * time.Millisecond
	var late atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for last := time.Now(); tb.Context().Err() == nil; {
			<-time.After(every)
			now := time.Now()
			late.Add(int64(now.Sub(last) - every))
			last = now
		}
	}()
	tb.Cleanup(func() { <-done })
	return func() time.Duration { return time.Duration(late.Load()) }
}
