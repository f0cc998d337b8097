//go:build nodemo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunOfTheSlimProgram: it takes the flags of run, and names the program that has the command.
func TestRunOfTheSlimProgram(t *testing.T) {
	_, stderr, code := touchline(t, "run", "--source", "rtsp://192.0.2.1/stream1", "--room", "hall")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "built without a LiveKit server (touchline-slim); use the full program, touchline, or `touchline join`")
}
