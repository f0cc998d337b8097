//go:build integration && !nodemo

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// crashVariable makes the test program run as touchline with a panic; its value
// is the component that panics.
const crashVariable = "CRASH_TEST_IN"

// crashIn makes the first log line of a component panic, in the function for its
// timestamp.
func crashIn(code string) {
	zerolog.TimestampFunc = func() time.Time {
		if bytes.Contains(debug.Stack(), []byte(code)) {
			panic("crash in the test")
		}
		return time.Now()
	}
}

// TestCrashEndsTheProgram: a panic of the only bot shuts the program down with
// exit code 2 and the stack on standard error, after the log or in the last line
// of a JSON log.
func TestCrashEndsTheProgram(t *testing.T) {
	t.Parallel()
	const where = "touchline/agent.(*Session)."
	h := newAgentHouse(t)
	bin, err := filepath.Abs("bin")
	require.NoError(t, err)
	env := append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TOUCHLINE_") || strings.HasPrefix(v, "LIVEKIT_") || strings.HasPrefix(v, "PATH=")
	}), crashVariable+"="+where, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"TOUCHLINE_INFERENCE_SIGHT_BUNDLE=/nowhere", // loading a network cannot be ended
		"LIVEKIT_URL="+h.url, "LIVEKIT_API_KEY="+h.keys.APIKey, "LIVEKIT_API_SECRET="+h.keys.APISecret)
	for name, args := range map[string][]string{
		"join": {"join", "--room", agentRoom, "--listen", "127.0.0.1:0"},
		"demo": {"--log-json", "demo", "--listen", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := os.Executable()
			require.NoError(t, err)
			var out, complaints bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, &out, &complaints, time.Second
			timer := time.AfterFunc(2*startWait, func() { _ = cmd.Process.Kill() })
			err = cmd.Run()
			timer.Stop()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, exitPanic, exit.ExitCode(), complaints.String())
			require.NotContains(t, out.String(), "goroutine", "standard output is for people")
			require.Contains(t, out.String(), "http://127.0.0.1:", "the page was there")

			log, stack, raw := strings.Cut(complaints.String(), "panic: crash in the test\n\n")
			lines := strings.Split(strings.TrimSpace(log), "\n")
			last := lines[len(lines)-1]
			require.Contains(t, last, "the code panicked: crash in the test", complaints.String())
			if slices.Contains(args, "--log-json") {
				require.False(t, raw, "JSON lines only")
				var line struct{ Stack string }
				require.NoError(t, json.Unmarshal([]byte(last), &line))
				stack = line.Stack
			}
			require.Contains(t, stack, where, "whose code it was")
		})
	}
}
