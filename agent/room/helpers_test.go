package room_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

const (
	patience = 2 * time.Minute // for anything that should take less than a second
	frameGap = 40 * time.Millisecond
)

func testLog(t *testing.T) zerolog.Logger {
	t.Helper()
	return zerolog.Nop()
}

// run runs f until the test ends, and reports an error it returned. The result ends it early.
func run(t *testing.T, f func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			t.Error("run did not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// vp8 makes a VP8 access unit with a true frame header (RFC 6386, section 9.1), its number and n bytes of noise.
func vp8(key bool, width, height, n int, number uint32) []byte {
	head := 10
	if !key {
		head = 3
	}
	data := make([]byte, head+n)
	tag := uint32(1<<4) | uint32(min(n, 1000))<<5
	if !key {
		tag |= 1
	}
	data[0], data[1], data[2] = byte(tag), byte(tag>>8), byte(tag>>16)
	if key {
		data[3], data[4], data[5] = 0x9d, 0x01, 0x2a
		binary.LittleEndian.PutUint16(data[6:], uint16(width))
		binary.LittleEndian.PutUint16(data[8:], uint16(height))
	}
	for i := head; i < len(data); i++ {
		data[i] = byte(i)
	}
	binary.BigEndian.PutUint32(data[head:], number)
	return data
}

// eventually waits for a condition.
func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, patience, 5*time.Millisecond, what)
}

// pace calls f each interval, with a running number.
func pace(interval time.Duration, f func(n uint32) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for n := uint32(0); ; n++ {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if err := f(n); err != nil {
					return err
				}
			}
		}
	}
}
