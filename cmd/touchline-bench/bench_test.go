//go:build integration

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/stage"
	"touchline/media"
	"touchline/media/codec/codectest"
)

// roleEnv makes the test program a process with a role.
const roleEnv = "TOUCHLINE_BENCH_ROLE"

// TestMain puts the codec program on the PATH.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err := (&roleCmd{Role: processRole(role)}).Run(ctx, zerolog.Nop())
		stop()
		if err != nil {
			panic(err)
		}
		return
	}
	os.Exit(codectest.OnPath(m.Run))
}

// These tests check that the runner works with stages and with processes, and that a scenario yields its figures, on a busy machine as
// well. Goals are checked by make bench.

// measured runs a scenario, logs its figures and returns them by name.
func measured(t *testing.T, flags runCmd, scenario func(r *run)) map[string]bench.Figure {
	t.Helper()
	flags.self = func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), roleEnv+"="+args[1])
		return cmd
	}
	figures, err := flags.measure(t.Context(), zerolog.Nop(), scenario)
	byName := map[string]bench.Figure{}
	for _, f := range figures {
		t.Logf("%s: %s (%s)", f.Name, f.Text, f.Goal)
		byName[f.Name] = f
	}
	require.NoError(t, err)
	return byName
}

// TestAlignment compares picture and voice at a viewer, which reads the frame counter in the delayed picture.
func TestAlignment(t *testing.T) {
	short := alignment{least: 300 * time.Millisecond, most: 600 * time.Millisecond, pauseOff: time.Second, say: func(n int) string {
		return fmt.Sprintf("Number %d: it is level.", n)
	}}
	figures := measured(t, runCmd{Comments: 4, Sound: true}, short.measure)
	require.Positive(t, figures["alignment error p95"].Value)
	require.Positive(t, figures["settled D"].Value)
	require.Contains(t, figures, "caption words against their sound p95")
	require.Contains(t, figures, "silence between comments p95")
}

// TestHearing is short: a few people in a process of their own, whose sentences get texts.
func TestHearing(t *testing.T) {
	measured(t, runCmd{}, func(r *run) {
		heard := hear(r, crowd{People: 2, Unmute: true, Length: 8 * time.Second})
		require.Positive(t, heard.spoken)
		require.NotEmpty(t, heard.finals)
		require.NotEmpty(t, heard.firsts)
	})
}

// TestDemo measures the demo for a moment, with a browser that shows its page.
func TestDemo(t *testing.T) {
	program, err := exec.LookPath("touchline")
	require.NoError(t, err, "make build makes it")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	measured(t, runCmd{Bin: filepath.Dir(program), Cost: 3 * time.Second}, func(r *run) {
		cost := costOfDemo(r, "scene", 5*time.Second)
		require.Positive(t, cost.alone.CPU)
		require.Positive(t, cost.watched.RSS)
		require.NotEmpty(t, cost.looks)
		require.Equal(t, "scene", cost.engine)
	})
}

// TestSoak is a short make soak of two rooms with some of its faults and hostile participants: comments are heard again after each.
func TestSoak(t *testing.T) {
	soak := soakCmd{Seed: 1, Quick: true, Rooms: 2, Only: []string{"server stopped", "codec process killed", "one of two viewers stalls"}}
	figures := measured(t, runCmd{}, func(r *run) { soak.measure(r, lines{t}) })
	require.Contains(t, figures, "server stopped, 1 times: next comment heard after, at most")
	require.Contains(t, figures, "comments lost", "their number is judged by make soak, on a machine that is free")
	require.Zero(t, figures["kinds of faults not injected"].Value)
	var delivered int
	_, err := fmt.Sscanf(figures["comments begun while connected"].Text, "%d delivered", &delivered)
	require.NoError(t, err)
	require.Positive(t, delivered, "comments were compared")
}

// TestFlood is a short flood: each kind of hostile client gets answers, and the operator's orders act.
func TestFlood(t *testing.T) {
	program, err := exec.LookPath("touchline-slim")
	require.NoError(t, err, "make build makes it")
	soak := soakCmd{Seed: 1, Length: 24 * time.Second, Rooms: 2, Hostile: 5}
	measure := func() map[string]bench.Figure {
		return measured(t, runCmd{Bin: filepath.Dir(program)}, func(r *run) { soak.flood(r, lines{t}) })
	}
	figures := measure()
	for _, name := range []string{
		"alignment p95 of honest rooms during the flood", "CPU of the bot during the flood, times that before",
		"memory above that before during the flood", "memory above that before, at the end",
	} {
		require.Contains(t, figures, name, "judged by touchline-bench soak, on a machine that is free")
	}
	var what strings.Builder
	for name := range figures {
		what.WriteString(name + "\n")
	}
	for _, kind := range []string{
		"participant's request ", "player's offer ", "sender's offer ", "list 200 OK", "speech ", "recording ",
	} {
		require.Contains(t, what.String(), "hostile: "+kind)
	}
	soak.Apart, soak.Length = true, 30*time.Second
	figures = measure()
	for _, kind := range apart() {
		require.Contains(t, figures, "memory above that before during the "+kind)
		require.Regexp(t, `^[1-9]\d* goroutines, [1-9]`, figures["held by the bot at most during the "+kind].Text)
	}
}

// TestCrowded measures a worker with a few small rooms.
func TestCrowded(t *testing.T) {
	program, err := exec.LookPath("touchline-slim")
	require.NoError(t, err, "make build makes it")
	measured(t, runCmd{Bin: filepath.Dir(program), Cost: 10 * time.Second}, func(r *run) {
		clip, err := stage.MakeClip(r.Context(), media.H264, 320, 180, 15, 250_000, 1)
		r.Check(err)
		w := crowdOf(r, 3, clip)
		w.figures(r, 3)
		require.Positive(t, w.spoken)
		require.Positive(t, w.usage.RSS)
	})
}

// lines is a writer to the log of a test.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
