//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/configs"
	"touchline/inference/conformance/bundles"
	"touchline/media/codec/codectest"
)

// roleEnv makes the test program a process with a role.
const roleEnv = "TOUCHLINE_BENCH_ROLE"

// TestMain puts the codec program and MediaMTX on the PATH.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := (&roleCmd{Role: role}).Run(context.Background(), zerolog.Nop()); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(codectest.OnPath(func() int {
		built, err := filepath.Abs("../../bin") // with MediaMTX
		if err := errors.Join(err, os.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+built)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}

// These tests check that each scenario runs and yields its figures, on a busy machine as well. Goals are checked by
// make bench.

// figures logs the rows of a scenario and returns them by name.
func figures(t *testing.T, rows []row, err error) map[string]row {
	t.Helper()
	byName := map[string]row{}
	for _, r := range rows {
		t.Logf("%s: %s (%s)", r.Name, r.Figure, r.Goal)
		byName[r.Name] = r
	}
	require.NoError(t, err)
	return byName
}

// TestAlignment compares picture and voice at a viewer, which reads the frame counter in the delayed picture.
func TestAlignment(t *testing.T) {
	say := func(n int) string { return fmt.Sprintf("Number %d: it is still level here.", n) }
	res, err := measureAlignment(t.Context(), 4, 400*time.Millisecond, 2*time.Second, say, true, zerolog.Nop())
	rows := figures(t, res.Rows(time.Second), err)
	require.Contains(t, rows, "alignment error p95")
	require.Contains(t, rows, "caption words against their sound p95")
	require.NotEmpty(t, res.Comments, "comments were seen and heard")
	require.NotEmpty(t, res.Words, "captions were compared")
	require.NotEmpty(t, res.Final, "and their ends")
}

// TestOwnVoice: a small model's voice, too.
func TestOwnVoice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "speaking")
	require.NoError(t, bundles.Speaking(t.Context(), "../..", t.TempDir(), dir))
	cfg := configs.Default()
	cfg.Media.CaptureFPS, cfg.Inference.MaxTokens, cfg.Inference.Voice.MaxTokens = 2, 6, 6
	m := &cfg.Inference.MiniCPM
	m.Path, m.Runtime, m.Slots = dir, "../../bin/runtime", 8
	res, err := measureOwnVoice(t.Context(), 4, cfg, false, zerolog.Nop())
	figures(t, res.Rows(time.Second), err)
	require.NotEmpty(t, res.Comments, "comments were seen and heard")
}

func TestSound(t *testing.T) {
	t.Parallel()
	rows, err := measureSound(t.Context(), 12*time.Second, zerolog.Nop())
	figures(t, rows, err)
	require.Len(t, rows, 5)
}

func TestInstruction(t *testing.T) {
	t.Parallel()
	rows, err := measureInstruction(t.Context(), zerolog.Nop())
	figures(t, rows, err)
	require.GreaterOrEqual(t, len(rows), 4, "one for each state of the bot")
}

// TestRestarts switches cameras off for a moment; make bench does for longer.
func TestRestarts(t *testing.T) {
	t.Parallel()
	rows, err := measureRestarts(t.Context(), 3*time.Second, zerolog.Nop())
	figures(t, rows, err)
	require.Len(t, rows, 4)
}

// roleOfTest runs the test program as a process with a role.
func roleOfTest(ctx context.Context, role processRole) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(role))
	return cmd
}

// withSettingsAlone takes the variable of tests, which is no setting, from a program's environment.
func withSettingsAlone(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "TOUCHLINE_BIN=") })
	return cmd
}

// TestCameras sends to viewers in Go and in a browser, here and to MediaMTX.
func TestCameras(t *testing.T) {
	t.Parallel()
	rows, err := measureCameras(t.Context(), roleOfTest, 3*time.Second)
	figures(t, rows, err)
	require.Len(t, rows, 15)
}

// TestDispatches dispatches an agent to one room in each of the three ways.
func TestDispatches(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("touchline")
	if err != nil {
		program = filepath.Join(t.TempDir(), "touchline")
		out, err := exec.CommandContext(t.Context(), "go", "build", "-tags=nolibopusfile,nodemo", "-o", program, "touchline/cmd/touchline").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	worker := func(ctx context.Context, url string, keys conn.Keys, agentName string) *exec.Cmd {
		return withSettingsAlone(workerOf(ctx, program, url, keys, agentName))
	}
	rows, err := measureDispatches(t.Context(), worker, 1, zerolog.Nop())
	figures(t, rows, err)
	require.Len(t, rows, 6)
}

// TestDemo measures the demo for a moment, with each engine and with a browser that shows its page.
func TestDemo(t *testing.T) {
	program, err := exec.LookPath("touchline")
	require.NoError(t, err, "make build makes it")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	demo := func(ctx context.Context, engine, history string) *exec.Cmd {
		return withSettingsAlone(demoOf(ctx, program, engine, history))
	}
	rows, err := measureDemo(t.Context(), demo, 15*time.Second, 5*time.Second)
	byName := figures(t, rows, err)
	for _, name := range []string{
		"demo with nano and one viewer, CPU", "demo with nano, memory of the main process", "nano, look to whole answer, median",
	} {
		require.Positive(t, byName[name].Got, name)
	}
}

// TestRounds connects and disconnects a WHIP sender; make soak does it more often.
func TestRounds(t *testing.T) {
	rows, err := measureRounds(t.Context(), 20, time.Second, zerolog.Nop())
	figures(t, rows, err)
	require.Len(t, rows, 6)
}

// TestSoak is a short make soak with each fault once: comments are heard again after it, and none is lost.
func TestSoak(t *testing.T) {
	rows, err := measureSoak(t.Context(), soakOptions{Seed: 1, Quick: true, Out: lines{t}, Log: zerolog.Nop()})
	byName := figures(t, rows, err)
	require.Zero(t, byName["comments lost"].Got)
	require.Zero(t, byName["kinds of faults not injected"].Got)
	var delivered int
	_, err = fmt.Sscanf(byName["comments begun while connected"].Figure, "%d delivered", &delivered)
	require.NoError(t, err)
	require.Positive(t, delivered, "comments were compared")
}

// lines is a writer to the log of a test.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// TestHearing is short: a few people, whose every sentence gets its texts.
func TestHearing(t *testing.T) {
	_, heard, err := hear(t.Context(), roleOfTest, crowd{People: 2, Unmute: true, Length: 8 * time.Second}, zerolog.Nop())
	require.NoError(t, err)
	require.Positive(t, heard.spoken)
	require.Len(t, heard.finals, heard.spoken)
	require.Len(t, heard.firsts, heard.spoken)
}
