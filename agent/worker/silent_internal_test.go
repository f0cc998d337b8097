package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilenceIsMonotonic: a step of the wall clock neither ends a connection nor hides that it is dead.
func TestSilenceIsMonotonic(t *testing.T) {
	t.Parallel()
	l := &link{}
	l.received()
	require.NotEqual(t, *l.lastMessage.Load(), l.lastMessage.Load().Round(0), "a time without its monotonic reading follows the wall clock")
	require.False(t, l.silent(time.Now()))
	require.True(t, l.silent(time.Now().Add(silentFor+time.Second)))
}
