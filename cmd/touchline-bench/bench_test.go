package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// serveCamerasEnv is set for this test's own program when it is to be a server for cameras.
const serveCamerasEnv = "TOUCHLINE_BENCH_SERVE_CAMERAS"

// TestMain builds the codec program that the stages need.
func TestMain(m *testing.M) {
	if os.Getenv(serveCamerasEnv) != "" {
		if err := (&cameraServerCmd{}).Run(context.Background(), zerolog.Nop()); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "touchline-bench")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "touchline-codec"), "touchline/cmd/touchline-codec")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			panic(err)
		}
		built := os.Getenv("TOUCHLINE_BIN") // with MediaMTX
		if built == "" {
			if built, err = filepath.Abs("../../bin"); err != nil {
				panic(err)
			}
		}
		path := strings.Join([]string{dir, os.Getenv("PATH"), built}, string(os.PathListSeparator))
		if err := os.Setenv("PATH", path); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// The bounds here are generous: they hold on a busy machine, and what is asked
// of a calm one is in the tables of make bench.

// TestAlignment is the product's promise, seen from outside by a viewer that
// reads the frame counter out of the delayed picture and hears the voice. It
// measures times, so nothing runs beside it.
func TestAlignment(t *testing.T) {
	say := func(n int) string { return fmt.Sprintf("Number %d: it is still level here.", n) }
	res, err := measureAlignment(t.Context(), 8, 400*time.Millisecond, 2*time.Second, say, true, zerolog.Nop())
	require.NoError(t, err)
	for _, c := range res.Comments {
		t.Logf("cycle %d: D %.3f s, ready %.3f s, viewer %v, bot %.1f ms", c.Cycle, c.Delay, c.ReadySec, c.Error, 1000*c.AlignmentError)
	}
	require.GreaterOrEqual(t, len(res.Comments), 6, "most comments were seen and heard")
	require.LessOrEqual(t, quantile(res.Errors(), 0.95), 250*time.Millisecond)
	require.LessOrEqual(t, quantile(res.Gaps, 0.5), 1500*time.Millisecond, "no dead air")
	for _, r := range res.Rows(time.Second) {
		t.Logf("%s: %s (%s)", r.Name, r.Figure, r.Bound)
		if strings.Contains(r.Name, "caption") {
			require.True(t, r.holdsWithin(busy), "%s: expected %s, got %s", r.Name, r.Bound, r.Figure)
		}
	}
	require.Greater(t, len(res.Words), 40, "the captions were compared")
	require.GreaterOrEqual(t, len(res.Final), 4, "and their ends")
	// Not the worst: on a busy machine a voice that runs dry for a moment counts as two talks to the viewer.
	require.LessOrEqual(t, quantile(res.Final, 0.5).Abs(), 200*time.Millisecond, "the final flag comes with the end")
}

// busy is how many times its bound a figure may be here.
const busy = 2.0

// holds fails for every row that is far from its bound.
func holds(t *testing.T, rows []row, err error) {
	t.Helper()
	for _, r := range rows {
		t.Logf("%s: %s (%s)", r.Name, r.Figure, r.Bound)
		if !r.holdsWithin(busy) {
			t.Errorf("%s: expected %s, at most %g times as much here, got %s", r.Name, r.Bound, busy, r.Figure)
		}
	}
	require.NoError(t, err)
	require.NotEmpty(t, rows)
}

func TestInstruction(t *testing.T) {
	t.Parallel()
	rows, err := measureInstruction(t.Context(), zerolog.Nop())
	holds(t, rows, err)
}

// TestRestarts takes cameras away for a moment; make bench does for longer.
func TestRestarts(t *testing.T) {
	t.Parallel()
	rows, err := measureRestarts(t.Context(), 3*time.Second, zerolog.Nop())
	holds(t, rows, err)
	require.Len(t, rows, 4)
}

// TestRounds has a WHIP sender come and go; make soak does for longer.
func TestRounds(t *testing.T) {
	rows, err := measureRounds(t.Context(), 60, 2*time.Second, zerolog.Nop())
	holds(t, rows, err)
}

// TestCameras sends to viewers in Go and in a browser, here and to MediaMTX.
func TestCameras(t *testing.T) {
	t.Parallel()
	server := func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), serveCamerasEnv+"=1")
		return cmd
	}
	rows, err := measureCameras(t.Context(), server, 3*time.Second)
	require.NoError(t, err)
	require.Len(t, rows, 15)
	for _, r := range rows {
		t.Logf("%s: %s (%s)", r.Name, r.Figure, r.Bound)
		const some = 5 // access units that may be lost here
		require.True(t, r.holdsWithin(busy) || r.Most == 0 && r.Got <= some, "%s: expected %s, got %s", r.Name, r.Bound, r.Figure)
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "sleep", "60")
	require.NoError(t, cmd.Start())
	u, err := usageOf(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, u.CPU)
	require.Greater(t, u.RSS, int64(1<<20))
	_, err = usageOf(1 << 30)
	require.ErrorContains(t, err, "read the usage of")
	cancel()
	require.Error(t, cmd.Wait())
}

// TestSoak is make soak in short, and the faults of make bench with it: each breaks the bot's
// world once, comments are heard again within its bound, and none is lost.
func TestSoak(t *testing.T) {
	rows, err := measureSoak(t.Context(), soakOptions{Seed: 1, Quick: true, Out: lines{t}, Log: zerolog.Nop()})
	holds(t, rows, err)
	var delivered int
	for _, r := range rows {
		if r.Name == "comments lost" {
			require.Zero(t, r.Got)
		}
		if r.Name == "comments begun while connected" {
			_, err := fmt.Sscanf(r.Figure, "%d delivered", &delivered)
			require.NoError(t, err)
		}
	}
	require.GreaterOrEqual(t, delivered, 12, "comments were compared")
}

// lines is a test's log as a writer.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
