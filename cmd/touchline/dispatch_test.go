//go:build !nodemo

package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/internal/e2e/stage"
)

// TestDispatches is the benchmark's measurement in its shortest form: each way of asking has its figure. The bound is
// the benchmark's to judge, on a machine that does nothing else.
func TestDispatches(t *testing.T) {
	worker := func(ctx context.Context, url string, keys room.Keys, _ []string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "./bin/touchline", "--log-level=error", "agent", "--url", url, "--http", "off", "--full-cpu", "0")
		cmd.Env = append(settingless(), "LIVEKIT_API_KEY="+keys.APIKey, "LIVEKIT_API_SECRET="+keys.APISecret)
		return cmd
	}
	rows, err := stage.Dispatches(t.Context(), worker, 2, zerolog.Nop())
	require.NoError(t, err)
	require.Len(t, rows, 6)
	for i, way := range []string{"a new room", "the API", "a participant's token"} {
		row := rows[2*i+1]
		require.True(t, strings.HasPrefix(row.Name, "dispatch by "+way) && strings.HasSuffix(row.Name, "p95"), row.Name)
		t.Logf("%s: %s", row.Name, row.Figure)
		require.Positive(t, row.Got)
	}
}
