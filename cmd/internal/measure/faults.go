package measure

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
	"touchline/agent/sfu"
	"touchline/configs"
)

// fault is one thing that goes wrong on a stage where a bot comments.
type fault struct {
	name string
	// within is how long recovery may take, from the moment the cause is gone to the next
	// comment that is heard with its picture.
	within time.Duration
	// hurt breaks something and returns when the cause is gone.
	hurt func(ctx context.Context, s *Stage) error
}

// Faults breaks things one after another and measures how soon comments are
// heard again. outage is how long server and camera stay away.
func Faults(ctx context.Context, outage time.Duration, log zerolog.Logger) ([]Row, error) {
	var rows []Row
	faults := []fault{
		{fmt.Sprintf("server stopped for %v", outage), 20 * time.Second, func(ctx context.Context, s *Stage) error {
			s.StopServer()
			if err := Wait(ctx, outage); err != nil {
				return err
			}
			return s.restartServer(ctx)
		}},
		{fmt.Sprintf("camera gone for %v", outage), 15 * time.Second, func(ctx context.Context, s *Stage) error {
			s.stopCamera()
			if err := Wait(ctx, outage); err != nil {
				return err
			}
			_, err := s.AddCamera("camera", 4)
			return err
		}},
		{"codec process killed", 15 * time.Second, func(context.Context, *Stage) error { return killDecoder() }},
	}
	for _, f := range faults {
		took, err := recover1(ctx, f, log)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", f.name, err)
		}
		rows = append(rows, Check(f.name+": next comment heard after", took.Seconds(), f.within.Seconds(), "s"))
	}
	engine, err := engineFaults(ctx, log)
	if err != nil {
		return append(rows, engine...), err
	}
	rows = append(rows, engine...)
	stalled, err := stalledViewer(ctx, log)
	return append(rows, stalled...), err
}

// recover1 runs one fault on a stage of its own.
func recover1(ctx context.Context, f fault, log zerolog.Logger) (time.Duration, error) {
	s, err := NewStage(ctx, StageOptions{Model: NewEngine(2, 500*time.Millisecond, 500*time.Millisecond), Seed: 4, Log: log})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if err := s.commented(ctx, time.Time{}, 60*time.Second); err != nil {
		return 0, fmt.Errorf("before the fault: %w", err)
	}
	if err := f.hurt(ctx, s); err != nil {
		return 0, err
	}
	healed := time.Now()
	if err := s.commented(ctx, healed, 90*time.Second); err != nil {
		return 0, fmt.Errorf("after the fault: %w", err)
	}
	return time.Since(healed), s.Errors()
}

// commented waits for a comment that was looked for after a moment, spoken and aligned.
func (s *Stage) commented(ctx context.Context, after time.Time, most time.Duration) error {
	_, err := Until(ctx, most, "a comment with its picture", func() bool {
		for _, r := range s.Reader.Records() {
			if r.Outcome == agent.OutcomeSpoken && r.Aligned && r.InferenceStart.After(after) {
				return true
			}
		}
		return false
	})
	return errors.Join(err, s.Errors())
}

func (s *Stage) restartServer(ctx context.Context) error {
	port := func(addr string) int {
		n, _ := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:]) // the server's own address
		return n
	}
	return s.StartServer(ctx, sfu.Options{
		HTTPPort: port(s.Server.HTTPAddr()), UDPPort: port(s.Server.UDPAddr()),
		APIKey: s.Keys.APIKey, APISecret: s.Keys.APISecret, Log: s.opts.Log,
	})
}

// killDecoder kills the codec process that the bot decodes with: of this
// process's children the one that was started first.
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
		const startTime = 19 // proc(5), of what follows the name
		at, err := strconv.ParseInt(fields[startTime], 10, 64)
		if err == nil && (oldest == 0 || at < since || at == since && pid < oldest) {
			oldest, since = pid, at
		}
	}
	if oldest == 0 {
		return errors.New("expected a codec process among the children, found none")
	}
	return syscall.Kill(oldest, syscall.SIGKILL)
}

// engineFaults lets a model server of the OpenAI kind fail in its ways.
func engineFaults(ctx context.Context, log zerolog.Logger) ([]Row, error) {
	server := newModelServer(1, longText, 0, 0)
	defer server.close()
	cfg := configs.Default()
	cfg.Inference.Engine = "remote"
	cfg.Inference.Remote.URL = server.URL + "/v1"
	cfg.Inference.Remote.FirstTokenTimeout = 2 * time.Second
	s, err := NewStage(ctx, StageOptions{Config: &cfg, Seed: 4, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer server.CloseClientConnections()
	if err := s.commented(ctx, time.Time{}, 60*time.Second); err != nil {
		return nil, fmt.Errorf("before the fault: %w", err)
	}
	var rows []Row
	for _, f := range []struct {
		name string
		mood mood
	}{{"answers 500", moodRefuse}, {"hangs", moodHang}, {"closes in the middle of an answer", moodBreak}} {
		server.set(f.mood)
		if err := Wait(ctx, 8*time.Second); err != nil {
			return rows, err
		}
		server.set(moodWell)
		healed := time.Now()
		if err := s.commented(ctx, healed, 60*time.Second); err != nil {
			return rows, fmt.Errorf("after the model server %s: %w", f.name, err)
		}
		rows = append(rows, Check("model server "+f.name+" for 8 s: next comment heard after", time.Since(healed).Seconds(), 20, "s"))
	}
	return rows, nil
}

// stalledViewer has one of two viewers stop reading.
func stalledViewer(ctx context.Context, log zerolog.Logger) ([]Row, error) {
	s, err := NewStage(ctx, StageOptions{Model: NewEngine(2, 500*time.Millisecond, 500*time.Millisecond), Seed: 4, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	v, _, err := s.AddViewer(true)
	if err != nil {
		return nil, err
	}
	other, _, err := s.AddViewer(true)
	if err != nil {
		return nil, err
	}
	if err := s.commented(ctx, time.Time{}, 60*time.Second); err != nil {
		return nil, err
	}
	other.Stall()
	from := time.Now()
	if err := Wait(ctx, 15*time.Second); err != nil {
		return nil, err
	}
	var gap time.Duration
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
		return nil, errors.New("expected pictures at the other viewer, got none")
	}
	return []Row{Check("one viewer stalls: longest gap between pictures at the other", ms(gap), 300, "ms")}, s.Errors()
}
