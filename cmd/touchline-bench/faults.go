package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/configs"
	"touchline/internal/e2e/stage"
)

// fault is one kind of fault around the bot of a stage.
type fault struct {
	name string
	// inject causes the fault and returns once the cause is gone.
	inject func(ctx context.Context) error
}

// measureFaults injects one fault after another and measures the recovery: from the end of the cause to the next
// comment that is heard with its picture. outage is the downtime of server and camera.
func measureFaults(ctx context.Context, outage time.Duration, log zerolog.Logger) ([]row, error) {
	server := newModelServer(1, longText, 500*time.Millisecond, 500*time.Millisecond)
	defer server.close()
	cfg := configs.Default()
	cfg.Inference.Engine = "remote"
	cfg.Inference.Remote.URL = server.URL + "/v1"
	cfg.Inference.Remote.FirstTokenTimeout = 2 * time.Second
	s, err := stage.New(ctx, stage.Options{Config: &cfg, Seed: 4, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer server.CloseClientConnections()
	if err := commented(ctx, s, time.Time{}, 60*time.Second); err != nil {
		return nil, fmt.Errorf("before the first fault: %w", err)
	}
	const mood = 8 * time.Second
	var rows []row
	for _, f := range []struct {
		within time.Duration
		fault
	}{
		{20 * time.Second, serverAway(s, "server stopped", outage)},
		{15 * time.Second, cameraAway(s, "camera gone", outage, 5)},
		{15 * time.Second, codecKilled()},
		{20 * time.Second, server.moodFor("model server answers 500", moodRefuse, mood)},
		{20 * time.Second, server.moodFor("model server hangs", moodHang, mood)},
		{20 * time.Second, server.moodFor("model server closes in the middle of an answer", moodBreak, mood)},
	} {
		from := time.Now()
		if err := f.inject(ctx); err != nil {
			return rows, fmt.Errorf("%s: %w", f.name, err)
		}
		healed := time.Now()
		if err := commented(ctx, s, healed, 90*time.Second); err != nil {
			return rows, fmt.Errorf("after %s: %w", f.name, err)
		}
		rows = append(rows, atMost(fmt.Sprintf("%s, %.0f s: next comment heard after", f.name, healed.Sub(from).Seconds()),
			time.Since(healed).Seconds(), f.within.Seconds(), "s"))
	}
	gap, err := stalledViewer(ctx, s, 15*time.Second)
	if err != nil {
		return rows, err
	}
	return append(rows, stallRow(gap)), s.Errors()
}

// serverAway is an outage of the server.
func serverAway(s *stage.Stage, name string, length time.Duration) fault {
	return fault{name, func(ctx context.Context) error {
		s.StopServer()
		if err := stage.Wait(ctx, length); err != nil {
			return err
		}
		return s.RestartServer(ctx)
	}}
}

// cameraAway is an outage of the camera; it returns with another match.
func cameraAway(s *stage.Stage, name string, length time.Duration, seed uint64) fault {
	return fault{name, func(ctx context.Context) error {
		s.StopCamera()
		if err := stage.Wait(ctx, length); err != nil {
			return err
		}
		_, err := s.AddCamera("camera", seed)
		return err
	}}
}

func codecKilled() fault {
	return fault{"codec process killed", func(context.Context) error { return killDecoder() }}
}

// moodFor is a failure mode of a model server for a while.
func (m *modelServer) moodFor(name string, now mood, length time.Duration) fault {
	return fault{name, func(ctx context.Context) error {
		m.set(now)
		defer m.set(moodWell)
		return stage.Wait(ctx, length)
	}}
}

// commented waits for a spoken, aligned comment whose inference began after a moment.
func commented(ctx context.Context, s *stage.Stage, after time.Time, most time.Duration) error {
	_, err := stage.Until(ctx, most, "a comment with its picture", func() bool {
		for _, r := range s.Reader.Records() {
			if r.Outcome == agent.OutcomeSpoken && r.Aligned && r.InferenceStart.After(after) {
				return true
			}
		}
		return false
	})
	return errors.Join(err, s.Errors())
}

// killDecoder kills the bot's codec process: of this process's children the first one started.
func killDecoder() error {
	pids, err := children(os.Getpid())
	if err != nil {
		return err
	}
	oldest, since := 0, int64(0)
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || !strings.Contains(string(stat), "(touchline-code") { // names are cut at 15 characters
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		const startTime = 19 // field after the name (proc(5))
		at, err := strconv.ParseInt(fields[startTime], 10, 64)
		if err == nil && (oldest == 0 || at < since || at == since && pid < oldest) {
			oldest, since = pid, at
		}
	}
	if oldest == 0 {
		return errors.New("no codec process among the children of this process")
	}
	return syscall.Kill(oldest, syscall.SIGKILL)
}

// stalledViewer lets one of two viewers stop reading, and returns the longest gap between pictures at the other.
func stalledViewer(ctx context.Context, s *stage.Stage, length time.Duration) (gap time.Duration, err error) {
	v, leave, err := s.AddViewer(true)
	if err != nil {
		return 0, err
	}
	defer leave()
	other, leaveOther, err := s.AddViewer(true)
	if err != nil {
		return 0, err
	}
	defer leaveOther()
	if err := errors.Join(seesPicture(ctx, v), seesPicture(ctx, other)); err != nil {
		return 0, err
	}
	other.Stall()
	from := time.Now()
	if err := stage.Wait(ctx, length); err != nil {
		return 0, err
	}
	var last time.Time
	for _, p := range v.Seen().Pictures {
		if p.At.Before(from) {
			continue
		}
		if !last.IsZero() {
			gap = max(gap, p.At.Sub(last))
		}
		last = p.At
	}
	if last.IsZero() {
		return 0, errors.New("no picture at the other viewer")
	}
	return gap, nil
}

func stallRow(gap time.Duration) row {
	return atMost("one viewer stalls: longest gap between pictures at the other", ms(gap), 300, "ms")
}
