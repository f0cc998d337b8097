package state_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens the state in a folder and runs it until stop.
func open(t *testing.T, dir string) (s *state.Store, stop func()) {
	t.Helper()
	s, err := state.Open(state.Config{Path: dir}, zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func load(t *testing.T, r *state.Room) map[string]string {
	t.Helper()
	values, err := r.Load()
	require.NoError(t, err)
	out := map[string]string{}
	for name, value := range values {
		out[name] = string(value)
	}
	return out
}

// TestRestart: the values of each commentator are there after a restart, and only for the user of the program.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	s, stop := open(t, dir)
	match := s.Room("match", "bot")
	require.Empty(t, load(t, match))
	match.Keep("profile", json.RawMessage(`"sports"`))
	match.Keep("sheet", json.RawMessage(`"teams: []"`))
	match.Keep("profile", json.RawMessage(`"nature"`))
	match.Keep("sheet", nil)
	s.Room("match", "bot:ana").Keep("profile", json.RawMessage(`"default"`))
	require.Equal(t, map[string]string{"profile": `"nature"`}, load(t, match), "also before it is written")
	stop()
	for _, name := range []string{".", "state.db"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Zero(t, info.Mode()&0o077, name)
	}

	s, stop = open(t, dir)
	defer stop()
	require.Equal(t, map[string]string{"profile": `"nature"`}, load(t, s.Room("match", "bot")))
	require.Equal(t, map[string]string{"profile": `"default"`}, load(t, s.Room("match", "bot:ana")))
	require.Empty(t, load(t, s.Room("final", "bot")))
	rooms, err := s.Forget()
	require.NoError(t, err)
	require.Equal(t, 1, rooms)
	require.Empty(t, load(t, s.Room("match", "bot")))
}

// TestBrokenDisk: a write that fails stops nothing; it is reported, counted and retried.
func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := open(t, dir)
	_, err := s.DB().ExecContext(t.Context(), "ALTER TABLE room_values RENAME TO away")
	require.NoError(t, err)
	s.Room("match", "bot").Keep("profile", json.RawMessage(`"nature"`))
	require.Eventually(t, func() bool { return s.Problem() != "" }, 2*time.Minute, time.Millisecond)
	require.NotContains(t, s.Problem(), dir, "viewers read it")
	_, err = s.DB().ExecContext(t.Context(), "ALTER TABLE away RENAME TO room_values")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Problem() == "" }, 2*time.Minute, time.Millisecond)
	stop()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(s.Collector()))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 4)
	require.Equal(t, "touchline_state_failures_total", families[0].GetName())
	require.Positive(t, families[0].GetMetric()[0].GetCounter().GetValue())

	s, stop = open(t, dir)
	defer stop()
	require.Equal(t, map[string]string{"profile": `"nature"`}, load(t, s.Room("match", "bot")))
}

// TestRefused: the errors name the file and say what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	newer, damaged, words := t.TempDir(), t.TempDir(), t.TempDir()
	s, stop := open(t, newer)
	_, err := s.DB().ExecContext(t.Context(), "PRAGMA user_version = 99")
	require.NoError(t, err)
	stop()

	s, stop = open(t, damaged)
	for range 100 {
		s.Room("match", "bot").Keep(time.Now().String(), json.RawMessage(`"`+string(make([]byte, 100))+`"`))
	}
	stop()
	file := filepath.Join(damaged, "state.db")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for i := 4096; i < len(text); i += 2 {
		text[i] ^= 0x55
	}
	require.NoError(t, os.WriteFile(file, text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(words, "state.db"), []byte("these are no tables at all"), 0o600))

	tests := []struct{ name, dir, want string }{
		{"newer", newer, "state of version 99, this program reads version"},
		{"damaged", damaged, "the file is damaged"},
		{"a text", words, "not a database"},
		{"a file for a folder", filepath.Join(words, "state.db"), "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // a refused file is not changed into a valid one
				_, err := state.Open(state.Config{Path: tt.dir}, zerolog.Nop())
				require.ErrorContains(t, err, tt.want)
				require.ErrorContains(t, err, "open the state "+filepath.Join(tt.dir, "state.db"))
				require.ErrorContains(t, err, "; choose another folder")
			}
		})
	}
}
