//go:build integration

package child

import (
	"bytes"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// late is a reader that a busy machine runs late.
type late struct {
	text bytes.Buffer
	once sync.Once
}

// Write implements io.Writer.
func (l *late) Write(p []byte) (int, error) {
	l.once.Do(func() { time.Sleep(1500 * time.Millisecond) })
	return l.text.Write(p)
}

// TestLateReader: the output of a program that has ended is complete though it is read late.
func TestLateReader(t *testing.T) {
	t.Parallel()
	cmd, log := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo late >&2"), &late{}
	cmd.Stderr = log
	_, _, err := Run(cmd, Limits{}, 1)
	require.NoError(t, err)
	require.Equal(t, "late\n", log.text.String())
}
