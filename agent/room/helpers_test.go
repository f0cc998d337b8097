package room_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/command"
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

// steered is a commentator that notes its orders.
type steered struct {
	mu   sync.Mutex
	done []string
	said []agent.Record
}

func (s *steered) History() []agent.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]agent.Record(nil), s.said...)
}

func (s *steered) note(what, by string) {
	s.mu.Lock()
	s.done = append(s.done, what+" by "+by)
	s.mu.Unlock()
}

func (s *steered) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.done...)
}

func (s *steered) Snapshot() agent.Snapshot      { return agent.Snapshot{Engine: "test"} }
func (s *steered) Start(source, by string) error { s.note("start "+source, by); return nil }
func (s *steered) Stop(by string)                { s.note("stop", by) }
func (s *steered) Command(c command.Command, by string) (agent.Done, error) {
	if !slices.Contains(command.All(), c) {
		return agent.Done{}, &agent.RangeError{Name: "command", Want: "a command", Got: c}
	}
	s.note("command "+string(c), by)
	return agent.Done{Command: c, By: by}, nil
}

func (s *steered) Say(a agent.Announcement, by string) error {
	if a.Text == "busy" {
		return agent.ErrTooMuchToSay
	}
	s.note(fmt.Sprintf("say %q (%s, %v)", a.Text, a.Reason, a.Interrupt), by)
	return nil
}

func (s *steered) Check(agent.Change) error { return nil }
func (s *steered) Change(c agent.Change, by string) (agent.Settings, error) {
	switch {
	case c.Instruction != nil && *c.Instruction == "":
		s.note("clear", by)
	case c.Instruction != nil:
		s.note("instruction "+*c.Instruction, by)
	case c.Profile != nil:
		s.note("profile "+*c.Profile, by)
	case c.Source != nil:
		s.note("source "+*c.Source, by)
	default:
		s.note("settings", by)
	}
	return c.Settings, nil
}
