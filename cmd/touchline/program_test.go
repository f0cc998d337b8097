package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/internal/child"
	"touchline/internal/rescue"
)

// moduleRoot is the folder of go.mod. It is found before any test changes the folder.
var moduleRoot, _ = filepath.Abs("../..")

// asProgram is the variable that makes the test program run as touchline.
const asProgram = "TEST_AS_TOUCHLINE"

// ranAsProgram runs touchline and exits if asProgram is set.
func ranAsProgram() {
	if os.Getenv(asProgram) != "" {
		main()
	}
}

// touchline runs the program to its end; arguments such as LIVEKIT_API_KEY=x are its environment.
func touchline(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var out, complaints bytes.Buffer
	var env []string
	args = slices.DeleteFunc(args, func(arg string) bool {
		isVariable := strings.HasPrefix(arg, "LIVEKIT_") || strings.HasPrefix(arg, "TOUCHLINE_")
		if isVariable {
			env = append(env, arg)
		}
		return isVariable
	})
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TOUCHLINE_") || strings.HasPrefix(v, "LIVEKIT_")
	}), append(env, asProgram+"=1")...)
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// TestToken: the command's link opens its rooms, with its rights and no longer than it says.
func TestToken(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "APIkey", APISecret: "a secret of thirty-two characters or more"}
	stdout, stderr, code := touchline(t, "token", "final", "süd", "--rights", "watch,rules", "--for", "2h", "--name", "Vera",
		"--page", "https://touchline.example/rooms/final", "LIVEKIT_API_KEY="+keys.APIKey, "LIVEKIT_API_SECRET="+keys.APISecret)
	require.Zero(t, code, stderr)
	token, ok := strings.CutPrefix(strings.TrimSpace(stdout), "https://touchline.example/rooms/final#token=")
	require.True(t, ok, stdout)
	grant, err := access.Verify(keys, token, time.Now())
	require.NoError(t, err)
	require.Equal(t, []string{"final", "süd"}, grant.Rooms)
	require.Equal(t, access.Watch|access.Rules, grant.Rights)
	require.Equal(t, "Vera", grant.Name)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), grant.Expires, time.Minute)
}

// TestConfinementIsLogged: a worker's log has what confines programs, as a warning if anything is missing.
func TestConfinementIsLogged(t *testing.T) {
	t.Parallel()
	text, all := child.Available()
	level := "warn"
	if all {
		level = "info"
	}
	_, stderr, _ := touchline(t, "--log-json", "agent", "LIVEKIT_URL=ws://127.0.0.1:1") // without a key it ends
	require.Contains(t, stderr, fmt.Sprintf(`{"level":%q,"kernel":%q,`, level, text))
}

func TestFailureIsAMessageOnStandardError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	for _, tt := range []struct {
		name, says string
		args       []string
		code       int
	}{
		{"health", "touchline: ask the worker at http://127.0.0.1:1/: ", []string{"health", "http://127.0.0.1:1/"}, 1},
		{"no key", "touchline: a token needs the LiveKit API key and secret; set LIVEKIT_API_KEY", []string{"token", "final"}, 1},
		{"bad right", `touchline: --rights: right "fly": must be one of watch,`, []string{"token", "final", "--rights", "fly"}, 1},
		{"no history", "touchline: no history to read: ", []string{"history"}, 1},
		{"no settings", "touchline: read settings: stat " + missing, []string{"--config", missing, "history"}, 2},
		{"worker's flag", "touchline: agent.worker.slots: must be ", []string{"agent", "--slots", "10001"}, 2},
		{"log level", `touchline: log level "loud": `, []string{"--log-level", "loud", "history"}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := touchline(t, tt.args...)
			require.Equal(t, tt.code, code, stderr)
			require.Empty(t, stdout)
			require.True(t, strings.HasPrefix(stderr, tt.says), stderr)
			require.NotContains(t, stderr, "\x1b", "no colours where there is no terminal")
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
	_, stderr, code := touchline(t, "--log-json", "health", "http://127.0.0.1:1/")
	require.Equal(t, 1, code)
	var line struct{ Level, Error, Message string }
	require.NoError(t, json.Unmarshal([]byte(stderr), &line), "a log of JSON lines stays one: %s", stderr)
	require.Equal(t, "error", line.Level)
	require.Contains(t, line.Error, "ask the worker")
	require.Equal(t, "touchline failed", line.Message)
}

func TestPanicShowsItsStack(t *testing.T) {
	err := error(&rescue.PanicError{Value: "boom", Stack: []byte("goroutine 7 [running]:\n")})
	var out bytes.Buffer
	require.Equal(t, exitPanic, fail(&out, zerolog.New(&out), false, err))
	require.Equal(t, "touchline: the code panicked: boom\npanic: boom\n\ngoroutine 7 [running]:\n", out.String())
	out.Reset()
	require.Equal(t, exitPanic, fail(&out, zerolog.New(&out), true, err))
	var line struct{ Stack string }
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "goroutine 7 [running]:\n", line.Stack)
}

func TestLogIsColouredOnTerminalsOnly(t *testing.T) {
	for _, tt := range []struct {
		name, noColor string
		terminal, has bool
	}{
		{"terminal", "", true, true},
		{"NO_COLOR", "1", true, false},
		{"no terminal", "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tt.noColor)
			var out bytes.Buffer
			log := textLog(&out, tt.terminal)
			log.Error().Err(errors.New("no way")).Str("room", "arena").Msg("join failed")
			require.Contains(t, out.String(), "join failed")
			require.Equal(t, tt.has, strings.Contains(out.String(), "\x1b"), "%q", out.String())
		})
	}
}

func TestVersion(t *testing.T) {
	revision := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-05-01T20:15:00Z"}, {Key: "vcs.modified", Value: "true"},
	}
	for want, info := range map[string]*debug.BuildInfo{
		"unknown":                      nil,
		"v1.2.3 (go1.26.0)":            {GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}},
		"development build (go1.26.0)": {GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}},
		"v1.2.3 (0123456789ab of 2026-05-01T20:15:00Z, modified, go1.26.0)": {
			GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Settings: revision,
		},
		"v1.2.3 (0123456789ab of 2026-05-01T20:15:00Z, go1.26.0)": {
			GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Settings: revision[:2],
		},
	} {
		require.Equal(t, want, describeBuild(info))
	}
	for _, arg := range []string{"version", "--version"} {
		stdout, stderr, code := touchline(t, arg)
		require.Zero(t, code, stderr)
		require.True(t, strings.HasPrefix(stdout, "touchline "), stdout)
		require.Contains(t, stdout, runtime.Version())
	}
}

// TestInterruptedCommands: an interrupt ends a serving command normally; for others it is a failure.
func TestInterruptedCommands(t *testing.T) {
	for args, want := range map[string]bool{
		"demo": true, "run": true, "join": true, "agent": true, "camera webcam": true,
		"check": false, "health": false, "history": false, "version": false, "models": false, "models verify .": false, "bench model .": false,
	} {
		var c cli
		parser, err := kong.New(&c)
		require.NoError(t, err)
		kctx, err := parser.Parse(strings.Fields(args))
		require.NoError(t, err, args)
		require.Equal(t, want, isEndless(kctx), args)
	}
}

// TestModelProgramMissing: commands that touchline-model carries out name it where it is not beside the program.
func TestModelProgramMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	file := filepath.Join(t.TempDir(), "speech.wav")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, args := range [][]string{
		{"bench", "model", "x"},
		{"models", "check", "--golden", "x"},
		{"models", "synth", "--help"},
		{"models", "list"},
		{"models", "convert", ".", "x"},
		{"models", "pull", "some/model", "x"},
		{"models", "upgrade", "."},
		{"models", "verify", "."},
		{"models", "voice", "add", ".", "x", file},
		{"models", "voice", "list", "."},
		{"models", "voice", "remove", ".", "x"},
	} {
		_, stderr, code := touchline(t, args...)
		require.Equal(t, 2, code, stderr)
		require.Contains(t, stderr, "touchline-model is neither beside this program nor in PATH")
	}
}
